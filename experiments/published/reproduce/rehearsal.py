"""A table judged on made-up numbers: what no numbers could suit is refused before anything is run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial

import pandas as pd

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.published.reproduce.beside import of_case
from commeff.experiments.published.reproduce.constants import constant
from commeff.experiments.published.reproduce.formulas import evaluate
from commeff.experiments.published.reproduce.judging import judge
from commeff.experiments.published.reproduce.language import Expression, LanguageError, parse_formula
from commeff.experiments.published.reproduce.numbers import compare
from commeff.experiments.published.reproduce.quantities import Observation
from commeff.experiments.published.reproduce.recorded import recorded
from commeff.experiments.published.reproduce.results import CaseResult, Results
from commeff.experiments.published.reproduce.statements import Claim, PrintedNumber

DRAWS = 20  # of numbers: logarithms and quotients suit some and not others
FALLING = (8.0, 4.0, 2.0, 1.0)  # a curve, times its end
COLUMNS = ("step", "wire_bytes")  # of every curve
Trial = Callable[[Results], object]


def rehearse(results: Results) -> None:
    """Refuse claims, numbers and quantities that no numbers suit.

    Parameters
    ----------
    results : the cases of a table; what they came to is not looked at.

    Raises
    ------
    ConfigError : with all of them.
    """
    drawn = cache(partial(_made_up, results))
    faults = [_fault(part, trial, drawn) for part, trial in _trials(results)]
    own = [f"{results.table.path.name}: {fault}" for fault in dict.fromkeys(faults) if fault]
    if own:
        raise ConfigError(own)


def _fault(part: str, trial: Trial, drawn: Callable[[int], Results]) -> str:
    """Why a trial fails on all draws; "" where one suits."""
    for draw in range(DRAWS):
        try:
            trial(drawn(draw))
        except LanguageError as error:
            fault = f"{part}: {error}"
        else:
            return ""
    return fault


def _trials(results: Results) -> Iterator[tuple[str, Trial]]:
    table = results.table
    for number, claim in enumerate(table.claims, 1):
        yield f"claims: entry {number}", partial(_judged, claim)
    for number, printed in enumerate(table.numbers, 1):
        yield f"numbers: entry {number}", partial(_compared, printed)
    yield from ((f"metrics.{name}", partial(_derived, tree)) for name, tree in table.derived.items())
    yield from (("show", partial(_shown, parse_formula(text))) for text in table.show)
    if table.figure is not None:
        yield "figure.y", partial(_shown, table.figure.y)
        names, every = recorded(table)
        if every and table.figure.x not in (*names, *table.derived):
            yield "figure.x", partial(_placed, table.figure.x)


def _judged(claim: Claim, made: Results) -> None:
    judge(replace(made, table=replace(made.table, claims=(claim,))), strict=True)


def _compared(printed: PrintedNumber, made: Results) -> None:
    found = compare(replace(made, table=replace(made.table, numbers=(printed,))))
    tolerance = made.table.tolerance
    if tolerance.kind == "relative" and tolerance.by > 0 and any(one.theirs == 0 for one in found):
        raise LanguageError(
            f"a share of a printed 0 is 0, got a tolerance of {tolerance.by:.4g} relative; give an absolute one, or "
            "make it a claim, such as a = 0 ± 0.1"
        )


def _shown(tree: Expression, made: Results) -> None:
    for case in made.cases:
        of_case(made, case, tree)


def _derived(tree: Expression, made: Results) -> None:
    for case in made.cases:
        for seen in case.seen.values():
            evaluate(tree, seen.final)


def _placed(x: str, made: Results) -> None:
    """Where the first case stands that has a place on the horizontal axis."""
    for case in made.cases:
        try:
            constant(made.table, case.case, x)
        except LanguageError as error:
            why = error
        else:
            return
    raise why


def _made_up(results: Results, draw: int) -> Results:
    """Any numbers for every metric that the table speaks of: of all sizes, and in every other draw of both signs."""
    names = sorted({*results.table.metrics, *results.table.derived, *COLUMNS})
    cases = [_with_numbers(case, f"{draw} {number}", names, results) for number, case in enumerate(results.cases)]
    return replace(results, cases=cases)


def _with_numbers(case: CaseResult, start: str, names: Sequence[str], results: Results) -> CaseResult:
    dice, both = random.Random(start), int(start.split()[0]) % 2
    ends = {name: 10 ** dice.uniform(-3, 3) * (dice.choice((-1, 1)) if both else 1) for name in names}
    seen = {}
    for seed in results.table.seeds:
        finals = {name: end * dice.uniform(0.99, 1.01) for name, end in ends.items()}
        curve = pd.DataFrame({name: [part * end for part in FALLING] for name, end in finals.items()})
        seen[seed] = Observation(finals, curve.assign(step=range(1, len(FALLING) + 1)))
    return replace(case, seen=seen)
