"""What every case of a table came to: its observations by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.faults import TableError
from commeff.experiments.reproduce.quantities import Observation

if TYPE_CHECKING:
    from commeff.experiments.reproduce.table import PublishedTable

COSTS = ("seconds", "exposed_seconds", "payload_bytes", "wire_bytes")  # in which runs with equal models may differ


@dataclass(frozen=True, eq=False)
class CaseResult:
    """A case and its observations by seed; those that are missing have not been run, or have failed."""

    case: Case
    seen: Mapping[int, Observation]
    labels: Mapping[str, str] = field(default_factory=dict)  # those that differ among cases, formulas worked out

    def values(self, measure: Callable[[Observation], float]) -> dict[int, float]:
        """A number of each seed; one that is none is left out."""
        found = {seed: measure(observation) for seed, observation in self.seen.items()}
        return {seed: value for seed, value in found.items() if not math.isnan(value)}

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
    tried : with the runs that chose.
    means : of the validation metric over their seeds, NaN where a run diverged.
    pick : the place of the best.
    """

    tried: Sequence[CaseResult]
    means: Sequence[float]
    pick: int

    @property
    def best(self) -> CaseResult:
        """The case that was chosen."""
        return self.tried[self.pick]


@dataclass(frozen=True, eq=False)
class Results:
    """All cases of a table, those that were not chosen left out; `warnings` are about what was chosen."""

    table: PublishedTable
    cases: Sequence[CaseResult]
    warnings: Sequence[str] = ()
    missing: Sequence[str] = ()
    choices: Sequence[TunedChoice] = ()

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
        labels = {key: result.case.label(key) for key in keys}
        return self.one(name, {key: value for key, value in labels.items() if value is not None})
