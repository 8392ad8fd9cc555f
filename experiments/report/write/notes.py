"""What stands below the main table: how to read it."""

from __future__ import annotations

from collections import Counter

from commeff.experiments.report.data.analysis import Analysis, clock
from commeff.experiments.report.data.quantities import quantity
from commeff.experiments.report.data.rows import DENSE, differs_from_best
from commeff.experiments.report.data.summary import at

DAGGER, DOUBLE_DAGGER = "†", "‡"


def how_to_read(analysis: Analysis) -> list[str]:
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
