"""`commeff bench shard`: what a step at each stage of ZeRO costs one of two ranks, beside torch's FSDP2 with AdamW.

CPU time is that of all ranks. Memory is what torch allocates: the most during a step above what lies between two steps,
in units of the 4 Psi bytes of all parameters; also where two workers, each on two ranks, average gradients. What gloo
allocates itself is not counted.
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
    return {"FSDP2": stepping(shape, mesh, plain, ADAMW(plain.parameters()))} | of_stages(shape, mesh)


def of_stages(shape: Shape, mesh: Mesh) -> dict[str, Step]:
    """A step of parallel SGD at each stage, by name."""
    steps = {}
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


def units_of(steps: dict[str, Step], shape: Shape) -> dict[str, float]:
    """`most_memory` of the rank that has most, in units, to three digits: a loss has some bytes of its own."""
    most = torch.tensor([most_memory(step) for step in steps.values()], dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    most /= 4 * sum(p.numel() for p in shape.model().parameters())
    return {name: round(value, 3) for name, value in zip(steps, most.tolist(), strict=True)}


def run(timed: Shape = TIMED, filled: Shape = FILLED, rounds: int = 11) -> list[MeasuredRatio]:
    """The figures: CPU time of all ranks, and the memory of the rank that holds most."""

    def measure(_: Communicator) -> tuple[dict[str, list[float]], dict[str, float]]:
        mesh = Mesh(shard=RANKS)
        seconds = time_interleaved(contestants(timed, mesh), rounds)
        summed = torch.tensor([*seconds.values()], dtype=torch.float64)
        dist.all_reduce(summed)
        return dict(zip(seconds, summed.tolist(), strict=True)), units_of(contestants(filled, mesh), filled)

    def measure_two(_: Communicator) -> dict[str, float]:
        return units_of(of_stages(filled, Mesh(worker=2, shard=RANKS)), filled)

    seconds, units = on_forks(RANKS, RANKS, measure)
    subject, memory = f"Llama, {RANKS} shard ranks", "most memory in a step above that between steps, in 4 Psi bytes"
    two = on_forks(2 * RANKS, 2 * RANKS, measure_two)
    return [
        *(
            MeasuredRatio(subject, f"{name} / FSDP2, CPU time", ratio(seconds, name, "FSDP2"), at_most=MOST_SECONDS)
            for name in [*seconds][1:]
        ),
        *(
            MeasuredRatio(subject, f"{name}, {memory}", value, at_most=None if name == "FSDP2" else MOST_MEMORY)
            for name, value in units.items()
        ),
        *(
            MeasuredRatio(f"{subject}, 2 workers", f"{name}, {memory}", value, at_most=MOST_MEMORY)
            for name, value in two.items()
        ),
    ]
