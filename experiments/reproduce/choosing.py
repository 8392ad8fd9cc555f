"""The tuned values: of each variant the one whose mean over the seeds is the best on validation data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.report.data.statistics import best, estimate
from commeff.experiments.reproduce.results import CaseResult, Results, TunedChoice
from commeff.experiments.reproduce.table import PublishedTable
from commeff.experiments.reproduce.tuning import CHOSEN_BY, Tuning


def choose(table: PublishedTable, results: Sequence[CaseResult], missing: Sequence[str] = ()) -> Results:
    """The results of a table whose runs are also those that choose: the cases with the best values stay."""
    if table.tune is None:
        return Results(table, results, (), missing)
    choices = choices_of(table, results)
    return Results(table, [one.best for one in choices], warnings_of(table.tune, choices), missing, choices)


def choices_of(table: PublishedTable, results: Sequence[CaseResult]) -> list[TunedChoice]:
    """One choice for each group of cases; equally good ones are chosen by their order in the file."""
    tuning, whole, choices = table.tune, Results(table, results), list[TunedChoice]()
    if tuning is None:
        return choices
    metric = tuning.by.text if tuning.by.text in CHOSEN_BY else "val_loss"  # of other quantities less is better
    for tried in tuning.groups((result.case, result) for result in results):
        means = [_mean(tuning.by.by_seed(whole, each).values()) for each in tried]
        choices.append(TunedChoice(tried, means, best(means, metric)))
    return choices


def _mean(values: Iterable[float]) -> float:
    """Of the seeds; a run that diverged, or never got there, counts as one that cannot be chosen."""
    found = list(values)
    if any(math.isinf(value) for value in found):
        return math.nan
    mean = estimate(found)
    return mean.mean if mean else math.nan


def check_measured(tuning: Tuning, choices: Sequence[TunedChoice]) -> None:
    """Refuse to choose by what finished runs have not measured."""
    for choice in choices:
        done = [seen for case in choice.tried for seen in case.seen.values() if seen.state == "done"]
        if done and all(math.isnan(seen.final(metric)) for seen in done for metric in tuning.by.metrics):
            raise ConfigError([f"tune.by: the runs of {choice.best.case.name} have measured no {tuning.by.text}"])


def warnings_of(tuning: Tuning, choices: Sequence[TunedChoice]) -> list[str]:
    """A line for each choice at the edge of what was tried, and for each among nothing but diverged runs."""
    return [line for choice in choices for line in _warning(tuning.over, choice)]


def _warning(over: str, choice: TunedChoice) -> list[str]:
    from commeff.experiments.report.data.variants import is_number

    pick = choice.best
    others = [f"{key}={value}" for key, value in pick.labels.items() if key != over]
    who, own = " ".join([pick.case.name, *others]), value_of(over, pick)
    if any(case.seen for case in choice.tried) and all(map(math.isnan, choice.means)):
        return [f"{who}: diverged at all values of {over}; {own} stands for them"]
    values = sorted({float(text) for text in (value_of(over, case) for case in choice.tried) if is_number(text)})
    if len(values) < 2 or not is_number(own) or float(own) not in (values[0], values[-1]):
        return []
    side = "smallest" if float(own) == values[0] else "largest"
    return [f"{who}: best {over} {own} is the {side} tried; try more on that side"]


def value_of(over: str, result: CaseResult) -> str:
    """The value of the tuned label in a case, a formula worked out."""
    return result.labels.get(over, result.case.labels.get(over, ""))
