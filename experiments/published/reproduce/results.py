"""What every case of a table came to: its observations by seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from commeff.experiments.published.reproduce.cases import Case
from commeff.experiments.published.reproduce.language import LanguageError
from commeff.experiments.published.reproduce.quantities import Observation
from commeff.experiments.published.reproduce.table import PublishedTable

Seeds = Mapping[int, float]
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

    def same(self, other: CaseResult, seed: int, metric: str) -> bool:
        """Whether all recorded numbers of a seed (bits), or one metric at the end, are those of another case."""
        one, two = self.seen[seed], other.seen[seed]
        if metric != "bits":
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
        own = [found for found in self.cases if found.case.name == name]
        return [found for found in own if all(found.case.label(k) in (None, v) for k, v in where.items())]

    def one(self, name: str, where: Mapping[str, str]) -> CaseResult | None:
        """The only such case; None if this scale has none."""
        found = self.named(name, where)
        if len(found) > 1:
            keys = [k for k in self.table.swept if len({f.case.label(k) for f in found}) > 1]
            raise LanguageError(
                f"{name} is {len(found)} cases, which differ in {', '.join(keys)}: write `each: {keys}` "
                f"or {name}[{keys[0]}={found[0].case.label(keys[0])}]"
            )
        return found[0] if found else None
