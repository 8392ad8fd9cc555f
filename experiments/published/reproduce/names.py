"""Names by which a table calls numbers, compared with what its cases have: before anything is imported or runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from commeff.experiments.config.schema import ConfigError, did_you_mean
from commeff.experiments.published.reproduce.constants import PARTS
from commeff.experiments.published.reproduce.formulas import CONSTANTS
from commeff.experiments.published.reproduce.grammar import check_call
from commeff.experiments.published.reproduce.language import (
    Call,
    Expression,
    LanguageError,
    Literal,
    Name,
    parse_formula,
    walk,
)
from commeff.experiments.published.reproduce.recorded import recorded, tasks_of
from commeff.experiments.published.reproduce.table import PublishedTable

Spoken = tuple[str, str]  # the part of a file, and a metric that it names


def check_names(table: PublishedTable) -> None:
    """Refuse metrics that no case has, and names that stand for two things.

    Raises
    ------
    ConfigError : with all of them.
    """
    names, every = recorded(table)
    faults = [*_calls(table), *_twice(table, names)]
    variants = [*dict.fromkeys(case.name for case in table.full_cases)]
    for part, call in _onsets(table):
        if not (isinstance(call.arguments[1], Name) and call.arguments[1].text in variants):
            faults.append(f"{part}: onset wants a variant beside which it is, one of {', '.join(variants)}")
    known = [*names, *table.derived]
    who = f"no run of {' or '.join(tasks_of(table))} measures" if table.measure == "training" else "nothing here has"
    for part, name in _spoken(table):
        near = did_you_mean(name, sorted(known))
        if name in table.let and name not in known:
            faults.append(f"{part}: {name!r} is a formula of let, which stands alone there; write it out")
        elif name not in known and (every or near):
            faults.append(f"{part}: {who} {name!r}{near or '; there are ' + ', '.join(known)}")
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))


def _quantities(table: PublishedTable) -> Iterator[tuple[str, Expression]]:
    """What the table shows, prints or draws: quantities of a metric, or names of `let`."""
    for text in table.show:
        yield "show", parse_formula(text)
    for number, printed in enumerate(table.numbers, 1):
        yield f"numbers: entry {number}: of", printed.of
    if table.figure is not None:
        yield "figure.y", table.figure.y


def _calls(table: PublishedTable) -> Iterator[str]:
    for part, tree in _quantities(table):
        try:
            for inner in walk(tree):
                if isinstance(inner, Call):
                    check_call(inner)
        except LanguageError as error:
            yield f"{part}: {error}"


def _onsets(table: PublishedTable) -> Iterator[tuple[str, Call]]:
    heights = [(f"claims: entry {number}", y) for number, y in _heights(table)]
    for part, tree in (*_quantities(table), *heights):
        if isinstance(tree, Call) and tree.function == "onset" and len(tree.arguments) == 3:
            yield part, tree


def _heights(table: PublishedTable) -> Iterator[tuple[int, Expression]]:
    """What slopes are of, without its logarithm."""
    for number, claim in enumerate(table.claims, 1):
        for part in walk(claim.tree):
            if isinstance(part, Call) and part.function == "slope":
                y = part.arguments[0]
                yield number, y.arguments[0] if isinstance(y, Call) and y.function in ("log", "log2") else y


def _spoken(table: PublishedTable) -> Iterator[Spoken]:
    for part, tree in _quantities(table):
        if not (isinstance(tree, Name) and tree.text in table.let):
            yield from ((part, name) for name in _metrics(tree))
    for name, tree in table.derived.items():
        own = [inner.text for inner in walk(tree) if isinstance(inner, Name) and inner.text not in CONSTANTS]
        yield from ((f"metrics.{name}", metric) for metric in own)
    for number, claim in enumerate(table.claims, 1):
        part = f"claims: entry {number}"
        yield part, claim.of
        for call in (inner for inner in walk(claim.tree) if isinstance(inner, Call)):
            yield from ((part, of.text) for key, of in call.named.items() if key == "of" and isinstance(of, Name))
            if call.function == "equal" and isinstance(last := call.arguments[-1], Name) and len(call.arguments) == 3:
                yield from [(part, last.text)] * (last.text != "bits")
    for number, y in _heights(table):
        if not (isinstance(y, Name) and y.text in table.let):
            yield from ((f"claims: entry {number}", name) for name in _metrics(y))
    if table.figure is not None and not _is_number(table, table.figure.x):
        yield "figure.x", table.figure.x


def _metrics(tree: Expression) -> Iterator[str]:
    """The names in a quantity of a metric; not the variant that onset is beside."""
    if isinstance(tree, Name):
        yield tree.text
    elif isinstance(tree, Call):
        inner = tree.arguments[:1] if tree.function == "onset" else tree.arguments
        for part in (*inner, *tree.named.values()):
            yield from _metrics(part)
    elif not isinstance(tree, Literal):
        yield from _metrics(tree.left)
        yield from _metrics(tree.right)


def _is_number(table: PublishedTable, name: str) -> bool:
    """Whether it can be the number of a case that is no metric: a formula, a label, a setting or a part's constant."""
    own = any(case.label(name) is not None or name in case.settings for case in table.full_cases)
    return own or name in table.let or name.partition(".")[0] in PARTS


def _twice(table: PublishedTable, names: Sequence[str]) -> Iterator[str]:
    variants = {case.name for case in table.full_cases}
    for part, found in (("let", table.let), ("metrics", table.derived)):
        yield from (f"{part}.{name} has the name of a variant; call it otherwise" for name in found if name in variants)
    for name in table.derived:
        if name in names:
            yield f"metrics.{name} has the name of a metric that is recorded; call it otherwise"
        if name in table.let:
            yield f"metrics.{name} has the name of a formula of let; call it otherwise"
