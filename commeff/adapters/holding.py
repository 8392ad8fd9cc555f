"""What a process holds of its worker: a model, or a piece that this package or its user has cut; its saved state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from commeff.communicator import Communicator, observe
from commeff.compressors import Layout
from commeff.sharding import Mesh
from commeff.sharding.borrowed import borrowed
from commeff.sharding.foreign import AnyMesh, local, named, placed_like, resharded, unfit, workers_of, wrapped
from commeff.sharding.fully import fully
from commeff.sharding.precision import lower_frozen, named_precision
from commeff.sharding.rows import LocalPart, build_row
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
        The communicator of the worker axis.
    parameters : dict of str to nn.Parameter
        What the process computes with.
    computed : Layout
        The layout of these.
    local_part : LocalPart
        The part of them that it updates.
    inner : list of Axis
        The axes over which a worker lies, where this package has split it.
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
        precision: str,
    ) -> None:
        self.parts = parts_of(model)
        if faults := [*wrapped(self.parts)] or [*unfit(self._trainable())]:
            raise ValueError("\n".join(faults))
        if mesh is not None and group is not None:
            raise ValueError("group must not be given beside mesh, which says who the workers are: leave it out")
        resharded(self.parts)
        workers = workers_of(mesh, axis, self._trainable())
        native_mesh = mesh if isinstance(mesh, Mesh) and workers is None else None
        if workers is not None:
            group = workers.group
            if zero > 1:
                raise ValueError(f"zero must be left out where the user has split the model, got {zero}: it is FSDP's")
            if precision != "fp32":
                raise ValueError(f"precision must be left out where the user has split the model, got {precision}")
        elif native_mesh is not None:
            group = native_mesh.group("worker")
        self.communicator = Communicator(seed=seed, group=group, collective=collective)
        if workers is None:
            self._begin_alike(native_mesh)
            if zero == 3 and native_mesh is not None:
                for part in self.parts:
                    fully(part, native_mesh, precision=precision)
            self.parameters = self._trainable()
            self.computed = Layout.of([(name, tuple(p.shape)) for name, p in self.parameters.items()])
            how = named_precision(precision)
            self.local_part: LocalPart = build_row(self.computed, self.parameters, native_mesh, zero, bucket_mb, how)
            lower_frozen(self.parts, how.dtype)
        else:
            if faults := [*workers.faults(self._trainable())]:
                raise ValueError("\n".join(faults))
            self._begin_alike(None)
            self.parameters = self._trainable()
            self.local_part = borrowed(self.parameters, self.parts, workers)
            self.computed = self.local_part.layout
        every = named(self.parts, nn.Module.named_parameters)
        self._frozen = {name: parameter for name, parameter in every.items() if name not in self.parameters}
        self.inner = list(native_mesh.inner.values()) if native_mesh is not None else []
        self.once = workers is None and (native_mesh is None or native_mesh.degrees["pipeline"] == 1)

    def _trainable(self) -> dict[str, nn.Parameter]:
        every = named(self.parts, nn.Module.named_parameters)
        return {name: parameter for name, parameter in every.items() if parameter.requires_grad}

    @property
    def buffers(self) -> dict[str, Tensor]:
        """BatchNorm's statistics, for example, by name."""
        return named(self.parts, nn.Module.named_buffers)

    def _begin_alike(self, mesh: Mesh | None) -> None:
        parameters = named(self.parts, nn.Module.named_parameters)
        for tensor in map(distinct, (*parameters.values(), *self.buffers.values())):
            value = tensor.contiguous()
            if mesh is not None:
                mesh.axis("shard").broadcast(value)
            self.communicator.transport.broadcast(value)
            if value.data_ptr() != tensor.data_ptr():
                tensor.copy_(value)

    def average_into(self, model: Models, batches: Iterable[Any] | None = None) -> None:
        """Make another model of this kind the average one; every process calls it."""
        row = self.local_part.row.parameters
        mean = self.local_part.row.whole(observe(self.communicator, row).to(row)[None])[0]
        resharded(parts := parts_of(model))
        targets = named(parts, nn.Module.named_parameters)  # by name: some may have been frozen there
        buffers = named(parts, nn.Module.named_buffers)
        self._compare(targets, buffers)
        for field in self.computed.fields:
            local(targets[field.name]).copy_(mean[field.start : field.stop].view(field.shape))
        others = buffers | {name: targets[name] for name in self._frozen}
        for name, tensor in (self.buffers | self._frozen).items():
            distinct(others[name]).copy_(distinct(placed_like(others[name], tensor)))
        self._estimate(parts, others, batches)

    @contextmanager
    def averaged(self, batches: Iterable[Any] | None = None) -> Iterator[None]:
        """The model is the average one meanwhile, at every process."""
        row = self.local_part.row
        saved, buffers = row.parameters.clone(), {name: distinct(b).clone() for name, b in self.buffers.items()}
        resharded(self.parts)
        mean = observe(self.communicator, saved).to(saved)[None]
        try:
            with torch.no_grad():
                row.load(mean)
            self._estimate(self.parts, self.buffers, batches)
            yield
        finally:
            resharded(self.parts)
            with torch.no_grad():
                row.load(saved)
                for name, buffer in self.buffers.items():
                    distinct(buffer).copy_(buffers[name])

    def _compare(self, targets: Mapping[str, nn.Parameter], buffers: Mapping[str, Tensor]) -> None:
        """Refuse a model that cannot become the average one."""
        expected = {*self.parameters, *self._frozen, *self.buffers}
        if odd := expected ^ {*targets, *buffers}:
            raise ValueError(
                "model must be another one of this kind, the one that the optimizer was made with, got "
                f"{', '.join(sorted(odd)[:3])} in one of them only: give copy.deepcopy(model), not wrapped"
            )
        if any(targets[name] is parameter for name, parameter in self.parameters.items()):
            raise ValueError(
                "model must be another one, got the one that is trained: workers would go on from their average; "
                "give copy.deepcopy(model)"
            )

    def _estimate(
        self, parts: Sequence[nn.Module], tensors: Mapping[str, Tensor], batches: Iterable[Any] | None
    ) -> None:
        """Let statistics be those on these batches, if there are any, and average what is no parameter."""
        if batches is not None:
            if len(parts) != 1:
                raise ValueError(
                    f"calibrate must be left out for a model in {len(parts)} parts: none of them is what takes inputs"
                )
            calibrate(parts[0], map(_inputs, batches))
        for buffer in map(distinct, tensors.values()):
            if buffer.is_floating_point():
                buffer.copy_(observe(self.communicator, buffer[None]))
            else:
                value = buffer.contiguous()
                self.communicator.transport.broadcast(value)
                buffer.copy_(value)


def distinct(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, each number once where it is expanded."""
    part = local(tensor)
    for dim in range(part.ndim):
        if part.stride(dim) == 0 and part.shape[dim] > 1:
            part = part.narrow(dim, 0, 1)
    return part


def _inputs(batch: Any) -> tuple[Tensor, ...]:
    """The inputs that a model takes of a batch."""
    first = batch if isinstance(batch, Tensor) else batch[0] if isinstance(batch, (tuple, list)) else None
    if not isinstance(first, Tensor):
        raise ValueError(
            f"calibrate must give tensors, or tuples with the input first, got a {type(batch).__name__}: the average "
            "model is called with them; give (batch[NAME] for batch in loader)"
        )
    return (first,)


def parts_of(model: Models) -> list[nn.Module]:
    """A model as its parts."""
    parts = [model] if isinstance(model, nn.Module) else list(model)
    for part in parts:
        if not isinstance(part, nn.Module):
            raise TypeError(
                f"model must be an nn.Module, or a list of them, got a {type(part).__name__}: parameters alone have no "
                "names; give DistributedOptimizer(model, strategy)"
            )
    return parts


def origin(communicator: Communicator, layout: Layout) -> dict[str, Any]:
    """Where a state is from: the worker and their number; name, end and group of each tensor that it updates."""
    return {
        "worker": [communicator.workers[0], communicator.n],
        "layout": [[field.name, field.stop, field.group] for field in layout.fields],
    }


def merged(states: Sequence[Mapping[str, Any]], current: Mapping[str, Any]) -> dict[str, Any]:
    """The first of all workers' states with the means of their parameters and buffers, as one of this process.

    Parameters
    ----------
    states : sequence of dict
        The states of as many workers as there were, in their order.
    current : dict
        The `origin` of this process's.
    """
    saved = [state.get("worker", [None, None]) for state in states]
    if saved != [[worker, len(states)] for worker in range(len(states))]:
        raise ValueError(
            f"states must be those of all workers, in their order, got of worker and number {saved}: save at every "
            "rank, into a file of its own, and give them all"
        )
    first = states[0]
    buffers = {name: _mean([state["buffers"][name] for state in states]) for name in first["buffers"]}
    parameters = _mean([state["parameters"] for state in states])
    return {**first, "worker": current["worker"], "parameters": parameters, "buffers": buffers}


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean, taken in float64; the first of what is no floating-point number."""
    first = tensors[0]
    if not first.is_floating_point():
        return first
    total = first.double()
    for tensor in tensors[1:]:
        total = total + tensor.double()
    return (total / len(tensors)).to(first)


def compare(
    state: Mapping[str, Any], current: Mapping[str, Any], parameters: Tensor, buffers: Mapping[str, Tensor]
) -> None:
    """Refuse a state that is not of this process, before anything is restored.

    Parameters
    ----------
    state : dict
        The saved one.
    current : dict
        The `origin` of this process's.
    parameters, buffers : Tensor, dict of str to Tensor
        What it would be restored into.
    """
    if "strategy" not in state:
        raise ValueError(
            f"the state must be of a DistributedOptimizer, got {', '.join(map(str, state))}: that of another "
            "optimizer has no parameters and no method in it"
        )
    (worker, n), (saved_worker, saved_n) = current["worker"], state.get("worker", current["worker"])
    if (worker, n) != (saved_worker, saved_n):
        raise ValueError(
            f"the state must be that of worker {worker} of {n}, got that of worker {saved_worker} of {saved_n}: a "
            "worker has parameters and memories of its own; save at every rank, into a file of its own, and where "
            "their number changes, give load_state_dict a list of all"
        )
    same = state.get("layout", current["layout"]) == current["layout"] and state["buffers"].keys() == buffers.keys()
    if not same or state["parameters"].shape != parameters.shape:
        raise ValueError(
            "the state must be of these parameters, buffers and groups, got others: make the optimizer with the "
            "model and the groups= that it was saved with"
        )
