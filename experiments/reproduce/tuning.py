"""The `tune` of a table: which setting every variant tries values of, and by what, with which seeds one is chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.reproduce.cases import Case, Setting
from commeff.experiments.reproduce.sections import are_seeds, read_settings
from commeff.experiments.reproduce.settable import unknown_keys
from commeff.experiments.reproduce.words import TableQuantity, quantity
from commeff.require import did_you_mean

KEYS = ("over", "by", "seeds", "settings")
CHOSEN_BY = ("val_accuracy", "val_loss", "train_loss")
T = TypeVar("T")


@dataclass(frozen=True)
class Tuning:
    """How values are chosen.

    Attributes
    ----------
    over : the label that every variant tries values of.
    by : a metric on validation data, or a quantity of which less is better, such as the steps to a level.
    seeds : of the runs that are only for choosing; () where all values run with the table's own seeds.
    settings : in which these runs differ; functions know the run that is reported.
    """

    over: str
    by: TableQuantity
    seeds: tuple[int, ...] = ()
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def groups(self, items: Iterable[tuple[Case, T]]) -> list[list[T]]:
        """What belongs to the cases, together where these differ in nothing but the tuned label."""
        found: dict[tuple[Any, ...], list[T]] = {}
        for case, item in items:
            others = sorted((key, value) for key, value in case.labels.items() if key != self.over)
            found.setdefault((case.name, *others), []).append(item)
        return list(found.values())

    def groups_of(self, cases: Iterable[Case]) -> list[list[Case]]:
        """The cases together that differ in nothing but the tuned label."""
        return self.groups((case, case) for case in cases)


def middle_of_each(tuning: Tuning, cases: Sequence[Case]) -> list[Case]:
    """One case of each group: what a scale runs at which nothing is chosen."""
    return [group[len(group) // 2] for group in tuning.groups_of(cases)]


def read_tuning(node: Any, cases: Sequence[Case], seeds: Iterable[int], faults: list[str]) -> Tuning | None:
    """The `tune` of a table; no seed may both choose and be reported.

    Parameters
    ----------
    node : what the table says.
    cases : of the whole table.
    seeds : all seeds of the table.
    faults : takes what is wrong.
    """
    if node is None:
        return None
    by = node.get("by")
    if not {"over", "by"} <= set(node) or (not isinstance(by, TableQuantity) and by not in CHOSEN_BY):
        form = '{"over": "optimizer.lr", "by": "val_loss"}'
        faults.append(f"tune must be as {form}, by one of {CHOSEN_BY} or a quantity, got {node!r}")
        return None
    if isinstance(by, TableQuantity) and by.text not in CHOSEN_BY:
        faults += [f"tune.by must not be of test data, got {by.text}"] * any(m.startswith("test_") for m in by.metrics)
        most = not by.text.startswith("to(") and any(map(higher_is_better, by.metrics))
        faults += [f"tune.by must be val_accuracy, or steps to one, where accuracy decides, got {by.text}"] * most
    faults += [f"tune has no use for {key!r}{did_you_mean(str(key), KEYS)}" for key in node if key not in KEYS]
    over = str(node["over"])
    labels = dict.fromkeys(key for case in cases for key in case.labels)
    if cases and over not in labels:
        near = did_you_mean(over, labels)
        faults.append(f"tune.over names {over!r}, of which no entry of the grid tries values{near}")
    return Tuning(over, quantity(by), _seeds(node, seeds, faults), _settings(node, over, cases, faults))


def unequal(tuning: Tuning, cases: Sequence[Case], scale: str) -> list[str]:
    """A line if variants try different numbers of values at a scale."""
    groups = tuning.groups_of(cases)
    if not groups:
        return []
    least, most = (pick(groups, key=lambda group: len(_values(tuning.over, group))) for pick in (min, max))
    few, many = (_values(tuning.over, group) for group in (least, most))
    if len(few) == len(many):
        return []
    over, (less, more) = tuning.over, (f"({', '.join(values.values()) or 'none'})" for values in (few, many))
    return [
        f"tune: at scale {scale} {least[0].name} tries {len(few)} of {over} {less}, {most[0].name} tries {len(many)} "
        f"{more}: give each method as many"
    ]


def _values(over: str, cases: Sequence[Case]) -> dict[str | float, str]:
    """The different values of a label, and how they are written: 0.1 and 1e-1 are one."""
    texts = [case.labels[over] for case in cases if over in case.labels]
    return {_number(text): text for text in texts}


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def _seeds(node: Mapping[str, Any], seeds: Iterable[int], faults: list[str]) -> tuple[int, ...]:
    own = node.get("seeds")
    if own is None:
        return ()
    if not are_seeds(own):
        faults.append(f"tune.seeds must be a list of different whole numbers, such as [100], got {own!r}")
        return ()
    shared = sorted({*own} & {*seeds})
    if shared:
        faults.append(
            f"tune.seeds must be others than the table's seeds, got {', '.join(map(str, shared))} in both: "
            "a seed that chooses says too much good of what it has chosen; give others, such as [100]"
        )
    return tuple(own)


def _settings(node: Mapping[str, Any], over: str, cases: Sequence[Case], faults: list[str]) -> dict[str, Setting]:
    settings = read_settings(node.get("settings", {}), "tune.settings", faults)
    faults += [f"tune.settings: {fault}" for fault in unknown_keys(settings, cases)]
    if settings and not node.get("seeds"):
        faults.append("tune.settings needs tune.seeds: runs that are also reported are as the table has them")
    own = [key for key in ("seed", over) if key in settings]
    faults += [f"tune.settings must leave {key} out: tune sets it itself" for key in own]
    return settings
