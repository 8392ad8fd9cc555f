"""Claims judged: what a table's `claims` say of the results, and what is wrong with them before there are any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from commeff.experiments.config.contained import contained
from commeff.experiments.escape import one_line
from commeff.experiments.reproduce.cases import check_place
from commeff.experiments.reproduce.metrics import check_derived
from commeff.experiments.reproduce.reading import TableError, check_one_of
from commeff.experiments.reproduce.results import CaseResult, Results
from commeff.experiments.reproduce.scales import SCALES
from commeff.experiments.reproduce.table import PublishedTable
from commeff.experiments.reproduce.tuning import chosen
from commeff.experiments.reproduce.values import TablePlace
from commeff.experiments.reproduce.verdicts import UNTOLD, Judgement, holm

PAPER, THEORY, US = WHOSE = ("paper", "theory", "us")


@dataclass(frozen=True)
class Claim:
    """A sentence of a table with its verdict; `because` says why it fails, `scale` from which on it is judged."""

    verdict: Judgement
    text: str
    source: str
    because: str
    scale: str
    of: str


def claim(
    verdict: Judgement, text: str, source: str = "", because: str = "", scale: str = "reduced", of: str = PAPER
) -> Claim:
    """What a table claims.

    Parameters
    ----------
    verdict : a comparison, such as gap(r.d2) < gap(r.dsgd).
    text : the claim in a sentence.
    source : the section, theorem, table or figure that says so.
    because : why it fails, once that is known.
    scale : the smallest at which it is judged.
    of : "paper" claims it; or "theory" does, a bound or an identity that nothing but a bug can break; or "us".
    """
    if not isinstance(verdict, Judgement):
        raise TableError(f"a claim compares measured values, such as a < b or within(a, b, 0.1), got {verdict!r}")
    check_one_of(WHOSE, of=of)
    check_one_of(SCALES, scale=scale)
    return Claim(verdict, one_line(text), one_line(source), one_line(because), scale, of)


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim at one place; `p` is corrected for the number of claims of its page that chance has a part in."""

    claim: Claim
    where: Mapping[str, str]
    verdict: str
    reason: str
    p: float | None = None


def judge(results: Results) -> list[ClaimVerdict]:
    """The verdicts of all claims of a table; those of one sentence stand together.

    p-values are corrected by Holm's method over the page; checked theory, which is no discovery, is left out of that.
    """
    found = [*_claims(results)]
    corrected = holm([one.verdict.p if one.of != THEORY else None for one in found])
    judged = []
    for one, corrected_p in zip(found, corrected, strict=True):
        p = one.verdict.p if one.of == THEORY else corrected_p
        judged.append(ClaimVerdict(one, one.verdict.place, one.verdict.state(p), one.verdict.reason, p))
    first = [*dict.fromkeys(one.claim.text for one in judged)]
    return sorted(judged, key=lambda one: first.index(one.claim.text))


def _claims(results: Results) -> Iterator[Claim]:
    """The claims of a table; those of a later scale have no verdict yet."""
    if results.table.claims is None:
        return
    with contained():
        for one in results.table.claims(TablePlace(results)):
            if not isinstance(one, Claim):
                raise TableError(f"claims must yield claim(...), got {one!r}")
            early = SCALES.index(results.table.scale) < SCALES.index(one.scale)
            later = Judgement(UNTOLD, f"judged from scale {one.scale} on", place=one.verdict.place)
            yield replace(one, verdict=later) if early else one


def rehearse(table: PublishedTable) -> None:
    """Go through all that a table says once without results: names that nothing has and errors of its code are told.

    Raises
    ------
    TableError : or whatever the table's own code raises.
    """
    results = chosen(Results(table, [CaseResult(case, {}, {}) for case in table.cases]))
    tuned = [table.tune.by] if table.tune else []
    for quantity in (*table.show, *(printed.of for printed in table.numbers), *table.drawn, *tuned):
        table.check_quantity(quantity)
    check_derived(table)
    for number, printed in enumerate(table.numbers, 1):
        check_place(table.full_cases, printed.variant, printed.where, f"numbers: entry {number}: ")
    _check_ranks(table)
    judge(results)
    for result in results.cases:
        for quantity in (*table.show, *table.drawn):
            if not quantity.metrics:
                quantity.number(results, result, table.seeds[0])
    for printed in table.numbers:
        theirs = [printed.worked_out(table, each.case) for each in results.named(printed.variant, printed.where)]
        if table.tolerance.kind == "relative" and table.tolerance.by > 0 and 0 in theirs:
            raise TableError(
                f"numbers: a share of a printed 0 is 0, got a tolerance of {table.tolerance.by:.4g} relative; give an "
                "absolute one, or make it a claim, such as within(a, 0, 0.1)"
            )


def _check_ranks(table: PublishedTable) -> None:
    """Refuse to rank the only number of a quantity, which is always in its place."""
    if table.tolerance.kind != "rank":
        return
    groups = [] if table.tune is None else table.tune.groups(table.full_cases)
    cases = [table.full_cases[group[0]] for group in groups] or table.full_cases
    for place, one in enumerate(table.numbers, 1):
        peers = [number for number in table.numbers if number.of.text == one.of.text]
        if sum(case.name == each.variant and case.has(each.where) for each in peers for case in cases) < 2:
            raise TableError(
                f"numbers: entry {place} is the only one of its quantity, which tolerance kind rank finds in its place "
                "whatever it is; print another, or give kind relative or absolute"
            )
