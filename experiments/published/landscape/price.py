"""What a method sends, holds and takes on a cluster, by its profile: for the evidence's own model, or for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from commeff.cluster.modelled import modelled
from commeff.compressors import Layout
from commeff.experiments.config.clusters import Place
from commeff.experiments.config.method_words import strategy
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.landscape.evidence import TaskEvidence
from commeff.experiments.published.landscape.spec import Landscape
from commeff.experiments.report.data.computing import square_matrices
from commeff.profiling import profile

BYTES = 4  # of a number
BESIDE = ("task", "workers", "steps", "seed", "evaluate_every", "checkpoint_every", "data_dir")  # keys of no method


@dataclass(frozen=True, eq=False)
class MethodPrice:
    """Of one method.

    Attributes
    ----------
    payload_bytes, wire_bytes : of a worker and a step of the run, in the mean, from its profile.
    state : what a worker remembers between steps, in numbers a parameter.
    asynchronous : whether its workers wait for nobody; here all are equally fast, so that it is its synchronous twin.
    note : what its profile says where it is not exact.
    finish : (steps,) modelled seconds until the slowest worker has ended each step.
    """

    payload_bytes: float
    wire_bytes: float
    state: float
    asynchronous: bool
    note: str
    finish: np.ndarray

    @property
    def seconds(self) -> float:
        """Of the run, modelled."""
        return self.at(len(self.finish))

    def at(self, steps: int) -> float:
        """Modelled seconds of so many steps."""
        return float(self.finish[steps - 1])


def method_price(
    field: Landscape, evidence: TaskEvidence, method: str, place: Place, compute: float, workers: int, layout: Layout
) -> MethodPrice:
    """Profile a method as landscape.yaml sets it, and model as many steps as its runs had.

    Parameters
    ----------
    compute : seconds of a worker's minibatch.
    workers, layout : of whom, and of which model; they need not be the evidence's.

    Raises
    ------
    ValueError
        If it cannot be built for so many workers, profiled or priced.
    """
    built, config = strategy(method_words(field.words(evidence.task, method)), workers)
    sent = profile(built, layout, workers, collective=config["collective"])
    seconds = built.accumulate * compute
    steps = evidence.task.steps
    run = modelled(sent, place.holding(workers), steps=steps, compute=seconds)
    operations = [operation for step in range(steps) for operation in sent.operations(step)]
    payload, wire = (sum(getattr(op, name) for op in operations) / steps for name in ("payload_bytes", "wire_bytes"))
    state = sum(sent.memory_bytes.values()) / (BYTES * layout.d)
    asynchronous = built.waits_for is not None
    return MethodPrice(payload, wire, state, asynchronous, sent.note, run.by_step)


def method_words(settings: Mapping[str, Any]) -> list[str]:
    """The words of a method, without those of a run.

    >>> method_words({"task": "digits", "task.batch": 4, "steps": 9, "method": "local_sgd", "method.period": 8})
    ['method=local_sgd', 'method.period=8']
    """
    return [f"{key}={text(value)}" for key, value in settings.items() if key.split(".")[0] not in BESIDE]


def model_layout(evidence: TaskEvidence, parameters: float | None = None) -> Layout:
    """The layout of the evidence's model, or of square matrices that have so many parameters together, about."""
    return Layout.of(evidence.shapes.items()) if parameters is None else square_matrices(parameters)


def minibatch_seconds(
    field: Landscape, evidence: TaskEvidence, place: Place, parameters: float | None = None, counted: bool = False
) -> tuple[float, str]:
    """Seconds of computing a worker's minibatch, and where they come from, in words.

    Parameters
    ----------
    counted : FLOPs decide also on the page's clusters, whose seconds are else those of landscape.yaml.

    Raises
    ------
    ValueError
        If the cluster has no peak for 32-bit numbers.
    """
    if place.step_seconds is not None:
        return place.step_seconds, "as given"
    if place.name in field.clusters and parameters is None and not counted:
        return evidence.task.step_seconds, "as landscape.yaml says of one core"
    peak = place.cluster.gpu.peak_flops.get("fp32")
    if peak is None:
        raise ValueError(f"step_seconds must be given for {place.name}, got none: its GPU has no peak for fp32")
    flops = evidence.flops * (1 if parameters is None else parameters / evidence.parameters)
    words = "FLOPs of the measured model" + ("" if parameters is None else ", in proportion to the parameters")
    return flops / (place.efficiency * peak), f"{words}, at {place.efficiency:.0%} of the peak"
