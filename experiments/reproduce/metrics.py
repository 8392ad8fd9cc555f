"""What runs and measurements record, by name: known before anything is imported that could record it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.schema import built_in
from commeff.experiments.reproduce.reading import TableError
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.experiments.reproduce.table import PublishedTable

Metric = Callable[[Mapping[str, Any]], Any]
SECONDS = ("modelled_seconds", "modelled_hours")  # on the table's cluster
BYTES = ("sent_bytes", "received_bytes")  # by a worker
AXES = ("pipeline", "shard", "tensor")  # inside a worker
FINALS = (  # of every run, or of some, beside what its task measures
    *("step", "steps", "workers", "lr", "start_loss", "parameter_norm"),
    *("exposed_seconds", "simulated_seconds", "events", "held_bytes", *SECONDS, *BYTES),
    *(f"{axis}_{what}" for axis in AXES for what in ("bytes", "exposed_seconds")),
)
TESTED = ("test_loss", "test_accuracy")  # of tasks that hold samples back
TRAINING = "training"
MEASURED: Mapping[str, tuple[str, ...]] = {
    "consensus": ("rho", "gap", "degree", "rate", "exact_after"),
    "compression": ("error", "heavy_error", "bias", "mean", "up", "bits", "bound", "omega", "delta"),
    "gossip": ("rate", "drift", "worst", "per_digit", "bytes_per_digit"),
    "low_rank": ("error", "best", "bound", "heavy_error", "heavy_best", "heavy_bound"),
    "modelled": (*SECONDS, "step_seconds", "communication_ms", "exposed_ms"),
}


def tasks_of(table: PublishedTable) -> list[str]:
    """The tasks of the cases, as the file names them."""
    return sorted({str(case.settings.get("task", "digits")) for case in (*table.full_cases, *table.cases)})


def recorded(table: PublishedTable) -> tuple[list[str], bool]:
    """The names of numbers that cases have, and whether these are all: a task that is not ours may record any."""
    if table.measure in MEASURED:
        return [*MEASURED[table.measure]], True
    from commeff.experiments.grid.plan.expand import OTHERS, measured_by_name

    tasks = tasks_of(table)
    every = {*tasks} <= {*built_in("task")}
    own = dict.fromkeys(name for task in (tasks if every else built_in("task")) for name in measured_by_name(task))
    tested = () if {*tasks} <= OTHERS.keys() else TESTED
    return [*own, *tested, *(f"local_{name}" for name in own), *FINALS], every


def check_metric(table: PublishedTable, name: str) -> None:
    """Refuse a metric that no case has; a task that is not ours may record anything but what looks like a slip."""
    names, every = table.recorded
    known = [*names, *table.derived]
    near = did_you_mean(name, sorted(known))
    if name not in known and (every or near):
        who = f"no run of {' or '.join(tasks_of(table))} measures" if table.measure == TRAINING else "nothing here has"
        raise TableError(f"{who} {name!r}{near or '; there are ' + ', '.join(known)}")


def check_derived(table: PublishedTable) -> None:
    """Refuse metrics that are functions of what no case has, or that have the name of another."""
    for name, function in table.derived.items():
        if name in table.recorded[0]:
            raise TableError(f"metrics: {name} has the name of a metric that is recorded; call it otherwise")
        try:
            function(_Numbers(table))
        except (ArithmeticError, ValueError) as error:
            if isinstance(error, TableError):
                raise


class _Numbers(dict[str, float]):
    """Stands for the metrics of a run before there is one."""

    def __init__(self, table: PublishedTable) -> None:
        self._table = table

    def __missing__(self, name: str) -> float:
        self._table.check_metric(name)
        return math.nan


def derive(function: Metric, numbers: Mapping[str, float]) -> float:
    """A metric that is a function of recorded ones: NaN where one is missing, or where these have no such number.

    >>> derive(lambda m: m["a"] / m["b"], {"a": 1.0, "b": 4.0}), derive(lambda m: 1 / m["a"], {"a": 0.0})
    (0.25, nan)
    """
    try:
        found = function(numbers)
    except (KeyError, ArithmeticError, ValueError):
        return math.nan
    return math.nan if isinstance(found, complex) else float(found)
