"""`commeff bench shard`: what a step at each stage of ZeRO costs one of two ranks, beside torch's FSDP2 with AdamW.

CPU time is that of all ranks. Memory is what torch allocates: the most during a step above what lies between two steps,
in units of the 4 Psi bytes of all parameters. What gloo allocates itself is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from commeff import DistributedOptimizer, methods
from commeff.communicator import Communicator
from commeff.experiments.measure.forks import on_forks
from commeff.experiments.measure.timing import ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.tensor import RANKS, Shape
from commeff.sharding import Mesh

STAGES = (0, 1, 2, 3)
MOST_SECONDS, MOST_MEMORY = 1.0, 2.0  # of FSDP2's CPU time; in units of 4 Psi bytes
ADAMW = partial(torch.optim.AdamW, lr=1e-3)
TIMED = Shape(width=256, inner=704, context=64)  # 3.3 million parameters
FILLED = Shape(layers=6, width=512, inner=1408, context=16, batch=2)  # 19.5 million, and small activations

Step = Callable[[], Tensor]


def stepping(shape: Shape, mesh: Mesh, model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """A step of training by this rank's share of the batch; gives its loss."""
    tokens = shape.tokens().chunk(RANKS)[mesh.coordinates["shard"]]

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def contestants(shape: Shape, mesh: Mesh) -> dict[str, Step]:
    """A step of each contestant, by name, on ranks that share a worker."""
    plain = shape.model()
    for unit in (*plain.blocks, plain):
        fully_shard(unit, mesh=mesh.devices["shard"])
    steps = {"FSDP2": stepping(shape, mesh, plain, ADAMW(plain.parameters()))}
    for zero in STAGES:
        model = shape.model()
        optimizer = DistributedOptimizer(model, methods.psgd(ADAMW), mesh=mesh, zero=zero)
        steps[f"zero={zero}"] = stepping(shape, mesh, model, optimizer)
    return steps


def most_memory(step: Step) -> int:
    """Bytes that a step holds at most, above what it finds. It is the third: only what is made here is seen freed."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        for number in range(3):
            with record_function(f"step {number}"):
                step()
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    begin = next(i for i, event in enumerate(events) if event.name() == "step 2")
    held = [*accumulate(event.nbytes() if event.name() == "[memory]" else 0 for event in events)]
    return max(held[begin:]) - held[begin]


def run(timed: Shape = TIMED, filled: Shape = FILLED, rounds: int = 11) -> list[MeasuredRatio]:
    """The figures: CPU time of all ranks, and the memory of the rank that holds most."""

    def measure(_: Communicator) -> tuple[dict[str, list[float]], dict[str, float]]:
        mesh = Mesh(shard=RANKS)
        seconds = time_interleaved(contestants(timed, mesh), rounds)
        summed = torch.tensor([*seconds.values()], dtype=torch.float64)
        dist.all_reduce(summed)
        held = {name: most_memory(step) for name, step in contestants(filled, mesh).items()}
        most = torch.tensor([*held.values()], dtype=torch.float64)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        most /= 4 * sum(p.numel() for p in filled.model().parameters())
        return dict(zip(seconds, summed.tolist(), strict=True)), dict(zip(held, most.tolist(), strict=True))

    seconds, units = on_forks(RANKS, RANKS, measure)
    subject, memory = f"Llama, {RANKS} shard ranks", "most memory in a step above that between steps, in 4 Psi bytes"
    return [
        *(
            MeasuredRatio(subject, f"{name} / FSDP2, CPU time", ratio(seconds, name, "FSDP2"), at_most=MOST_SECONDS)
            for name in [*seconds][1:]
        ),
        *(
            MeasuredRatio(subject, f"{name}, {memory}", value, at_most=None if name == "FSDP2" else MOST_MEMORY)
            for name, value in units.items()
        ),
    ]
