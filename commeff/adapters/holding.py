"""What a process holds of its worker: a whole model, a piece that this package has cut, or one that its user has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.parallelism import Mesh
from commeff.parallelism.borrowed import borrowed
from commeff.parallelism.foreign import AnyMesh, local, named, resharded, workers_of, wrapped
from commeff.parallelism.fully import fully
from commeff.parallelism.precision import lower_frozen
from commeff.parallelism.rows import Dealt, dealt
from commeff.training.evaluation import calibrate

Models = nn.Module | Sequence[nn.Module]


class Holding:
    """The parameters of a process in a row, and its communicator with those that hold the same part of other workers.

    The parameters take the place of the first worker's, buffers and frozen ones too. The arguments are those of
    `DistributedOptimizer`.

    Attributes
    ----------
    parts : list of nn.Module
        The model.
    communicator : Communicator
        Of the worker axis.
    parameters : dict of str to nn.Parameter
        What the process computes with.
    computed : Layout
        Of these.
    dealt : Dealt
        What it updates of them.
    inner : list of Axis
        The axes over which a worker lies, where this package has split it.
    copied : int
        Bytes of parameters whose memory is not the row's, but copied from it after each step.
    once : bool
        Whether backward makes each gradient once a step, to be sent while others are made.
    """

    def __init__(
        self,
        model: Models,
        mesh: AnyMesh | None,
        axis: str,
        group: Any,
        seed: int,
        collective: str,
        zero: int,
        bucket_mb: float,
        dtype: torch.dtype | None,
    ) -> None:
        self.parts = parts_of(model)
        if faults := list(wrapped(self.parts)):
            raise ValueError("\n".join(faults))
        if mesh is not None and group is not None:
            raise ValueError("group must not be given beside mesh, which says who the workers are: leave it out")
        resharded(self.parts)
        workers = workers_of(mesh, axis, self._trainable())
        ours = mesh if isinstance(mesh, Mesh) and workers is None else None
        if workers is not None:
            group = workers.group
            if zero > 1:
                raise ValueError(f"zero must be left out where the user has split the model, got {zero}: it is FSDP's")
            if dtype is not None:
                raise ValueError(f"precision must be left out where the user has split the model, got {dtype}")
        elif ours is not None:
            group = ours.group("worker")
        self.communicator = Communicator.per_process(seed, group, collective)
        if workers is None:
            self._begin_alike(ours)
            if zero == 3 and ours is not None:
                for part in self.parts:
                    fully(part, ours, dtype=dtype)
            self.parameters = self._trainable()
            self.computed = Layout.of([(name, tuple(p.shape)) for name, p in self.parameters.items()])
            self.dealt: Dealt = dealt(self.computed, self.parameters, ours, zero, bucket_mb, dtype)
            lower_frozen(self.parts, dtype)
        else:
            workers.check(self._trainable())
            self._begin_alike(None)
            self.parameters = self._trainable()
            self.dealt = borrowed(self.parameters, self.parts, workers)
            self.computed = self.dealt.layout
        every = named(self.parts, nn.Module.named_parameters)
        self._frozen = [(name, parameter) for name, parameter in every.items() if name not in self.parameters]
        self.inner = list(ours.inner.values()) if ours is not None else []
        self.copied = self.dealt.row.copied
        self.once = workers is None and (ours is None or ours.degrees["pipeline"] == 1)

    def _trainable(self) -> dict[str, nn.Parameter]:
        every = named(self.parts, nn.Module.named_parameters)
        return {name: parameter for name, parameter in every.items() if parameter.requires_grad}

    def thawed(self) -> list[str]:
        """The parameters that were frozen at the beginning and are not any more."""
        return [name for name, parameter in self._frozen if parameter.requires_grad]

    @property
    def buffers(self) -> dict[str, Tensor]:
        """BatchNorm's statistics, for example, by name."""
        return named(self.parts, nn.Module.named_buffers)

    def _begin_alike(self, mesh: Mesh | None) -> None:
        parameters = named(self.parts, nn.Module.named_parameters)
        for tensor in (*parameters.values(), *self.buffers.values()):
            own = local(tensor)
            value = own.contiguous()
            if mesh is not None:
                mesh.axis("shard").broadcast(value)
            self.communicator.transport.broadcast(value)
            if value.data_ptr() != own.data_ptr():
                own.copy_(value)

    def average_into(self, model: Models, batches: Iterable[Any] | None = None) -> None:
        """Make another model of this kind the average one; every process calls it."""
        own = self.dealt.row.parameters
        mean = self.dealt.row.whole(self.communicator.observe(own).to(own)[None])[0]
        resharded(parts := parts_of(model))
        theirs = named(parts, nn.Module.named_parameters)  # by name: some may have been frozen there
        for field in self.computed.fields:
            local(theirs[field.name]).copy_(mean[field.start : field.stop].view(field.shape))
        buffers = named(parts, nn.Module.named_buffers)
        for name, buffer in self.buffers.items():
            buffers[name].copy_(buffer)
        if batches is not None:
            if len(parts) != 1:
                raise ValueError(
                    f"calibrate must be left out for a model in {len(parts)} parts: none of them is what takes inputs"
                )
            inputs = (batch if isinstance(batch, Tensor) else batch[0] for batch in batches)
            calibrate(parts[0], ((each,) for each in inputs))
        self._average(buffers)

    def _average(self, buffers: Mapping[str, Tensor]) -> None:
        for buffer in map(local, buffers.values()):
            if buffer.is_floating_point():
                buffer.copy_(self.communicator.observe(buffer[None]))
            else:
                value = buffer.contiguous()
                self.communicator.transport.broadcast(value)
                buffer.copy_(value)


def parts_of(model: Models) -> list[nn.Module]:
    """A model as its parts."""
    return [model] if isinstance(model, nn.Module) else list(model)
