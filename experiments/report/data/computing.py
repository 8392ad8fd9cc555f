"""What a worker computes in a step: FLOPs of the run's own model and minibatch, counted in one forward and backward."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from commeff.cluster.places import Place
from commeff.compressors import Layout
from commeff.experiments.config import build
from commeff.replicas import Stacked
from commeff.replicas.stacked import MIXED
from commeff.sharding.precision import PRECISIONS

SIDE = 4096  # at most, of the square matrices that a model of so many parameters is taken to consist of
PRECISION = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# What a run with this precision multiplies.
MULTIPLIED = {name: PRECISION[kind.dtype] for name, kind in PRECISIONS.items() if kind.dtype} | {MIXED: "bf16"}


@dataclass(frozen=True)
class Work:
    """What a run trains.

    Attributes
    ----------
    flops : of one minibatch of one worker, forward and backward: matrix products and convolutions, an addition and a
        multiplication counting two. What is done element by element is not counted.
    layout : of the model's parameters.
    dtype : of them.
    precision : of the numbers that are multiplied; None: one that no GPU has a peak for.
    """

    flops: int
    layout: Layout
    dtype: torch.dtype
    precision: str | None

    def seconds(self, place: Place) -> float:
        """Modelled seconds of one minibatch on a place: as given, or FLOPs / (efficiency x peak).

        Raises
        ------
        ValueError
            If there are no FLOPs to count, or the GPU has no peak for the model's numbers.
        """
        if place.step_seconds is not None:
            return place.step_seconds
        precision, peaks = self.precision, place.cluster.gpu.peak_flops
        if not self.flops:
            raise ValueError("its model has no matrix product or convolution whose FLOPs count; give step_seconds")
        if precision is None or precision not in peaks:
            words = str(self.dtype).removeprefix("torch.")
            raise ValueError(f"{place.cluster.gpu.name} has no peak for {words}; give step_seconds")
        return self.flops / (place.efficiency * peaks[precision])


def square_matrices(parameters: float) -> Layout:
    """The layout of a model that has so many parameters, about: square matrices, of which nothing else is known.

    >>> square_matrices(25.5e6).d
    25504082
    """
    count = math.ceil(parameters / SIDE**2)
    side = round(math.sqrt(parameters / count))
    return Layout.of([(f"matrix {i}", (side, side)) for i in range(count)])


def work(config: Mapping[str, Any]) -> Work:
    """What a run of this configuration trains; counted once for each task, whatever its seed.

    >>> task = {"_target_": "commeff.experiments.tasks.Digits", "workers": 2, "batch": 8, "hidden": 16}
    >>> work({"task": task}).flops == 2 * (2 * 8 * 64 * 16 + 3 * 8 * 16 * 10)     # no gradient of the input images
    True
    """
    counted = _counted(json.dumps({k: v for k, v in config["task"].items() if k != "seed"}, sort_keys=True))
    return replace(counted, precision=MULTIPLIED.get(config.get("precision", "fp32"), counted.precision))


@cache
def _counted(task_config: str) -> Work:
    task = build.part({"task": json.loads(task_config) | {"seed": 0}}, "task")
    replicas = Stacked(task.model, [0])
    model, batch = replicas.models[0], task.batch(0, [0])
    with torch.random.fork_rng(), FlopCounterMode(display=False) as counter:
        task.loss(model, *(part[0] for part in batch)).backward()
    dtype = replicas.parameters.dtype
    return Work(counter.get_total_flops(), replicas.layout, dtype, PRECISION.get(dtype))
