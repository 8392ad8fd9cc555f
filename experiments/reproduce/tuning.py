"""The `tune` of a table: each variant runs at that value of a setting whose mean over the seeds is the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.report.data.statistics import best, estimate, higher_is_better
from commeff.experiments.reproduce.cases import (
    Case,
    Setting,
    are_seeds,
    check_settings,
    labels_of,
    listing,
    number_in,
    read_settings,
    values_in,
)
from commeff.experiments.reproduce.quantities import TableQuantity, quantity
from commeff.experiments.reproduce.reading import TableError, check_keys
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.require import did_you_mean

KEYS = ("over", "by", "seeds", "settings")
CHOSEN_BY = ("val_accuracy", "val_loss", "train_loss")
SEEDS = (100,)  # where a table names none


@dataclass(frozen=True)
class Tuning:
    """How values are chosen.

    Attributes
    ----------
    over : the label that every variant tries values of.
    by : a metric on validation data, or a quantity of which less is better, such as the steps to a level.
    seeds : of the runs that are only for choosing.
    settings : in which these runs differ; functions know the run that is reported.
    """

    over: str
    by: TableQuantity
    seeds: tuple[int, ...] = SEEDS
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def groups(self, cases: Iterable[Case]) -> list[list[int]]:
        """The places of cases, together where these differ in nothing but the tuned label."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        for place, case in enumerate(cases):
            others = sorted((key, value) for key, value in case.labels.items() if key != self.over)
            groups.setdefault((case.name, *others), []).append(place)
        return list(groups.values())


def read_tuning(node: Mapping[str, Any], cases: Sequence[Case], seeds: Iterable[int]) -> Tuning:
    """The `tune` of a table; no seed may both choose and be reported.

    Parameters
    ----------
    node : what the table says.
    cases : of the whole table.
    seeds : all seeds of the table.
    """
    by = node.get("by")
    if not {"over", "by"} <= set(node) or (not isinstance(by, TableQuantity) and by not in CHOSEN_BY):
        form = '{"over": "optimizer.lr", "by": "val_loss"}'
        raise TableError(f"tune must be as {form}, by one of {CHOSEN_BY} or a quantity, got {node!r}")
    if isinstance(by, TableQuantity) and by.text not in CHOSEN_BY:
        if any(metric.startswith("test_") for metric in by.metrics):
            raise TableError(f"tune.by must not be of test data, got {by.text}")
        if not by.text.startswith("to(") and any(map(higher_is_better, by.metrics)):
            raise TableError(f"tune.by must be val_accuracy, or steps to one, where accuracy decides, got {by.text}")
    check_keys("tune", node, KEYS)
    over, labels = str(node["over"]), labels_of(cases)
    if over not in labels:
        near = did_you_mean(over, labels)
        raise TableError(f"tune.over names {over!r}, of which no entry of the grid tries values{near}")
    tuning_seeds, settings = node.get("seeds", [*SEEDS]), read_settings(node.get("settings", {}), "tune.settings")
    if not are_seeds(tuning_seeds):
        raise TableError(f"tune.seeds must be a list of different whole numbers, such as [100], got {tuning_seeds!r}")
    if shared := sorted({*tuning_seeds} & {*seeds}):
        raise TableError(
            f"tune.seeds must be others than the table's seeds, got {', '.join(map(str, shared))} in both: "
            f"a seed that chooses says too much good of what it chose; give others, such as [{max(99, *seeds) + 1}]"
        )
    check_settings(settings, cases, "tune.settings: ")
    if fixed := {"seed", over} & {*settings}:
        raise TableError(f"tune.settings must leave {', '.join(fixed)} out: tune sets it itself")
    return Tuning(over, quantity(by), tuple(tuning_seeds), settings)


def check_equal(tuning: Tuning, cases: Sequence[Case], scale: str) -> None:
    """Refuse variants that try different numbers of values at a scale; 0.1 and 1e-1 are one value."""
    groups = [[cases[place] for place in group] for group in tuning.groups(cases)]
    tried = [(group[0].name, {number_in(text): text for text in values_in(group, tuning.over)}) for group in groups]
    (first, few), (second, many) = (pick(tried, key=lambda pair: len(pair[1])) for pick in (min, max))
    if len(few) != len(many):
        less, more = (f"({', '.join(values.values()) or 'none'})" for values in (few, many))
        raise TableError(
            f"tune: at scale {scale} {first} tries {len(few)} of {tuning.over} {less}, {second} tries {len(many)} "
            f"{more}: give each method as many"
        )


@dataclass(frozen=True, eq=False)
class TunedChoice:
    """The cases of a variant that differ in the tuned label alone, and which of them is the best.

    Attributes
    ----------
    tuning : how it was chosen.
    tried : with the runs that chose.
    means : of the validation metric over their seeds, NaN where a run diverged.
    pick : the place of the best.
    """

    tuning: Tuning
    tried: Sequence[CaseResult]
    means: Sequence[float]
    pick: int

    @property
    def best(self) -> CaseResult:
        """The case that was chosen."""
        return self.tried[self.pick]

    @property
    def values(self) -> list[str]:
        """The value of the tuned label in each case, functions worked out."""
        over = self.tuning.over
        return [case.labels.get(over, case.case.labels.get(over, "")) for case in self.tried]

    @property
    def warnings(self) -> list[str]:
        """A line if it is at the edge of what was tried, or among nothing but diverged runs."""
        over, chosen = self.tuning.over, self.values[self.pick]
        others = {key: value for key, value in self.best.labels.items() if key != over}
        who = f"{self.best.case.name} {listing(others)}".strip()
        if any(case.runs for case in self.tried) and all(map(math.isnan, self.means)):
            return [f"{who}: diverged at all values of {over}; {chosen} stands for them"]
        numbers = sorted({number for number in map(number_in, self.values) if isinstance(number, float)})
        if len(numbers) < 2 or number_in(chosen) not in (numbers[0], numbers[-1]):
            return []
        side = "smallest" if number_in(chosen) == numbers[0] else "largest"
        return [f"{who}: best {over} {chosen} is the {side} tried; try more on that side"]


def choices_of(whole: Results) -> list[TunedChoice]:
    """One choice for each group of cases; equally good ones are chosen by their order in the file."""
    tuning, choices = whole.table.tune, list[TunedChoice]()
    if tuning is None:
        return choices
    metric = tuning.by.text if tuning.by.text in CHOSEN_BY else "val_loss"  # of other quantities less is better
    for places in tuning.groups(result.case for result in whole.cases):
        tried = [whole.cases[place] for place in places]
        means = [_mean(tuning.by.by_seed(whole, case).values()) for case in tried]
        choices.append(TunedChoice(tuning, tried, means, best(means, metric)))
    return choices


def _mean(values: Iterable[float]) -> float:
    """The mean over seeds; a run that diverged, or never got there, counts as one that cannot be chosen."""
    numbers = list(values)
    mean = None if any(map(math.isinf, numbers)) else estimate(numbers)
    return mean.mean if mean else math.nan


def chosen(whole: Results) -> Results:
    """The results as if their runs had chosen: the cases with the best values stay."""
    choices = choices_of(whole)
    return replace(whole, cases=[one.best for one in choices], choices=choices) if choices else whole


def check_measured(choices: Sequence[TunedChoice]) -> None:
    """Refuse to choose by what finished runs have not measured."""
    for choice in choices:
        by = choice.tuning.by
        done = [run for case in choice.tried for run in case.runs.values() if run.state == "done"]
        if done and all(math.isnan(run.final(metric)) for run in done for metric in by.metrics):
            raise ConfigError([f"tune.by: the runs of {choice.best.case.name} have measured no {by.text}"])
