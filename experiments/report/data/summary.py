"""What a report says in words: what was run, where and how far it came; and what its numbers show.

Findings are written with the care that few seeds ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from commeff.experiments.config.settings import data_skew
from commeff.experiments.report.data.analysis import Analysis, allowance
from commeff.experiments.report.data.names import plugins, quoted
from commeff.experiments.report.data.quantities import (
    TIMES,
    between,
    decimals,
    fixed,
    half_width,
    quantity,
    significant,
    span,
)
from commeff.experiments.report.data.rows import TableRow, nameable
from commeff.experiments.report.data.statistics import Estimate, higher_is_better
from commeff.experiments.report.data.variants import RecordedRun, count_states
from commeff.experiments.run.store import FINISHED

SHOWN = 6  # different values that are written out
FEW = 3  # fewer seeds than this are called too few
YEAR_5000 = 95_617_584_000.0  # seconds; later times are none
PACKAGES = ("torch", "commeff", "python")


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Names and values: task, model, workers, steps, seeds, machine, versions, dates."""
    runs = analysis.runs
    packages = {name: dict.fromkeys(v for run in runs if (v := _environment(run, name))) for name in PACKAGES}
    lines = {
        "task": _values(run.setting("task") for run in runs),
        "model": _values(run.setting("task.model") for run in runs),
        "data": _values(_data(run) for run in runs),
        "workers": _values(_workers(run) for run in runs),
        "steps": _values(run.setting("steps") for run in runs),
        "seeds": _values(str(seed) for seed in sorted({run.seed for run in runs})),
        "machine": _values(_machine(run) for run in runs),
        "versions": ", ".join(f"{name} {' / '.join(versions)}" for name, versions in packages.items() if versions),
        "commit": _values(_environment(run, "commit") for run in runs),
        "plug-ins": _values(words for run in runs for words in plugins(run.record.environment)),
        "runs ended": _dates([_ended(run) for run in runs]),
    }
    return [(name, value) for name, value in lines.items() if value]


def standing(analysis: Analysis) -> str:
    """A sentence on whether the grid is finished."""
    states, total = analysis.states, sum(analysis.states.values())
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    if not states.get("done"):
        yet = " yet" if analysis.unfinished else ""
        return f"No run is done{yet}: of {total}, {counts}. There are no final numbers; curves show how far runs came."
    if analysis.unfinished:
        return f"This grid is unfinished: of {total} runs, {counts}. The numbers are of what is done so far."
    if states.keys() <= {"done"}:
        return "The one run is done." if total == 1 else f"All {total} runs are done."
    good = sum(states.get(state, 0) for state in FINISHED)
    return f"{total} runs: {counts}." + (" Those that failed are listed at the end." if good < total else "")


def _values(values: Iterable[str | None]) -> str:
    """Different values in the order they come, the last ones counted only.

    >>> _values(["8", "16", None, "8"]), _values(map(str, range(9)))
    ('8, 16', '0, 1, 2, 3, 4, 5 and 3 more')
    """
    different = list(dict.fromkeys(value for value in values if value))
    first, more = different[:SHOWN], len(different) - SHOWN
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _workers(run: RecordedRun) -> str | None:
    """Workers, and whether processes of their own stand for them."""
    workers = run.setting("workers")
    return workers and (f"{workers} on {run.processes} processes" if run.processes > 1 else f"{workers} simulated")


def _data(run: RecordedRun) -> str | None:
    skew = data_skew(run.record.config)
    return f"differ from worker to worker: {skew}" if skew else run.setting("task.partition")


def _environment(run: RecordedRun, key: str) -> str | None:
    value = run.record.environment.get(key)
    return None if value is None else str(value)


def _machine(run: RecordedRun) -> str | None:
    cpu, cores, gpus = (_environment(run, key) for key in ("cpu", "cores", "gpus"))
    if cpu is None:
        return None
    threads = run.setting("threads") or _environment(run, "threads")
    words = [cpu, f"{cores} cores", *([gpus] if gpus not in (None, "none") else [])]
    words += [f"{threads} thread{'s' if threads != '1' else ''} a run"] if threads else []
    return ", ".join(word for word in words if word)


def _ended(run: RecordedRun) -> float | None:
    time, waits = run.record.status.get("time"), run.record.state in ("running", "queued")
    return float(time) if isinstance(time, (int, float)) and time < YEAR_5000 and not waits else None


def _dates(times: Iterable[float | None]) -> str:
    """From the first to the last, in universal time, so that the same store gives the same report everywhere.

    >>> _dates([0.0, None, 90000.0])
    '1970-01-01 00:00 to 1970-01-02 01:00 UTC'
    """
    dates = sorted(time for time in times if time is not None)
    if not dates:
        return ""
    first, last = (f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}" for time in (dates[0], dates[-1]))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"


def findings(analysis: Analysis) -> list[str]:
    """The best variant, the cheapest good one, what is clearly worse than the baseline, and who is not compared."""
    measured = [row for row in analysis.rows if analysis.metric in row.finals]
    if len(analysis.rows) < 2 or not measured:
        return []
    good: dict[str, list[TableRow]] = {}  # by task
    for task in dict.fromkeys(row.variant.task for row in measured):
        rows = [row for row in measured if row.variant.task == task]
        named = nameable(row.variant for row in rows)
        good[task] = [row for row in rows if row.variant in named]
    every = [row for rows in good.values() for row in rows]
    left = [row for row in analysis.rows if row not in every and (row in measured or row.variant.chosen.doubts)]
    lines = [_best(task, good[task], analysis) for task in analysis.champions]
    lines += [_cheapest(rows, analysis) for rows in good.values() if rows]
    return [line for line in (*lines, _worse(measured, analysis), _doubtful(left), _few(measured, analysis)) if line]


def _best(task: str, rows: Sequence[TableRow], analysis: Analysis) -> str:
    """The best mean among the variants of a task, and what these seeds do not separate from it."""
    top = next(row for row in rows if row.variant is analysis.champions[task])
    if len(rows) < 2:
        return ""
    column = [row.finals[analysis.metric] for row in rows]
    name, number = quoted(top.variant.name), _number(top.finals[analysis.metric], column, analysis)
    of = f"{len(rows)} variants" + (at(task) if len({row.variant.task for row in analysis.rows}) > 1 else "")
    line = f"Best mean {quantity(analysis.metric).words} of {of}: {name}, {number}."
    alike = [row for row in rows if row.from_best and not row.from_best.tells]
    strange = [row.variant.name for row in rows if row is not top and not row.from_best]
    if alike:
        line += f" {_with(top.variant.name, alike)} are not separated by {_seeds([row.from_best for row in alike])}."
    if strange:
        line += f" {name} has no seed in common with {listed(strange)}: nothing is said of their difference."
    return line


def at(task: str) -> str:
    """Where a sentence says that it holds.

    >>> at("digits"), at("alpha=0.1"), at("")
    (' on digits', ' at alpha=0.1', '')
    """
    return f" {'at' if '=' in task else 'on'} {task}" if task else ""


def _with(name: str, others: Sequence[TableRow]) -> str:
    """A name and others, or their number."""
    names = [row.variant.name for row in others]
    return listed([name, *names]) if len(names) < 4 else f"{quoted(name)} and {listed(names)}"


def _cheapest(good: Sequence[TableRow], analysis: Analysis) -> str:
    """The row that saves most among those whose mean is within a point (or 1 % of the loss) of their baseline's."""
    finals = {row.variant: row.finals[analysis.metric] for row in good}
    sign = 1.0 if higher_is_better(analysis.metric) else -1.0
    close: list[tuple[float, TableRow, str, Estimate, float]] = []
    for row in good:
        if row.baseline in finals and row.difference and row.saving and row.saving > 1:
            allowed = allowance(1.0 if row.difference.log else finals[row.baseline].mean, analysis.metric)
            if sign * row.difference.shift >= -allowed:
                close.append((row.saving, row, row.baseline.name, row.difference, allowed))
    if not close:
        return ""
    saving, row, base, difference, allowed = max(close, key=lambda one: one[0])
    ties = [other for other_saving, other, *_ in close if other is not row and other_saving == saving]
    sends = f"{_with(row.variant.name, ties)} send" if ties else f"{quoted(row.variant.name)} sends"
    again = f"{quoted(row.variant.name)} " * bool(ties)
    near = "one point" if higher_is_better(analysis.metric) else "1 %"
    differences, kind = [other.difference for other in good], "ratio" if difference.log else "difference"
    return (
        f"Fewest bytes with a mean within {near} of {quoted(base)}: {sends} "
        f"{significant(saving)}{TIMES} less on the wire, {again}at a {kind} of "
        f"{_number(difference, differences, analysis, signed=True)}{_caveat(difference, allowed, near)}."
    )


def _caveat(difference: Estimate, allowed: float, near: str) -> str:
    """What the interval of a difference leaves of the claim that it is small."""
    seeds, caveats = _seeds([difference]), []
    if not difference.tells:
        caveats.append("do not separate the two" if difference.n > 1 else "does not separate the two")
    if abs(difference.shift) + (difference.half or 0.0) > allowed:
        caveats.append(f"leave room for more than {near}")
    return f"; {seeds} {' and '.join(caveats)}" if caveats else ""


def _seeds(differences: Sequence[Estimate | None]) -> str:
    """Over how many seeds differences were taken.

    >>> _seeds([Estimate(0.1, None, 1)]), _seeds([Estimate(0.1, 0.2, 3), Estimate(0.1, 0.2, 5), None])
    ('1 seed', '3 to 5 seeds')
    """
    counts = [difference.n for difference in differences if difference]
    return f"{span(counts)} seed{'s' if max(counts) > 1 else ''}"


def _worse(measured: Sequence[TableRow], analysis: Analysis) -> str:
    sign = 1.0 if higher_is_better(analysis.metric) else -1.0
    told = [(row.variant.name, row.difference.shift) for row in measured if row.difference and row.difference.tells]
    worse = [name for name, shift in told if sign * shift < 0]
    return f"Worse than the baseline by more than the interval: {listed(worse)}." if worse else ""


def _doubtful(left: Sequence[TableRow]) -> str:
    """Which variants are named neither best nor cheapest, and why."""
    reasons = []
    for variant in (row.variant for row in left):
        done = f"{count_states(variant.runs).get('done', 0)} of {len(variant.runs)} seeds done"
        reasons.append(f"{quoted(variant.name)} ({variant.chosen.doubts or done})")
    return f"Named neither best nor cheapest: {_values(reasons)}." if reasons else ""


def _few(measured: Sequence[TableRow], analysis: Analysis) -> str:
    least = min(row.finals[analysis.metric].n for row in measured)
    seeds = f"{least} seed{'s' if least > 1 else ''}"
    return f"Some variants have {seeds} only: too few to tell small differences from noise." if least < FEW else ""


def _number(value: Estimate, column: Sequence[Estimate | None], analysis: Analysis, signed: bool = False) -> str:
    """A number of the main table, with the decimals that its column has there."""
    of = quantity(analysis.metric)
    if value.log:
        return significant(value.mean) + TIMES * signed + between(value)
    places = decimals(column, of)
    unit = " points" if signed and of.unit == "%" else " %" if of.unit == "%" else ""
    half = "" if value.half is None else f" ± {half_width(value, of, places)}"
    return f"{fixed(value.mean * of.scale, places, signed)}{half}{unit}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence; of many their number.

    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdef"))
    ('a', 'a, b and c', '6 others')
    >>> listed(["top-k, 10 %", "psgd"])
    '“top-k, 10 %” and psgd'
    """
    names = [*map(quoted, names)]
    if len(names) > 4:
        return f"{len(names)} others"
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
