"""`commeff bench tensor`: what a step of a model that is split over two ranks costs a rank, beside torch's DTensor.

CPU time of all ranks, not seconds: they share the processors of one machine. Both split the same layers and keep the
logits split for the loss. DTensor's usual plan has a style for each linear layer, and sums a gradient for each of them;
by sequence, or where it is told to, it feeds those of a half block together, as the library always does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.communicator import Communicator
from commeff.experiments.measure.forks import on_forks
from commeff.experiments.measure.timing import ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.sharding import Mesh, cross_entropy, split

RANKS = 2
LIMIT = 0.7  # of DTensor's CPU time
COLUMNS = ("attention.queries", "attention.keys", "attention.values", "feedforward.gate", "feedforward.widen")
ROWS = ("attention.project", "feedforward.project")


@dataclass(frozen=True)
class Shape:
    """A Llama and its batch."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    inner: int = 352
    context: int = 128
    batch: int = 8
    vocabulary: int = 256

    def model(self) -> Llama:
        """The model, the same at every call."""
        torch.manual_seed(0)
        return Llama(self.vocabulary, self.layers, self.width, self.heads, inner=self.inner)

    def tokens(self) -> Tensor:
        """Tokens, (b, context + 1)."""
        generator = torch.Generator().manual_seed(1)
        return torch.randint(self.vocabulary, (self.batch, self.context + 1), generator=generator)


Contestant = tuple[nn.Module, Callable[[], Tensor]]  # what is trained, and its loss after a backward


def stepping(model: nn.Module, loss: Callable[[], Tensor]) -> Contestant:
    """Forward and backward."""

    def step() -> Tensor:
        model.zero_grad()
        value = loss()
        value.backward()
        return value.detach()

    return model, step


def library(shape: Shape, mesh: Mesh, sequence: bool) -> Contestant:
    """A step of the library."""
    model, tokens, axis = shape.model(), shape.tokens(), mesh.axis("tensor")
    split(model, llama_plan(model), axis, sequence=sequence)
    return stepping(model, lambda: cross_entropy(model(tokens[:, :-1]), tokens[:, 1:], axis))


def dtensor(shape: Shape, mesh: Mesh, sequence: bool, together: bool = True) -> Contestant:
    """A step of DTensor; `together` feeds the linear layers of a half block by one collective."""
    from torch.distributed.tensor import Replicate, Shard, parallel

    model, tokens = shape.model(), shape.tokens()
    between = Shard(1) if sequence else Replicate()
    plan: dict[str, parallel.ParallelStyle] = {
        "tokens": parallel.RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
        "head": parallel.ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False),
    }
    for block in (f"blocks.{layer}" for layer in range(shape.layers)):
        plan |= {f"{block}.{name}": parallel.ColwiseParallel() for name in COLUMNS}
        plan |= {f"{block}.{name}": parallel.RowwiseParallel(output_layouts=between) for name in ROWS}
        for half, others in {"attention": (None,), "feedforward": ()}.items() if together else ():  # beside x: a mask
            plan[f"{block}.{half}"] = parallel.PrepareModuleInput(
                input_layouts=(between, *others), desired_input_layouts=(Replicate(), *others)
            )
    if sequence:
        plan |= {name: parallel.SequenceParallel() for name, _ in model.named_modules() if name.endswith("norm")}
    parallel.parallelize_module(model, mesh.devices["tensor"], plan)

    def step() -> Tensor:
        model.zero_grad()
        with parallel.loss_parallel():
            value = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            value.backward()
        return value.detach()

    return model, step


def contestants(shape: Shape, mesh: Mesh) -> dict[str, Contestant]:
    """All contestants, by name, on ranks that share a model."""
    whole, tokens = shape.model(), shape.tokens()
    return {
        "whole": stepping(whole, lambda: F.cross_entropy(whole(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())),
        "ours": library(shape, mesh, sequence=False),
        "DTensor": dtensor(shape, mesh, sequence=False, together=False),
        "DTensor, fed together": dtensor(shape, mesh, sequence=False),
        "ours, sequence": library(shape, mesh, sequence=True),
        "DTensor, sequence": dtensor(shape, mesh, sequence=True),
    }


def run(shape: Shape = Shape(), rounds: int = 11, calls: int = 2) -> list[MeasuredRatio]:
    """The figures, from the CPU time of all ranks, of forward and backward; Llama has 0.9 million parameters."""

    def measure(_: Communicator) -> dict[str, list[float]]:
        steps = {name: step for name, (_, step) in contestants(shape, Mesh(tensor=RANKS)).items()}
        seconds = time_interleaved(steps, rounds, calls)
        summed = torch.tensor([*seconds.values()], dtype=torch.float64)
        dist.all_reduce(summed)
        return dict(zip(seconds, summed.tolist(), strict=True))

    seconds, subject = on_forks(RANKS, RANKS, measure), f"Llama, {RANKS} ranks"
    return [
        MeasuredRatio(subject, "a rank / the whole model on one process", ratio(seconds, "ours", "whole")),
        MeasuredRatio(subject, "ours / DTensor", ratio(seconds, "ours", "DTensor"), at_most=LIMIT),
        MeasuredRatio(subject, "ours / DTensor, fed together", ratio(seconds, "ours", "DTensor, fed together")),
        MeasuredRatio(
            subject, "ours / DTensor, by sequence", ratio(seconds, "ours, sequence", "DTensor, sequence"), at_most=LIMIT
        ),
    ]
