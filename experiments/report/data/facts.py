"""What the head of a report says: what was run, where, when, and how far it came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.variants import Run
from commeff.experiments.run.store import FINISHED

SHOWN = 6  # different values that are written out
PACKAGES = ("torch", "commeff", "python")


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Names and values: task, model, workers, steps, seeds, machine, versions, dates."""
    runs = analysis.runs
    found = {
        "task": _values(run.setting("task") for run in runs),
        "model": _values(run.setting("task.model") for run in runs),
        "data": _values(_data(run) for run in runs),
        "workers": _values(_workers(run) for run in runs),
        "steps": _values(run.setting("steps") for run in runs),
        "seeds": _values(str(seed) for seed in sorted({run.seed for run in runs})),
        "machine": _values(_machine(run) for run in runs),
        "versions": ", ".join(_versions(runs)),
        "commit": _values(_environment(run, "commit") for run in runs),
        "runs ended": _dates([_ended(run) for run in runs]),
    }
    return [(name, value) for name, value in found.items() if value]


def standing(analysis: Analysis) -> str:
    """Whether the grid is finished, in a sentence."""
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
    shown, more = different[:SHOWN], len(different) - SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _workers(run: Run) -> str | None:
    """Workers, and whether processes of their own stand for them."""
    workers = run.setting("workers")
    return workers and (f"{workers} on {run.processes} processes" if run.processes > 1 else f"{workers} simulated")


def _data(run: Run) -> str | None:
    partition, alpha = run.setting("task.partition"), run.setting("task.alpha")
    return partition and (f"{partition}, alpha {alpha}" if partition == "dirichlet" else partition)


def _environment(run: Run, key: str) -> str | None:
    value = run.record.environment.get(key)
    return None if value is None else str(value)


def _versions(runs: Sequence[Run]) -> list[str]:
    """Each package with its version, or with all it had."""
    known = {name: [_environment(run, name) for run in runs] for name in PACKAGES}
    return [f"{name} {' / '.join(dict.fromkeys(filter(None, found)))}" for name, found in known.items() if any(found)]


def _machine(run: Run) -> str | None:
    cpu, cores, gpus = (_environment(run, key) for key in ("cpu", "cores", "gpus"))
    if cpu is None:
        return None
    threads = run.setting("threads") or _environment(run, "threads")
    words = [cpu, f"{cores} cores", *([gpus] if gpus not in (None, "none") else [])]
    words += [f"{threads} thread{'s' if threads != '1' else ''} a run"] if threads else []
    return ", ".join(word for word in words if word)


def _ended(run: Run) -> float | None:
    time, waits = run.record.status.get("time"), run.record.state in ("running", "queued")
    return float(time) if isinstance(time, (int, float)) and not waits else None


def _dates(times: Iterable[float | None]) -> str:
    """From the first to the last, in universal time, so that the same store gives the same report everywhere.

    >>> _dates([0.0, None, 90000.0])
    '1970-01-01 00:00 to 1970-01-02 01:00 UTC'
    """
    known = sorted(time for time in times if time is not None)
    if not known:
        return ""
    first, last = (f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}" for time in (known[0], known[-1]))
    return f"{first} UTC" if first == last else f"{first} to {last} UTC"
