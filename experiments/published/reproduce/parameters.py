"""The `parameters` of a table: keys of its grid that are no settings, for formulas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.published.reproduce.cases import Case
from commeff.experiments.published.reproduce.language import (
    Expression,
    LanguageError,
    Name,
    Statement,
    parse_formula,
    walk,
)


def unused_parameters(
    raw: Mapping[str, Any],
    parameters: Sequence[str],
    cases: Sequence[Case],
    trees: Iterable[Expression | Statement],
    also: str,
) -> Iterator[str]:
    """A line for each parameter that no entry of the grid has, or that no formula names.

    Parameters
    ----------
    raw : the file: formulas of its settings are looked for everywhere in it.
    parameters : of the file.
    cases : of the whole table.
    trees : all its other formulas and claims.
    also : the horizontal axis of its figure.
    """
    labels = dict.fromkeys(key for case in cases for key in case.labels)
    used = {part.text for tree in (*trees, *_formulas(raw)) for part in walk(tree) if isinstance(part, Name)} | {also}
    for name in parameters:
        if name not in labels:
            yield f"parameters: no entry of the grid has {name!r}{did_you_mean(name, labels)}"
        elif name not in used:
            yield f"parameters: no formula names {name!r}, which so changes nothing; use it or leave it out"


def _formulas(node: Any) -> Iterator[Expression]:
    """Of settings, wherever they stand."""
    if isinstance(node, Mapping):
        node = [*node.values()]
    if isinstance(node, list):
        for each in node:
            yield from _formulas(each)
    elif isinstance(node, str) and node.startswith("="):
        with suppress(LanguageError):
            yield parse_formula(node[1:])
