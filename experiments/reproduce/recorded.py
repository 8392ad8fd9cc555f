"""What runs and measurements record, by name: known before anything is imported that could record it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from commeff.experiments.config.schema import built_in

if TYPE_CHECKING:
    from commeff.experiments.reproduce.table import PublishedTable

SECONDS = ("modelled_seconds", "modelled_hours")  # on the table's cluster
BYTES = ("sent_bytes", "received_bytes")  # by a worker
AXES = ("pipeline", "shard", "tensor")  # inside a worker
FINALS = (  # of every run, or of some, beside what its task measures
    *("step", "steps", "workers", "lr", "start_loss", "parameter_norm"),
    *("exposed_seconds", "simulated_seconds", "events", "held_bytes", *SECONDS, *BYTES),
    *(f"{axis}_{what}" for axis in AXES for what in ("bytes", "exposed_seconds")),
)
TESTED = ("test_loss", "test_accuracy")  # of tasks that hold samples back
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
