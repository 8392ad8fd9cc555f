"""The main table, a line a variant, and the notes below it: how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.names import quoted
from commeff.experiments.report.data.quantities import AGREEMENT, MINUS, TIMES, quantity
from commeff.experiments.report.data.rows import DENSE, INSIDE, TableRow, differs_from_best, leader
from commeff.experiments.report.data.summary import at, listed
from commeff.experiments.report.data.variants import count_states
from commeff.experiments.report.data.wallclock import Wallclock
from commeff.experiments.report.write.cells import amounts, differences, estimates, label_of, spread_of, words
from commeff.experiments.report.write.table import Column, Item, Table
from commeff.experiments.report.write.table_wallclock import main_columns
from commeff.require import did_you_mean

DAGGER, DOUBLE_DAGGER = "†", "‡"
QUALITIES = ("val_accuracy", "val_loss", "local_val_accuracy", "local_val_loss")
AMOUNTS = {  # heading, unit, scale
    "wire_bytes": ("wire", "MB, counted", 1e-6),
    "payload_bytes": ("payload", "MB, counted", 1e-6),
    "seconds": ("seconds", "measured", 1.0),
    "simulated_seconds": ("seconds", "simulated", 1.0),
    "consensus_distance": ("consensus", "distance", 1.0),
    **{name: (quantity(name).heading, "MB, counted", 1e-6) for name in INSIDE if name.endswith("bytes")},
    **{name: (quantity(name).heading, "s, measured", 1.0) for name in INSIDE if name.endswith("seconds")},
}
ASIDE = ("to_target", "consensus_distance")  # of the first table, on the page alone
ROOM = 170.0  # letters of a line of a table on a screen of 1366 pixels
GAP = 2.4  # letters between columns
NAME = (12.0, 36)  # letters: what stands before a variant's name, and the longest name in one line


def main_tables(
    analysis: Analysis, clocks: Sequence[Wallclock] = (), columns: Sequence[str] | None = None
) -> list[Table]:
    """The main table and, where there are more columns than a page is wide, tables of the others.

    One line a variant, what matters most first: how good, how far from the baseline, what it sent, how long.

    Parameters
    ----------
    columns : what the main table has behind the variants; unless given, as much as there is room for.
    """
    usual = {name: _column(analysis, name) for name in _usual(analysis)}
    usual = {name: column for name, column in usual.items() if any(item.value is not None for item in column.items)}
    first = {name: _column(analysis, name) for name in columns or ()}
    brief = [*first] or [name for name in usual if name not in (*ASIDE, *analysis.grid.over)]
    others = _lines(analysis, {name: column for name, column in usual.items() if name not in first})
    names = words("variant", [row.variant.name for row in analysis.rows])
    pale = [bool(row.variant.chosen.doubts) for row in analysis.rows]  # what no headline may name
    tables = []
    for number, group in enumerate([first, *others] if first else others or [{}]):
        shown = {"variant": names}
        for name, column in group.items():
            printed = bool(columns) or column.heading != "seconds"
            shown[name] = replace(column, brief=number > 0 or name in brief, printed=printed)
        dense = analysis.half_dense if number == 0 or analysis.half_dense.keys() & group.keys() else {}
        for name, column in shown.items():
            items = [replace(item, quiet=item.quiet or dim) for item, dim in zip(column.items, pale, strict=True)]
            shown[name] = replace(column, items=items + ([_reference(name, dense)] if dense else []))
        tables.append(
            Table(
                f"more{'' if number == 1 else number}" if number else "main",
                "More columns" if number else f"Results: {quantity(analysis.metric).words} after training",
                [*shown.values()],
                () if number else how_to_read(analysis),
                pd.DataFrame() if number else main_data(analysis, clocks),
            )
        )
    return tables


def check_columns(analysis: Analysis, columns: Sequence[str]) -> None:
    """Refuse names of columns that this store does not have."""
    measured = [*dict.fromkeys(name for record in analysis.records for name in record.numbers)]
    usual = [name for name in _usual(analysis) if name in measured or name not in INSIDE]
    names = [*dict.fromkeys((*usual, *_labels(analysis), *measured))]
    if not columns:
        raise ValueError(f"--columns must be of {', '.join(names)}, got none: the table would be empty; leave it out")
    for name in columns:
        if name not in names:
            raise ValueError(
                f"--columns must be of {', '.join(names)}, got {name!r}: no run has it{did_you_mean(name, names)}"
            )


def _usual(analysis: Analysis) -> list[str]:
    """The columns that nobody needs to ask for, the most important first."""
    metric, twin = analysis.metric, analysis.metric.replace("val_", "test_", 1)
    others = [name for name in ("test_accuracy", "test_loss") if name != twin]
    names = [*analysis.grid.over, "seeds", metric, "difference", *([twin] if twin.startswith("test") else [])]
    names += ["wire_bytes", "saving", "to_target", "seconds", "consensus_distance", "payload_bytes"]
    if analysis.measured("simulated_seconds"):
        names.insert(names.index("seconds"), "simulated_seconds")
    return [*dict.fromkeys([*names, *INSIDE, *others, *QUALITIES])]


def _labels(analysis: Analysis) -> list[str]:
    return [*dict.fromkeys(key for variant in analysis.variants for key in variant.labels)]


def _lines(analysis: Analysis, columns: Mapping[str, Column]) -> list[dict[str, Column]]:
    """Columns in groups, each as wide as the page at most."""
    before, longest = NAME
    start = before + min(longest, max(len(row.variant.name) for row in analysis.rows))
    groups: list[dict[str, Column]] = []
    room = 0.0
    for name, column in columns.items():
        letters = max(map(len, (column.heading, column.under, *(item.plain for item in column.items))))
        wide = GAP + letters + 2.0 * any(item.half for item in column.items)
        if not groups or wide > room:
            groups.append({})
            room = ROOM - start
        groups[-1][name] = column
        room -= wide
    return groups


def _column(analysis: Analysis, name: str) -> Column:
    """A column by its name."""
    rows, metric = analysis.rows, analysis.metric
    if name == "seeds":
        return Column("seeds", "done", [_seeds(row) for row in rows])
    if name == "difference":
        ratio = any(row.difference and row.difference.log for row in rows)
        under = "points, paired" if quantity(metric).unit == "%" else "ratio, paired" if ratio else "paired"
        items = [
            item
            if row.difference is None or row.difference.n == row.finals[metric].n
            else replace(item, mark=f"{item.mark} (n={row.difference.n})")  # over fewer seeds than the variant has
            for item, row in zip(differences([row.difference for row in rows], quantity(metric)), rows, strict=True)
        ]
        return Column(f"{'/' if ratio else MINUS} baseline", under, items)
    if name == "saving":
        return Column("saving", "on the wire", amounts([row.saving for row in rows], suffix=TIMES))
    if name == "to_target":
        costs = [row.reached.costs.get("wire_bytes") if row.reached else None for row in rows]
        items = [
            Item(row.reached.short, quiet=True) if row.reached and row.reached.short else item
            for item, row in zip(amounts([cost.mean if cost else None for cost in costs], 1e-6), rows, strict=True)
        ]
        return Column("to target", "MB wire", items)
    if name in AMOUNTS:
        heading, under, scale = AMOUNTS[name]
        means = [final.mean if (final := row.finals.get(name)) else None for row in rows]
        if name == "consensus_distance":  # workers that rounding alone holds apart agree
            means = [0.0 if mean is not None and mean < AGREEMENT else mean for mean in means]
        return Column(heading, under, amounts(means, scale))
    if name in analysis.grid.over:
        items = [label_of(row.variant.chosen.values.get(name)) for row in rows]
        return Column(name.split(".")[-1], "chosen", items)
    if name in _labels(analysis):
        items = [label_of(row.variant.labels.get(name)) for row in rows]
        return Column(name.split(".")[-1], "", items, words=any(item.value is None for item in items))
    of = quantity(name)
    variants = [row.variant for row in rows]
    top = leader(variants, name) if name == metric or name.endswith(("accuracy", "loss")) else None
    items = estimates([variant.final(name) for variant in variants], of, variants.index(top) if top else None)
    if name == metric:
        tied = [differs_from_best(row) is False for row in rows]
        items = [replace(item, mark=DAGGER * tie + item.mark) for item, tie in zip(items, tied, strict=True)]
    return Column(of.heading, of.unit, items)


def main_data(analysis: Analysis, clocks: Sequence[Wallclock] = ()) -> pd.DataFrame:
    """The numbers of the main table, with all their digits, and what is modelled on each cluster."""
    lines = []
    for row in analysis.rows:
        line: dict[str, object] = {"variant": row.variant.name, **row.variant.labels, **row.variant.chosen.values}
        for name, final in row.finals.items():
            line |= spread_of(name, final)
        over = "over" if row.difference and row.difference.log else "minus"
        line |= spread_of(f"{analysis.metric}_{over}_baseline", row.difference)
        line |= {"wire_saving": row.saving, "baseline": row.baseline.name if row.baseline else None}
        line |= {f"runs_{state}": count for state, count in count_states(row.variant.runs).items()}
        for modelled in clocks:
            line |= main_columns(modelled.place.name, modelled.of(row.variant))
        lines.append(line)
    return pd.DataFrame(lines)


def _seeds(row: TableRow) -> Item:
    """How many of the chosen runs are done, and how the others stand."""
    states = count_states(row.variant.runs)
    done, planned = states.pop("done", 0), len(row.variant.runs)
    others = ", ".join(f"{count} {state}" for state, count in states.items())
    return Item(
        f"{done}" if done == planned else f"{done} of {planned}" + (f": {others}" if others else ""), value=done
    )


def _reference(column: str, dense: Mapping[str, float | None]) -> Item:
    """A cell of the 16-bit dense baseline: its bytes are counted, its accuracy is nobody's guess."""
    if column == "variant":
        return Item(f"{DENSE['method']} with 16-bit numbers", mark=DOUBLE_DAGGER, quiet=True)
    if column == "saving":
        return amounts([dense[column]], suffix=TIMES)[0]
    return amounts([dense[column]], 1e-6)[0] if column in dense else Item("")


def how_to_read(analysis: Analysis) -> list[str]:
    """How to read the main table."""
    notes = [
        "Means over the seeds that are done, ± half the width of the 95 % interval (Student's t); one seed has none. "
        "± beside a difference is that of the differences, taken seed by seed over the seeds that both have."
    ]
    if logs := dict.fromkeys(name for row in analysis.rows for name, final in row.finals.items() if final.log):
        notes.append(
            f"{listed([quantity(name).words for name in logs])} span much: means are geometric, intervals (from, to) "
            "are those of logarithms, and instead of a difference there is the geometric mean of ratios, seed by seed."
        )
    notes.append(_ranked(analysis))
    if any(differs_from_best(row) is False for row in analysis.rows):
        notes.append(
            f"{DAGGER} The interval of its difference to the best holds zero: these seeds do not tell the two apart, "
            "which does not make them equal."
        )
    if analysis.baselines:
        names = ", ".join(quoted(variant.name) for variant in analysis.baselines)
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
    bold += at(analysis.part)
    if len({variant.task for variant in analysis.variants}) > 1:
        bold += ". These are several tasks: numbers compare within one only"
    return f"{line}. {bold}."
