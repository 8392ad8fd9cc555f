"""What every case of a table came to: its observations by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.reproduce.cases import Case, listing
from commeff.experiments.reproduce.metrics import Metric, derive
from commeff.experiments.reproduce.reading import TableError

if TYPE_CHECKING:
    import pandas as pd

    from commeff.experiments.reproduce.table import PublishedTable

COSTS = ("seconds", "exposed_seconds", "payload_bytes", "wire_bytes")  # in which runs with equal models may differ


@dataclass(frozen=True, eq=False)
class Observation:
    """A case with one seed: numbers at the end, and the curve over steps, which may be empty.

    `comparable`: whether the run has what the table's printed numbers are of.
    """

    finals: Mapping[str, float]
    curve: pd.DataFrame = field(default_factory=lambda: _frame(), repr=False)
    state: str = "done"
    comparable: bool = True

    def final(self, metric: str) -> float:
        """The number at the end; where the run diverged, worse than all others: infinite, of accuracies -infinite."""
        return self.finals.get(metric, math.nan) if self.state != "diverged" else self.worst(metric)

    @staticmethod
    def worst(metric: str) -> float:
        """What lies beyond all bad values.

        >>> Observation.worst("val_loss"), Observation.worst("test_accuracy")
        (inf, -inf)
        """
        return -math.inf if higher_is_better(metric) else math.inf

    def column(self, metric: str) -> pd.DataFrame:
        """The evaluations of a metric, with their steps."""
        return self.curve.reindex(columns=["step", metric]).dropna()

    def with_metrics(self, metrics: Mapping[str, Metric]) -> Observation:
        """With metrics that are functions of recorded ones, at the end and along the curve.

        >>> import pandas as pd
        >>> both = Observation({"a": 3.0, "b": 4.0}, pd.DataFrame({"step": [1], "a": [6.0], "b": [8.0]}))
        >>> found = both.with_metrics({"c": lambda m: (m["a"] ** 2 + m["b"] ** 2) ** 0.5})
        >>> found.final("c"), list(found.curve["c"])
        (5.0, [10.0])
        """
        finals, curve = dict(self.finals), self.curve.copy() if metrics else self.curve
        for name, function in metrics.items():
            finals[name] = derive(function, finals)
            if len(curve):
                curve[name] = [derive(function, row) for row in curve.to_dict("records")]
        return replace(self, finals=finals, curve=curve)


def _frame() -> pd.DataFrame:
    import pandas as pd  # slow, and not needed before anything has run

    return pd.DataFrame()


@dataclass(frozen=True, eq=False)
class CaseResult:
    """A case and its observations by seed; those that are missing have not been run, or have failed."""

    case: Case
    seen: Mapping[int, Observation]
    labels: Mapping[str, str] = field(default_factory=dict)  # those that differ among cases, functions worked out

    @property
    def words(self) -> str:
        """The case in words."""
        return f"{self.case.name} {listing(self.labels)}".strip()

    def label(self, key: str) -> str | None:
        """A label of the case, functions worked out."""
        return self.case.name if key == "name" else self.labels.get(self.case.key(key))

    def same(self, other: CaseResult, seed: int, metric: str | None) -> bool:
        """Whether all recorded numbers of a seed, or one metric at the end, are those of another case."""
        one, two = self.seen[seed], other.seen[seed]
        if metric is not None:
            return one.finals.get(metric) is not None and one.finals.get(metric) == two.finals.get(metric)
        columns = [name for name in one.curve if name not in COSTS and name in two.curve]
        curves = [seen.curve[columns].reset_index(drop=True) for seen in (one, two)]
        return bool(columns) and bool(len(curves[0])) and curves[0].equals(curves[1])


@dataclass(frozen=True, eq=False)
class TunedChoice:
    """The cases of a variant that differ in the tuned label alone, and which of them is the best.

    Attributes
    ----------
    over : the tuned label.
    tried : with the runs that chose.
    means : of the validation metric over their seeds, NaN where a run diverged.
    pick : the place of the best.
    """

    over: str
    tried: Sequence[CaseResult]
    means: Sequence[float]
    pick: int

    @property
    def best(self) -> CaseResult:
        """The case that was chosen."""
        return self.tried[self.pick]

    @property
    def values(self) -> list[str]:
        """Of the tuned label in each case, functions worked out."""
        return [each.labels.get(self.over, each.case.labels.get(self.over, "")) for each in self.tried]

    @property
    def warnings(self) -> list[str]:
        """A line if it is at the edge of what was tried, or among nothing but diverged runs."""
        from commeff.experiments.report.data.variants import is_number

        others = {key: value for key, value in self.best.labels.items() if key != self.over}
        who, own = f"{self.best.case.name} {listing(others)}".strip(), self.values[self.pick]
        if any(case.seen for case in self.tried) and all(map(math.isnan, self.means)):
            return [f"{who}: diverged at all values of {self.over}; {own} stands for them"]
        values = sorted({float(text) for text in self.values if is_number(text)})
        if len(values) < 2 or not is_number(own) or float(own) not in (values[0], values[-1]):
            return []
        side = "smallest" if float(own) == values[0] else "largest"
        return [f"{who}: best {self.over} {own} is the {side} tried; try more on that side"]


@dataclass(frozen=True, eq=False)
class Results:
    """All cases of a table, those that were not chosen left out.

    Attributes
    ----------
    table, cases : whose results.
    choices : of the tuned label.
    missing : a line for each run that is not finished.
    machines : on which they ran.
    """

    table: PublishedTable
    cases: Sequence[CaseResult]
    choices: Sequence[TunedChoice] = ()
    missing: Sequence[str] = ()
    machines: Sequence[Mapping[str, str]] = ()

    @property
    def remarks(self) -> list[str]:
        """A line for each choice that may not be the best, and for each run that is missing."""
        return [*(line for choice in self.choices for line in choice.warnings), *self.missing]

    def named(self, name: str, where: Mapping[str, str]) -> list[CaseResult]:
        """The cases of a variant that have these labels, as far as the variant has them at all."""
        return [found for found in self.cases if found.case.name == name and found.case.has(where)]

    def one(self, name: str, where: Mapping[str, str]) -> CaseResult | None:
        """The only such case; None if this scale has none."""
        found = self.named(name, where)
        if len(found) > 1:
            keys = [k for k in self.table.swept if len({f.case.label(k) for f in found}) > 1]
            first = f"{keys[0].rpartition('.')[2]}={found[0].case.label(keys[0])!r}"
            raise TableError(
                f"{name} is {len(found)} cases, which differ in {', '.join(keys)}: go through r.each({keys[0]!r}), or "
                f"write {name}({first})"
            )
        return found[0] if found else None

    def like(self, result: CaseResult, name: str) -> CaseResult | None:
        """The case of a variant whose labels are those of `result`, as far as its own cases differ in them."""
        own = [each.case for each in self.named(name, {})]
        keys = [key for key in self.table.swept if len({case.label(key) for case in own}) > 1]
        return self.one(name, {key: value for key in keys if (value := result.case.label(key)) is not None})
