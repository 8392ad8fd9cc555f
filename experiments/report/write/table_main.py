"""The main table: a line a variant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from commeff.experiments.report.data.analysis import (
    DENSE,
    INSIDE,
    Analysis,
    HalfDense,
    TableRow,
    clock,
    differs_from_best,
    leader,
)
from commeff.experiments.report.data.quantities import AGREEMENT, MINUS, TIMES, quantity
from commeff.experiments.report.data.variants import count_states
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.write.cells import (
    amounts,
    differences,
    estimates,
    label_of,
    spread_of,
    transpose,
    word,
)
from commeff.experiments.report.write.table import Column, Item, Table
from commeff.experiments.report.write.table_wallclock import main_columns

DAGGER, DOUBLE_DAGGER = "†", "‡"


def main_table(analysis: Analysis, clocks: Sequence[Wallclock] = ()) -> Table:
    """One line a variant, what matters most first: how good, how far from the baseline, what it sent, how long."""
    rows, metric = analysis.rows, analysis.metric
    columns, cells = [Column("variant", words=True)], [[word(row.variant.name) for row in rows]]

    def add(heading: str, under: str, items: list[Item], brief: bool = True) -> None:
        if any(item.value is not None for item in items):
            columns.append(Column(heading, under, brief=brief))
            cells.append(items)

    def add_quality(name: str, brief: bool) -> None:
        of, top = quantity(name), leader(rows, name)
        items = estimates([row.finals.get(name) for row in rows], of, rows.index(top) if top else None)
        if name == metric:
            items = [_marked(item, row) for item, row in zip(items, rows, strict=True)]
        add(of.heading, of.unit, items, brief)

    for key in analysis.grid.over:
        add(key.split(".")[-1], "chosen", [label_of(row.variant.chosen.values.get(key)) for row in rows], brief=False)
    add("seeds", "done", [_seeds(row) for row in rows])
    add_quality(metric, brief=True)
    if analysis.baselines:
        under = "points, paired" if quantity(metric).unit == "%" else "paired"
        items = differences([row.difference for row in rows], quantity(metric))
        add(f"{MINUS} baseline", under, [_shared(item, row, metric) for item, row in zip(items, rows, strict=True)])
    names = ("test_accuracy", "test_loss", "val_accuracy", "val_loss", "local_val_accuracy", "local_val_loss")
    twin = metric.replace("val_", "test_", 1)
    first, *others = sorted((name for name in names if name != metric), key=lambda name: name != twin)
    add_quality(first, brief=True)
    add("wire", "MB, counted", amounts(_means(rows, "wire_bytes"), 1e-6))
    add("saving", "on the wire", amounts([row.saving for row in rows], suffix=TIMES))
    add("payload", "MB, counted", amounts(_means(rows, "payload_bytes"), 1e-6), brief=False)
    for name in INSIDE:
        of = quantity(name)
        under = {"MB": "MB, counted", "s": "s, measured"}[of.unit]
        add(of.heading, under, amounts(_means(rows, name), of.scale), brief=False)
    if analysis.target:
        costs = [row.reached.costs.get("wire_bytes") if row.reached else None for row in rows]
        items = amounts([cost.mean if cost else None for cost in costs], 1e-6)
        add("to target", "MB wire", [_partly(item, row) for item, row in zip(items, rows, strict=True)], brief=False)
    add("seconds", "measured", amounts(_means(rows, "seconds")))
    add("consensus", "distance", amounts([_agreed(mean) for mean in _means(rows, "consensus_distance")]), brief=False)
    for name in others:
        add_quality(name, brief=False)
    body = transpose(cells)
    if analysis.half_dense:
        body.append(_reference(columns, analysis.half_dense))
    return Table(
        "main",
        f"Results: {quantity(metric).words} after training",
        columns,
        body,
        _notes(analysis),
        main_data(analysis, clocks),
    )


def main_data(analysis: Analysis, clocks: Sequence[Wallclock] = ()) -> pd.DataFrame:
    """The numbers of the main table, with all their digits, and what is modelled on each cluster."""
    lines, clocked = [], main_columns(analysis, clocks) if clocks else [{} for _ in analysis.rows]
    for row, modelled in zip(analysis.rows, clocked, strict=True):
        line: dict[str, object] = {"variant": row.variant.name, **row.variant.labels, **row.variant.chosen.values}
        for name, final in row.finals.items():
            line |= spread_of(name, final)
        line |= spread_of(f"{analysis.metric}_minus_baseline", row.difference)
        line |= {"wire_saving": row.saving, "baseline": row.baseline.name if row.baseline else None}
        line |= {f"runs_{state}": count for state, count in count_states(row.variant.runs).items()}
        lines.append(line | modelled)
    return pd.DataFrame(lines)


def _means(rows: Sequence[TableRow], name: str) -> list[float | None]:
    return [final.mean if (final := row.finals.get(name)) else None for row in rows]


def _agreed(distance: float | None) -> float | None:
    """Workers that rounding alone holds apart agree."""
    return 0.0 if distance is not None and distance < AGREEMENT else distance


def _seeds(row: TableRow) -> Item:
    """How many of the chosen runs are done, and how the others stand."""
    states = count_states(row.variant.runs)
    done, planned = states.pop("done", 0), len(row.variant.runs)
    others = ", ".join(f"{count} {state}" for state, count in states.items())
    return Item(
        f"{done}" if done == planned else f"{done} of {planned}" + (f": {others}" if others else ""), value=done
    )


def _marked(item: Item, row: TableRow) -> Item:
    """A dagger where the best cannot be told from it."""
    return replace(item, mark=DAGGER) if differs_from_best(row) is False else item


def _shared(item: Item, row: TableRow, metric: str) -> Item:
    """A difference over fewer seeds than the variant has says so."""
    if row.difference is None or row.difference.n == row.finals[metric].n:
        return item
    return replace(item, mark=f" (n={row.difference.n})")


def _partly(item: Item, row: TableRow) -> Item:
    """Bytes to the target, with the seeds that got there where not all did."""
    if row.reached is None or row.reached.n == row.reached.of:
        return item
    if row.reached.n == 0:
        return Item("not reached", quiet=True)
    return replace(item, mark=f" ({row.reached.n} of {row.reached.of})", quiet=True)


def _reference(columns: list[Column], dense: HalfDense) -> list[Item]:
    """The line of the 16-bit dense baseline: its bytes are counted, its accuracy is nobody's guess."""
    values = {
        "variant": Item(f"{DENSE['method']} with 16-bit numbers", mark=DOUBLE_DAGGER, quiet=True),
        "payload": amounts([dense.payload_bytes], 1e-6)[0],
        "wire": amounts([dense.wire_bytes], 1e-6)[0],
        "saving": amounts([dense.saving], suffix=TIMES)[0],
    }
    return [values.get(column.heading, Item("")) for column in columns]


def _ranked(analysis: Analysis) -> str:
    """What a line is, and among what the bold number is the best."""
    line = "A line is a variant: one choice of all settings but the seed"
    if analysis.grid.over:
        tuned = " and ".join(analysis.grid.over)
        most = max(len(variant.trials) for variant in analysis.variants)
        line += (
            f" and {tuned}. Of up to {most} values tried of {tuned} a line has the one with the best mean "
            f"{quantity(analysis.by).words} over its seeds, so validation numbers are a little optimistic; what is "
            "measured on test data is not"
        )
    counts = Counter(variant.runs[0].setting("method") or variant.name for variant in analysis.variants)
    several = [f"{method} {count}" for method, count in counts.items() if count > 1]
    bold = f"Bold is the best mean of a column over all {len(analysis.variants)} variants, of those whose seeds are "
    bold += "all done"
    if several and len(counts) > 1:
        bold += f". Some methods have several variants ({', '.join(several)}), and so more chances to be the best"
    if len({variant.task for variant in analysis.variants}) > 1:
        bold += ". These are several tasks: numbers compare within one only"
    return f"{line}. {bold}."


def _notes(analysis: Analysis) -> list[str]:
    """How to read the main table."""
    notes = [
        "Means over the seeds that are done, ± half the width of the 95 % interval (Student's t); one seed has none. "
        "± beside a difference is that of the differences, taken seed by seed over the seeds that both have."
    ]
    notes.append(_ranked(analysis))
    if any(differs_from_best(row) is False for row in analysis.rows):
        notes.append(
            f"{DAGGER} The interval of its difference to the best holds zero: these seeds do not tell the two apart, "
            "which does not make them equal."
        )
    if analysis.baselines:
        names = ", ".join(variant.name for variant in analysis.baselines)
        nearest = "; each variant is compared with the one most like it" if len(analysis.baselines) > 1 else ""
        notes.append(f"Baseline: {names}{nearest}.")
    notes.append(
        "Payload is what a method has to say, wire what the collective moves for it, per worker over the whole run; "
        f"both are counted. {clock(analysis)}"
    )
    if analysis.half_dense:
        notes.append(
            f"{DOUBLE_DAGGER} Counted, not run: {DENSE['method']} with 16-bit numbers would send so much. Nothing is "
            "claimed of its accuracy."
        )
    return notes
