"""What a worker computes in a step: FLOPs of a task's model and minibatch, counted in one forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from commeff.compressors import Layout
from commeff.experiments.tasks.shapes import shapes_only
from commeff.replicas import Stacked
from commeff.replicas.stacked import MIXED
from commeff.sharding import LossLinear
from commeff.sharding.precision import PRECISIONS
from commeff.training.task import Task

if TYPE_CHECKING:
    from commeff.cluster.hardware import GPU

PRECISION = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# What a run with this precision multiplies.
MULTIPLIED = {name: PRECISION[kind.dtype] for name, kind in PRECISIONS.items() if kind.dtype} | {MIXED: "bf16"}


@dataclass(frozen=True)
class Work:
    """What a run trains.

    Attributes
    ----------
    flops : of one minibatch of one worker, see `minibatch_flops`.
    layout : of the model's parameters.
    dtype : of them.
    precision : of the numbers that are multiplied; None: one that no GPU has a peak for.
    """

    flops: int
    layout: Layout
    dtype: torch.dtype
    precision: str | None

    @classmethod
    def of(cls, task: Task, precision: str = "fp32") -> Work:
        """What a run of this task computes in this precision, a run's key."""
        with shapes_only():
            one = Stacked(task.model, [0])
        dtype = one.parameters.dtype
        for module in one.models[0].modules():
            if isinstance(module, LossLinear):
                module.eval()  # then no logits are computed anew, which are no FLOPs of the model
        flops = minibatch_flops(one.models[0], task.loss, *(part[0] for part in task.batch(0, [0])))
        return cls(flops, one.layout, dtype, MULTIPLIED.get(precision, PRECISION.get(dtype)))

    def seconds(self, gpu: GPU) -> float:
        """Seconds of one minibatch on a GPU at its peak.

        Raises
        ------
        ValueError
            If there are no FLOPs to count, or the GPU has no peak for the model's numbers.
        """
        if not self.flops:
            raise ValueError("its model has no matrix product or convolution whose FLOPs count; give step_seconds")
        if self.precision is None or self.precision not in gpu.peak_flops:
            words = str(self.dtype).removeprefix("torch.")
            raise ValueError(f"{gpu.name} has no peak for {words}; give step_seconds")
        return self.flops / gpu.peak_flops[self.precision]


def minibatch_flops(model: nn.Module, loss: Callable[..., Tensor], *batch: Tensor) -> int:
    """FLOPs of a forward and backward of one minibatch (b, ...), by a model of `shapes_only`; 0 if it needs numbers.

    Matrix products and convolutions count, an addition and a multiplication as two; what is done element by element
    does not. Attention to t tokens counts in full, also what a causal mask hides: 12 width t a token and layer.

    >>> minibatch_flops(nn.Linear(8, 3, device="meta"), lambda model, x: model(x).sum(), torch.zeros(2, 8))
    192
    """
    from torch.utils.flop_counter import FlopCounterMode

    counter: Any = FlopCounterMode(display=False)
    try:
        with torch.random.fork_rng(devices=[]), counter:
            loss(model, *(part.to("meta") for part in batch)).backward()
    except Exception:  # of whatever kind: if it is one of the task's own, training says so
        return 0
    return int(counter.get_total_flops())


def sample_seconds(task: Task, precision: str, device: str) -> float | None:
    """Seconds of a forward and backward of one sample on a device at its peak; None if no peak is known of it.

    Parameters
    ----------
    task, precision : of a run.
    device : "cpu", or "cuda", this process's GPU.
    """
    if device == "cpu":
        return None
    from commeff.cluster.hardware import gpu_called

    gpu = gpu_called(torch.cuda.get_device_name())
    if gpu is None:
        return None
    try:
        return Work.of(task, precision).seconds(gpu) / len(task.batch(0, [0])[0][0])
    except Exception:  # the run does without
        return None
