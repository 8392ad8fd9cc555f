"""Claims judged: what a claim's tree says of the results at each place that it is judged at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from commeff.experiments.published.reproduce.grammar import of_metrics
from commeff.experiments.published.reproduce.judgement import AbsentError, Judgement
from commeff.experiments.published.reproduce.language import Call, LanguageError, Name, walk
from commeff.experiments.published.reproduce.results import Results
from commeff.experiments.published.reproduce.statements import SCALES, Claim
from commeff.experiments.published.reproduce.verdicts import UNTOLD


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim at one value of its `each`."""

    claim: Claim
    where: Mapping[str, str]
    verdict: str
    reason: str


def judge(results: Results, strict: bool = False) -> list[ClaimVerdict]:
    """The verdicts of all claims of a table.

    A claim that these numbers do not suit, as a quotient that is over zero, cannot be told; `strict` raises
    `LanguageError` instead.
    """
    return [verdict for claim in results.table.claims for verdict in _at_each_place(claim, results, strict)]


def check(results: Results) -> None:
    """Refuse claims whose variants are several cases, or whose other names are no numbers, before anything is run.

    Raises
    ------
    LanguageError : with what to write instead.
    """
    for claim in results.table.claims:
        hidden, slopes = of_metrics(claim.tree), set[int]()
        for part in walk(claim.tree):
            if isinstance(part, Call) and part.function == "slope":
                slopes |= {id(inner) for argument in part.arguments for inner in walk(argument)}
            hidden |= {id(value) for value in part.named.values()} if isinstance(part, Call) else set()
        names = [part for part in walk(claim.tree) if isinstance(part, Name) and id(part) not in hidden]
        every = places(claim, results)
        for where in every:
            for name in names:
                if id(name) not in slopes:
                    results.one(name.text, {**where, **dict(name.where)})
        if every and _is_judged(claim, results):
            Judgement(claim, every[0], results).check_constants(names)


def _is_judged(claim: Claim, results: Results) -> bool:
    """Whether the scale is large enough for a claim."""
    return SCALES.index(results.table.scale) >= SCALES.index(claim.least_scale)


def _at_each_place(claim: Claim, results: Results, strict: bool) -> Iterator[ClaimVerdict]:
    for where in places(claim, results):
        if not _is_judged(claim, results):
            yield ClaimVerdict(claim, where, UNTOLD, f"judged from scale {claim.least_scale} on")
            continue
        try:
            verdict, reason = Judgement(claim, where, results).verdict()
        except (AbsentError, LanguageError) as fault:
            if strict and isinstance(fault, LanguageError):
                raise
            verdict, reason = UNTOLD, str(fault)
        yield ClaimVerdict(claim, where, verdict, reason)


def places(claim: Claim, results: Results) -> list[dict[str, str]]:
    """The labels for which a claim is judged one by one: the combinations of `each` that its variants have."""
    named = {part.text for part in walk(claim.tree) if isinstance(part, Name)}
    fixed = dict(claim.where)
    own = [r.case for r in results.cases if r.case.name in named] or [r.case for r in results.cases]
    own = [case for case in own if all(case.label(key) in (None, value) for key, value in fixed.items())]
    axes = [[*dict.fromkeys(str(c.label(key)) for c in own if c.label(key) is not None)] for key in claim.each]
    if not all(axes):
        return [fixed]
    found = [fixed | dict(zip(claim.each, values, strict=True)) for values in product(*axes)]
    there = [where for where in found if any(all(c.label(k) in (None, v) for k, v in where.items()) for c in own)]
    return there or [fixed]
