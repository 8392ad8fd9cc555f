"""A worker's layers in stages on several ranks, through which micro-batches pass (arXiv 1811.06965)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from commeff.communicator.wire.records import broadcast_state
from commeff.sharding.collectives import Arrival, Axis
from commeff.sharding.computation import Batch, Objective, weighed
from commeff.sharding.fit import batch_faults, check_stages
from commeff.sharding.foreign import local, resharded
from commeff.sharding.fully import aside
from commeff.sharding.layers import Layers, keep, ranks_of, whole_shapes
from commeff.sharding.schedules import SCHEDULES
from commeff.sharding.tensor import ColumnLinear


class Pipeline:
    """One worker's model in stages: what each pipeline rank does of its forward and backward.

        mesh = Mesh(worker=2, pipeline=2)                                # 4 processes
        pipeline = Pipeline(model, LLAMA_LAYERS, mesh.axis("pipeline"), schedule="1f1b", micro_batches=4)
        optimizer = DistributedOptimizer(model, strategy, mesh=mesh)     # after the model has lost the others' layers
        loss = pipeline.backward(objective, batch, 1.0)                  # 0 but at the last stage
        optimizer.step()

    A batch costs (b, t, d) numbers over each boundary between stages and direction, whatever the micro-batches; at a
    V's turn, nothing. A tensor that lies at several ranks, such as an embedding tied to the output layer, has a copy at
    each; the gradients of the copies are summed at the end, by an all-reduce of V d numbers.

    Parameters
    ----------
    model : nn.Module
        A whole model, split over tensor ranks before if it is to be; it is left with the layers of this rank.
    layers : Layers
        How its modules follow each other.
    axis : Axis
        The ranks that share the layers.
    schedule : str
        One of `SCHEDULES`: "gpipe", "1f1b", "interleaved", "zero_bubble" (interleaved) or "zbv".
    micro_batches : int
        The parts of a batch, which must be equal.
    vocabulary : Axis, optional
        The ranks that the outputs are split over, along their last dimension.

    Attributes
    ----------
    parameters : dict of str to nn.Parameter
        What this rank trains, by the names of the whole model.
    modules : sequence of nn.Module
        The model, as this rank has it.
    passes : int
        As many as micro-batches, or 0 where the schedule computes gradients of inputs and of parameters apart.
    late : set of str
        Tensors of which this rank has a copy: their gradients are summed when the others are final.

    Raises
    ------
    ValueError
        Layers, stages and micro-batches do not fit; one line for each fault.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Layers,
        axis: Axis,
        *,
        schedule: str = "1f1b",
        micro_batches: int = 1,
        vocabulary: Axis | None = None,
    ) -> None:
        check_stages(model, layers, axis.size, schedule, micro_batches)
        self._kind, self._micro_batches = SCHEDULES[schedule], micro_batches
        self._axis, self.vocabulary = axis, vocabulary
        if axis.size > micro_batches:
            warnings.warn(
                f"micro_batches={micro_batches} are fewer than pipeline={axis.size} ranks, most of which wait for the "
                "others: take more",
                stacklevel=2,
            )
        self._ranks = self._kind.ranks(axis.size)
        held, among = ranks_of(model, layers, self._ranks), whole_shapes(model)
        self._stages = keep(model, layers, self._ranks, axis.rank, self._kind.splits)
        for module in model.modules() if self._kind.splits else ():
            if isinstance(module, ColumnLinear):
                module.__class__ = nn.Linear  # type: ignore[assignment]  # whose backward the schedule itself divides
        self._model = model
        self.modules: Sequence[nn.Module] = (model,)
        copies = {homes: axis.among(homes) for homes in dict.fromkeys(held.values()) if len(homes) > 1}
        self._tied: dict[str, Axis] = {}
        for name, parameter in model.named_parameters():
            parameter.homes = held[name]  # type: ignore[attr-defined]
            parameter.among = among  # type: ignore[attr-defined]
            parameter.tied = any(len(home) > 1 for home in held.values())  # type: ignore[attr-defined]
            if len(held[name]) > 1:
                self._tied[name] = copies[held[name]]
                self._tied[name].broadcast(parameter.detach())
        self.passes = 0 if self._kind.splits else micro_batches
        self.late: Set[str] = self._tied.keys()
        self._boundaries: dict[tuple[torch.Size, ...], tuple[torch.Size, torch.dtype]] = {}
        self._schedules: dict[tuple[Any, ...], Callable[[Batch, Tensor | None], None]] = {}
        self._criterion: Callable[[Any, Tensor], Tensor]

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """As `Computation` has them; stage 3 of ZeRO puts others in their places."""
        return {name: p for name, p in self._model.named_parameters() if p.requires_grad}

    def backward(self, objective: Objective, batch: Batch, weight: float) -> Tensor:
        """Forward and backward of a batch: adds `weight` times the gradient of its mean loss to every parameter's.

        All ranks of the worker call it at once, with the same batch. Gives the mean loss at the last stage, else 0.
        """
        for fault in batch_faults(len(batch[0]), 1, self._micro_batches):
            raise ValueError(fault)
        inputs, targets = objective.inputs_targets(*batch)
        parts, losses = _parts(targets, self._micro_batches), []

        def criterion(outputs: Any, index: Tensor) -> Tensor:
            part = parts[int(index)]
            loss = weighed(objective.criterion(outputs, part), part, targets)
            losses.append(loss.detach())
            return loss * (weight / self._micro_batches)

        self._criterion = criterion
        tied = [(self._model.get_parameter(name), axis) for name, axis in self._tied.items()]
        before = [parameter.grad for parameter, _ in tied]
        for parameter, _ in tied:
            parameter.grad = None  # what comes now is summed over the copies; what was there has been
        indices = torch.arange(self._micro_batches) if self._is_last else None
        self._schedule(inputs)(inputs, indices)
        for (parameter, axis), earlier in zip(tied, before, strict=True):
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            summed = axis.reduce(local(gradient))
            if earlier is None:
                local(gradient).copy_(summed)
            else:
                local(earlier).add_(summed)
            parameter.grad = gradient if earlier is None else earlier
        return torch.stack(losses).mean() if losses else self._first.new_zeros(())

    def forward(self, read: Callable[[Tensor], Tensor], *inputs: Tensor) -> Tensor:
        """What `read` makes of the outputs at the last stage, at all ranks of the worker, which all call it.

        Our own loop: those of torch cannot go forward only over a V. A stage asks for all of its inputs before it
        computes: where a send waits until it is asked for, as with NCCL, two ranks that send both ways would else wait
        for each other.
        """
        shape, dtype = self._boundary(inputs)
        parts, rank = _parts(inputs, self._micro_batches), self._axis.rank
        out: list[Tensor] = []
        sent: list[Any] = []
        with torch.no_grad():
            for number, stage in self._stages.items():
                before, after = (
                    self._ranks[n] if 0 <= n < len(self._ranks) else None for n in (number - 1, number + 1)
                )
                arrivals: list[Arrival] = [x.detach for x in out]
                if before not in (None, rank):
                    places = [torch.empty((len(x), *shape), dtype=dtype, device=x.device) for x, *_ in parts]
                    arrivals = [self._axis.receive(place, before) for place in places]
                out = []
                for i, part in enumerate(parts):
                    x = stage(inputs=part) if before is None else stage(arrivals[i](), inputs=part)
                    if after in (None, rank):
                        out.append(x)
                    else:
                        sent.append(self._axis.send(x, after))
            for work in sent:
                work.wait()
            resharded([*self._stages.values()])
            result = read(torch.cat(out)) if self._is_last else None
            everywhere: Tensor = broadcast_state(result, self._axis.group, self._ranks[-1])
            return everywhere.to(inputs[0].device)

    @property
    def _is_last(self) -> bool:
        return len(self._ranks) - 1 in self._stages

    @property
    def _first(self) -> Tensor:
        return local(next(self._model.parameters()))

    def _schedule(self, inputs: Batch) -> Callable[[Batch, Tensor | None], None]:
        """The step of the schedule for inputs of these shapes, which stay the same through a run."""
        from commeff.sharding.passing import scheduled  # importing it takes as long as importing torch

        key = tuple(x.shape for x in inputs)
        if key not in self._schedules:
            (shape, dtype), count = self._boundary(inputs), self._micro_batches
            passed = torch.empty((len(inputs[0]) // count, *shape), dtype=dtype, device=self._first.device)
            kind = self._kind.few if self._kind.few and count < self._axis.size else self._kind.kind
            self._schedules[key] = scheduled(
                kind, self._stages, self._ranks, self._axis, passed, count, lambda *args: self._criterion(*args)
            )
        return self._schedules[key]

    def _boundary(self, inputs: Batch) -> tuple[torch.Size, torch.dtype]:
        """Shape and type of what goes from stage to stage, for one sample; the first stage tries it out, once."""
        key = tuple(x.shape[1:] for x in inputs)
        if key not in self._boundaries:
            sample = None
            if 0 in self._stages:
                with torch.no_grad(), aside(self._stages[0]):
                    sample = self._stages[0](inputs=[x[:1] for x in inputs], tried=True)
            passed: Tensor = broadcast_state(sample, self._axis.group)
            self._boundaries[key] = passed.shape[1:], passed.dtype
        return self._boundaries[key]


def _parts(batch: Any, count: int) -> list[Any]:
    """Whatever is made of tensors (b, ...), in `count` parts along b."""
    leaves, spec = tree_flatten(batch)
    return [tree_unflatten(part, spec) for part in zip(*(leaf.chunk(count) for leaf in leaves), strict=True)]
