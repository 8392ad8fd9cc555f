"""The tables of a page in LaTeX, each what `\\input` expects: `measured.tex`, and `numbers.tex` beside printed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.write import latex
from commeff.experiments.report.write.cells import cost, explained, words
from commeff.experiments.report.write.page import write_text
from commeff.experiments.report.write.table import Column, Item, Table
from commeff.experiments.reproduce.cases import listing
from commeff.experiments.reproduce.judging import Comparison
from commeff.experiments.reproduce.results import Results
from commeff.experiments.reproduce.verdicts import over_seeds


def write(results: Results, compared: Sequence[Comparison], out: Path) -> list[Path]:
    """Write the tables; their paths."""
    tables = [_measured(results), *([_numbers(compared, results)] if compared else [])]
    return [write_text(out / f"{table.name}.tex", latex.file(explained(table))) for table in tables]


def _measured(results: Results) -> Table:
    """Every case, with what the table shows: means down to the second digit of half the interval over seeds."""
    table, cases, keys = results.table, results.cases, results.labels
    shown = [
        Column(of.text, items=[_item(of.by_seed(results, case), len(case.runs)) for case in cases]) for of in table.show
    ]
    columns = [
        words("variant", [table.called(case.case.name) for case in cases]),
        *(words(key, [table.called(case.labels.get(key, "")) for case in cases]) for key in keys),
        Column("seeds", items=[Item(f"{len(case.runs)}") for case in cases]),
        *shown,
    ]
    return Table("measured", table.title, columns, ["Means over seeds, ± half a 95 % interval."])


def _numbers(compared: Sequence[Comparison], results: Results) -> Table:
    """Printed numbers beside ours."""
    names = [f"{results.table.called(one.printed.variant)} {listing(one.where)}".strip() for one in compared]
    columns = [
        words("variant", names),
        words("of", [one.printed.of.text for one in compared]),
        Column("theirs", items=[_printed(one) for one in compared]),
        Column("ours", items=[_item(one.measured, one.runs) for one in compared]),
        words("verdict", [one.verdict for one in compared]),
    ]
    return Table("numbers", f"{results.table.title}: printed numbers beside ours", columns)


def _printed(one: Comparison) -> Item:
    if math.isnan(one.published):
        return Item("–")
    return Item(f"{one.published:.6g}", "" if one.printed.spread is None else f"{one.printed.spread:g}")


def _item(values: Mapping[int, float], runs: int) -> Item:
    """A mean with its interval; in words where not all runs have such a number."""
    mean = estimate(values.values()) if len(values) == runs and all(map(math.isfinite, values.values())) else None
    return Item(over_seeds(values, runs)) if mean is None else cost(mean)
