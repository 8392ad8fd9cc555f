"""What every case of a table came to: its observations by seed, tuned keys at the value that validation chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from commeff.experiments.published.reproduce.language import LanguageError
from commeff.experiments.published.reproduce.quantities import Observation
from commeff.experiments.published.reproduce.table import Case, PublishedTable
from commeff.experiments.report.data.statistics import best, estimate
from commeff.experiments.report.data.variants import is_number

Seeds = Mapping[int, float]


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


@dataclass(frozen=True, eq=False)
class Results:
    """All cases of a table, those that were not chosen left out; `warnings` are about what was chosen."""

    table: PublishedTable
    cases: Sequence[CaseResult]
    warnings: Sequence[str] = ()
    missing: Sequence[str] = ()

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


def choose(table: PublishedTable, results: Sequence[CaseResult], missing: Sequence[str] = ()) -> Results:
    """The cases at the tuned values whose mean over the seeds is the best on validation data."""
    if table.tune is None:
        return Results(table, results, (), missing)
    over, by = table.tune
    groups: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in results:
        fixed = tuple(sorted((k, v) for k, v in result.case.labels.items() if k != over))
        groups.setdefault((result.case.name, *fixed), []).append(result)
    chosen, warnings = [], []
    for tried in groups.values():
        means = [_mean(each.values(lambda seen: seen.final(by)).values()) for each in tried]
        pick = tried[best([-math.inf if by.endswith("accuracy") and math.isnan(m) else m for m in means], by)]
        chosen.append(pick)
        warnings += _edge(over, tried, pick)
    return Results(table, chosen, warnings, missing)


def _mean(values: Iterable[float]) -> float:
    """Of the seeds; a run that diverged counts as one that cannot be chosen."""
    found = list(values)
    if any(math.isinf(value) for value in found):
        return math.nan
    mean = estimate(found)
    return mean.mean if mean else math.nan


def _edge(over: str, tried: Sequence[CaseResult], pick: CaseResult) -> list[str]:
    texts = [result.labels.get(over, result.case.labels.get(over)) for result in tried]
    values = sorted({float(text) for text in texts if text is not None and is_number(text)})
    own = pick.labels.get(over, pick.case.labels.get(over))
    if len(values) < 2 or own is None or not is_number(own) or float(own) not in (values[0], values[-1]):
        return []
    side = "smallest" if float(own) == values[0] else "largest"
    others = [f"{k}={v}" for k, v in pick.labels.items() if k != over]
    return [f"{' '.join([pick.case.name, *others])}: best {over} {own} is the {side} tried; try more on that side"]
