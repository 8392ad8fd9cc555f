"""The models of the hosted workers, as views into two flat (w, d) tensors: parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from commeff.boxes import ColumnMap
from commeff.communicator import Communicator, observe
from commeff.compressors import Layout, WorkerRandom
from commeff.compressors.layout import one_kind
from commeff.replicas.arrivals import Arrivals, Listener

Loss = Callable[..., Tensor]
Batch = tuple[Tensor, ...]
T = TypeVar("T")

MIXED = "bf16_mixed"  # parameters in 32 bits, forward passes under autocast
ENGINES = ("loop", "vmap")  # one model after the other, or all as one batched graph
TOGETHER = 2**19  # parameters of the models that go backward together: beyond, arithmetic is what costs


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that a run moves, by name; frozen ones stay as they are, in each replica."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def write_row(model: nn.Module, row: Tensor, layout: Layout) -> nn.Module:
    """Copy a flat (d,) row into the parameters of a model with this layout."""
    with torch.no_grad():
        named = dict(model.named_parameters())  # by name: an evaluation copy may have frozen them
        for field in layout.fields:
            named[field.name].copy_(row[field.start : field.stop].view(field.shape))
    return model


def put_into(row: Tensor, gradients: Tensor, named: Mapping[str, nn.Parameter], layout: Layout) -> None:
    """Make parameters views of a row (d,), which takes their values, and their gradients views of another."""
    for parameter, field in zip(named.values(), layout.fields, strict=True):
        place = row[field.start : field.stop].view(field.shape)
        parameter.data = place.copy_(parameter.data)
        parameter.grad = gradients[field.start : field.stop].view(field.shape)


class Stacked:
    """w models whose parameters, gradients and buffers are rows of shared tensors.

    Parameters
    ----------
    model : callable
        Gives a fresh model; every call with the same initial parameters.
    workers : sequence of int
        The ids of the hosted workers, for the randomness of dropout.
    seed : int
        The key of that randomness.
    groups : callable, optional
        The parameter group of each parameter, e.g. `lambda name, parameter: int(parameter.ndim < 2)`.

    Attributes
    ----------
    parameters, gradients : (w, d)
        Each model's parameters and gradients are views of a row.
    layout : Layout
        Names, shapes and groups of the columns.
    buffers : dict of str to (w, ...)
        BatchNorm's statistics, for example: they belong to each worker and are never averaged or compressed.
    partition
        The parts of workers in pieces (`ShardedWorker`): a whole model has none.
    finite : (w,) bool or None
        Whether the last gradients were, in 16 bits; None where nobody looks.
    active : (w,) bool or None
        Who computes in the steps to come; None: all. The others' gradients and losses are 0.

    Examples
    --------

    >>> replicas = Stacked(lambda: nn.Linear(2, 1), range(3))
    >>> replicas.parameters.shape, [field.name for field in replicas.layout.fields]
    (torch.Size([3, 3]), ['weight', 'bias'])
    """

    partition: tuple[()] = ()
    finite: Tensor | None = None
    active: Tensor | None = None

    def __init__(
        self,
        model: Callable[[], nn.Module],
        workers: Sequence[int],
        seed: int = 0,
        groups: Callable[[str, nn.Parameter], int] | None = None,
    ) -> None:
        self.workers, self.seed, self._model = workers, seed, model
        first = model()
        self._check(first)
        named = trainable(first)
        group_of = [groups(name, p) for name, p in named.items()] if groups else None
        self.layout = Layout.of([(name, tuple(p.shape)) for name, p in named.items()], group_of)
        dtype, device = one_kind(named.values())
        self.parameters = torch.empty(len(workers), self.layout.d, dtype=dtype, device=device)
        self.gradients = torch.zeros_like(self.parameters)
        self.models = []
        for i in range(len(workers)):  # each is in its row before there is another
            self.models.append(model() if i else first)
            put_into(self.parameters[i], self.gradients[i], trainable(self.models[i]), self.layout)
        of_each = [dict(replica.named_buffers()) for replica in self.models]
        self.buffers = {name: torch.stack([buffers[name] for buffers in of_each]) for name in of_each[0]}
        for i, replica in enumerate(self.models):
            for name, buffer in replica.named_buffers():
                buffer.data = self.buffers[name][i]
        self._together = max(1, TOGETHER // self.layout.d)
        self._draws: bool | None = None  # whether the model uses torch's randomness: seen at the first minibatch
        self._arrivals: Arrivals | None = None

    def _check(self, model: nn.Module) -> None:
        """Refuse a model that the engine cannot run; the loop runs all."""

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees of a mesh, of which there is none."""
        return {}

    @property
    def where(self) -> ColumnMap:
        """The map of the columns into the whole model."""
        return ColumnMap.of(self.layout)

    @property
    def inside(self) -> dict[str, tuple[float, float]]:
        """The bytes and seconds of what a worker's processes send each other, by axis: it has one process."""
        return {}

    def uncounted(self) -> AbstractContextManager[None]:
        """A context in which `inside` does not grow."""
        return nullcontext()

    def load(self, x: Tensor) -> None:
        """Make x the parameters; nothing is copied if they are the same memory."""
        if x.data_ptr() != self.parameters.data_ptr() or x.stride() != self.parameters.stride():
            self.parameters.copy_(x)

    @contextmanager
    def averaged(self, communicator: Communicator) -> Iterator[tuple[nn.Module, Tensor]]:
        """A model with the mean of all workers' parameters, and the mean (1, d). Every process calls it."""
        mean = observe(communicator, self.parameters).to(self.parameters)
        yield write_row(self._model(), mean, self.layout), mean[None]

    def compute(
        self,
        loss: Loss,
        batches: Sequence[Batch],
        step: int,
        l2: float = 0.0,
        awaited: Sequence[tuple[int, int]] = (),
        ready: Listener | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The gradient of each worker's mean loss over its batches, with l2 x added: (w, d), and the losses (w,).

        Parameters
        ----------
        loss : callable
            The loss of a model on a minibatch (b, ...).
        batches : sequence of tuples
            One tuple of (w, b, ...) tensors for each accumulated minibatch.
        step : int
            The clock, for the randomness of dropout.
        l2 : float
            l2 x is added to the gradient.
        awaited : sequence of (start, stop)
            Spans of columns, the same in every call.
        ready : callable, optional
            Is called with each span when its gradients are final, while others are still computed.
        """
        torch.mul(self.parameters, l2, out=self.gradients) if l2 else self.gradients.zero_()
        if awaited and self._arrivals is None:
            self._arrivals = Arrivals([trainable(model) for model in self.models], self.layout, awaited)
        losses = []
        with nullcontext() if self._draws is False else torch.random.fork_rng():
            for r, batch in enumerate(batches):
                if self._arrivals is not None:
                    self._arrivals.listen(ready if r == len(batches) - 1 else None)
                losses.append(self._backward(loss, batch, step, r, 1 / len(batches)))
        self._draws = bool(self._draws)
        return self.gradients, losses[0] if len(losses) == 1 else torch.stack(losses).mean(0)

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        """Adds `weight` times one minibatch's gradients of every model; gives the losses (w,)."""
        rows = zip(self.workers, self.models, zip(*(part.unbind() for part in batch), strict=True), strict=True)
        forwards = [
            partial(self._on_own_stream, partial(loss, replica, *parts), worker, step, r)
            for worker, replica, parts in rows
        ]
        if self.active is None:
            return backward(forwards, weight, self._together)
        losses = self.parameters.new_zeros(len(forwards))
        chosen = [i for i in range(len(forwards)) if self.active[i]]
        if chosen:
            losses[chosen] = backward([forwards[i] for i in chosen], weight, self._together).to(losses)
        return losses

    def _on_own_stream(self, forward: Callable[[], T], worker: int, step: int, r: int) -> T:
        """Dropout and its kin draw from torch's generators: seeded for each worker and step, if the model draws."""
        if self._draws is False:
            return forward()
        key = WorkerRandom(self.seed, [worker], step, ("dropout", r)).bits(1)
        on_cpu = self.parameters.device.type == "cpu"  # seeding all other devices too takes as long as a small model
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(int(key[0, 0]) & 0x7FFFFFFF)
        before = self._generator_state()
        value = forward()
        self._draws = self._draws or (None if torch.equal(before, self._generator_state()) else True)
        return value

    def _generator_state(self) -> Tensor:
        device = self.parameters.device
        return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers, with a leading worker axis; nothing is copied."""
        for i, replica in enumerate(self.models):
            for name, buffer in replica.named_buffers():
                self.buffers[name][i] = buffer  # a module may have put a new tensor in its place
        return {"parameters": self.parameters, "buffers": self.buffers}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, into the same memory."""
        self.parameters.copy_(state["parameters"])
        for name, value in state["buffers"].items():
            self.buffers[name].copy_(value)


def compile_models(models: Sequence[nn.Module]) -> None:
    """Let torch.compile fuse forward and backward of these models, in place; models of one shape are one graph.

    `nn.Module.compile` would leave alone what torch's own modules compute, such as all of an `nn.Sequential`.
    """
    from torch._inductor import config

    config.compile_threads = 1  # a process of a run forks no others
    for model in models:
        model.forward = torch.compile(model.forward)


def backward(forwards: Sequence[Callable[[], Tensor]], weight: float, together: int) -> Tensor:
    """Adds `weight` times the gradients of every loss; gives the losses.

    `together` models go backward in one call, which costs small ones less than a call each; the numbers are the same.
    """
    losses = []
    for first in range(0, len(forwards), together):
        values = torch.stack([forward() for forward in forwards[first : first + together]])
        values.backward(torch.full_like(values, weight))
        losses.append(values.detach())
    return losses[0] if len(losses) == 1 else torch.cat(losses)
