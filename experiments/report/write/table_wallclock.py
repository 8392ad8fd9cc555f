"""Tables of modelled wall-clock: speed-ups on all clusters, and on each where a step's time goes. Nothing is measured.

Modelled seconds have columns of their own, marked so, and stand in no table with measured ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from commeff.experiments.escape import file_name
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.quantities import TIMES, between, significant
from commeff.experiments.report.data.wallclock import VariantSeconds, Wallclock
from commeff.experiments.report.draw.wallclock import assumptions
from commeff.experiments.report.write.cells import NOTHING, amounts, cost, seeds, spread_of, word, words
from commeff.experiments.report.write.table import Column, Item, Table

LOSES = (
    "Loses: bandwidths of the link between workers, all else on the cluster as it is, with which the variant takes "
    "longer to the target than the baseline; between 1 Mb/s and 10 Tb/s, found by bisection."
)
PARTS = {"step": "step", "computing": "compute", "exposed": "exposed", "hidden": "hidden"}  # heading: in the CSV file


def speed_up_table(analysis: Analysis, clocks: Sequence[Wallclock]) -> Table | None:
    """A line a variant, a speed-up for each cluster."""
    if not any(clock.of(row.variant).speed_up for clock in clocks for row in analysis.rows):
        return None
    base = analysis.baselines[0].name
    columns = [words("variant", [row.variant.name for row in analysis.rows])]
    data: list[dict[str, object]] = [{"variant": row.variant.name} for row in analysis.rows]
    for clock in clocks:
        name, rows = clock.place.name, [clock.of(row.variant) for row in analysis.rows]
        columns.append(Column(name, f"{TIMES} {base}, modelled", [_ratio(row) for row in rows]))
        columns.append(Column("loses", f"as {name}", [_loses(row) for row in rows], words=True, brief=False))
        for line, row in zip(data, rows, strict=True):
            line |= _gain(row, f"_{name}")
    notes = [
        f"Modelled, not measured: seconds of {base} to the target over those of the variant, the geometric mean "
        "over seeds, where all of both reach it, with the 95 % interval of the ratios paired by seed (Student's t on "
        f"their logarithms). {assumptions(analysis, clocks)}",
        LOSES,
    ]
    return Table("modelled", "Modelled speed-up", columns, notes, pd.DataFrame(data))


def cluster_table(analysis: Analysis, clock: Wallclock) -> Table:
    """One cluster: the parts of a step, and seconds to the target."""
    names, rows = [row.variant.name for row in analysis.rows], [clock.of(row.variant) for row in analysis.rows]
    parts = [_parts(row) for row in rows]
    reached = [NOTHING if row.reason else seeds(len(row.steps_to_target), row.ended) for row in rows]
    columns = [
        words("variant", names),
        *(
            Column(heading, "ms, modelled", amounts([seconds[f"modelled_{name}_seconds"] for seconds in parts], 1e3))
            for heading, name in PARTS.items()
        ),
        Column("reached", "seeds", reached, printed=False),
        Column("to target", "s, modelled", [_seconds(row) for row in rows]),
        Column("speed-up", "modelled", [_ratio(row) for row in rows]),
        Column("loses", "link bandwidth", [_loses(row) for row in rows], words=True, printed=False),
        words("remarks", [f"not modelled: {row.reason}" if row.reason else row.note for row in rows], printed=False),
    ]
    data = [
        {"variant": variant, **seconds, "reached": len(row.steps_to_target), "of": row.ended}
        | {"modelled_seconds_to_target": mean.mean if (mean := row.to_target) else None}
        | {"modelled_seconds_to_target_interval": mean.half if mean else None}
        | _gain(row)
        | {"not_modelled": row.reason or None, "note": row.note or None}
        for variant, row, seconds in zip(names, rows, parts, strict=True)
    ]
    name, link = clock.place.name, clock.place.cluster.inter
    notes = [
        f"Modelled, not measured. {name}: {8e-9 * link.bandwidth:.3g} Gb/s and {1e6 * link.latency:.3g} us between "
        f"nodes of {clock.place.cluster.per_node}. A step is computing and exposed communication; hidden is what "
        f"computing covers. {assumptions(analysis, [clock])}",
        LOSES,
    ]
    return Table(f"modelled_{file_name(name)}", f"Modelled on {name}", columns, notes, pd.DataFrame(data))


def main_columns(place: str, row: VariantSeconds) -> dict[str, object]:
    """What the main table's CSV and JSON have of a variant on a cluster."""
    mean = row.to_target
    line: dict[str, object] = {f"modelled_seconds_to_target_{place}": mean.mean if mean else None}
    return line | _gain(row, f"_{place}") | {f"not_modelled_{place}": row.reason or None}


def _gain(row: VariantSeconds, place: str = "") -> dict[str, object]:
    """What CSV files have of a variant's speed-up, and of where it loses."""
    name = f"modelled_speed_up{place}"
    return {name: None, **spread_of(name, row.speed_up), f"loses{place}": row.loses or None}


def _ratio(row: VariantSeconds) -> Item:
    ratio = row.speed_up
    if row.reason:
        return Item("not modelled", quiet=True)
    if ratio is None:
        return word(row.short, quiet=True)
    text = f"{significant(ratio.mean)}{TIMES}"
    return Item(text, value=ratio.mean, mark=between(ratio), quiet=not ratio.tells)


def _loses(row: VariantSeconds) -> Item:
    return word(row.loses, quiet=row.loses == "never")


def _parts(row: VariantSeconds) -> dict[str, float | None]:
    """The parts of a step in the columns of the CSV file."""
    seconds: dict[str, float | None] = dict.fromkeys(PARTS.values())
    if line := row.timeline:
        exposed, hidden = (sum(kinds.values()) for kinds in (line.exposed_by_kind, line.hidden_by_kind))
        seconds = {"step": line.step, "compute": line.compute, "exposed": exposed, "hidden": hidden}
    return {f"modelled_{name}_seconds": value for name, value in seconds.items()}


def _seconds(row: VariantSeconds) -> Item:
    if row.to_target:
        return cost(row.to_target)
    return word("" if row.reason else row.short, quiet=True)
