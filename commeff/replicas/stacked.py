"""The models of the hosted workers, as views into two flat (w, d) tensors: parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from compressors import Layout, WorkerRandom

Loss = Callable[..., Tensor]
Batch = tuple[Tensor, ...]

# Small models wait for each other and go backward in one call, which costs less than their arithmetic does; the numbers
# are the same.
TOGETHER = 2**19


class Stacked:
    """w models whose parameters, gradients and buffers are rows of shared tensors.

    Parameters
    ----------
    model : gives a fresh model; every call with the same initial parameters.
    workers : ids of the hosted workers, for the randomness of dropout.
    groups : names a parameter group for each parameter, e.g. `lambda name, parameter: int(parameter.ndim < 2)`.

    Attributes
    ----------
    parameters, gradients : (w, d).   layout : names, shapes and groups of the columns.
    buffers : name -> (w, ...); BatchNorm's statistics belong to each worker and are never averaged or compressed.

    >>> replicas = Stacked(lambda: nn.Linear(2, 1), range(3))
    >>> replicas.parameters.shape, [field.name for field in replicas.layout.fields]
    (torch.Size([3, 3]), ['weight', 'bias'])
    """

    def __init__(
        self,
        model: Callable[[], nn.Module],
        workers: Sequence[int],
        seed: int = 0,
        groups: Callable[[str, nn.Parameter], int] | None = None,
    ) -> None:
        self.workers, self.seed = workers, seed
        self.models = [model() for _ in workers]
        named = dict(self.models[0].named_parameters())
        group_of = [groups(name, p) for name, p in named.items()] if groups else None
        self.layout = Layout.of([(name, tuple(p.shape)) for name, p in named.items()], group_of)
        first = next(iter(named.values()))
        self.parameters = torch.empty(len(workers), self.layout.d, dtype=first.dtype, device=first.device)
        self.gradients = torch.zeros_like(self.parameters)
        for i, replica in enumerate(self.models):
            for (_, parameter), field in zip(replica.named_parameters(), self.layout.fields, strict=True):
                row = self.parameters[i, field.start : field.stop].view(field.shape)
                parameter.data = row.copy_(parameter.data)
                parameter.grad = self.gradients[i, field.start : field.stop].view(field.shape)
        self.buffers = {
            name: torch.stack([dict(m.named_buffers())[name] for m in self.models])
            for name, _ in self.models[0].named_buffers()
        }
        for i, replica in enumerate(self.models):
            for name, buffer in replica.named_buffers():
                buffer.data = self.buffers[name][i]
        self.random = any(
            isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in self.models[0].modules()
        )

    def load(self, x: Tensor) -> None:
        """Make x the parameters; nothing is copied if they are the same memory."""
        if x.data_ptr() != self.parameters.data_ptr() or x.stride() != self.parameters.stride():
            self.parameters.copy_(x)

    def compute(self, loss: Loss, batches: Sequence[Batch], step: int, l2: float = 0.0) -> tuple[Tensor, Tensor]:
        """The gradient of each worker's mean loss over its batches, with l2 x added: (w, d), and the losses (w,).

        batches : one tuple of (w, b, ...) tensors for each accumulated minibatch.
        """
        self.gradients.zero_()
        losses = torch.zeros(len(self.workers), dtype=self.parameters.dtype, device=self.parameters.device)
        with self._own_randomness():
            for r, batch in enumerate(batches):
                losses += self._backward(loss, batch, step, r)
        if len(batches) > 1:
            self.gradients /= len(batches)
        if l2:
            self.gradients.add_(self.parameters, alpha=l2)
        return self.gradients, losses / len(batches)

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int) -> Tensor:
        """Adds one minibatch's gradients; the loop over models is the definition."""
        losses: list[Tensor] = []
        together = max(1, TOGETHER // max(1, self.layout.d))
        rows = list(zip(self.workers, self.models, zip(*(part.unbind() for part in batch), strict=True), strict=True))
        for first in range(0, len(rows), together):
            pending = []
            for worker, replica, parts in rows[first : first + together]:
                if self.random:
                    torch.manual_seed(self._draw_seed(worker, step, r))
                pending.append(loss(replica, *parts))
            torch.autograd.backward(pending)
            losses += pending
        return torch.stack(losses).detach()

    def _draw_seed(self, worker: int, step: int, r: int) -> int:
        return int(WorkerRandom(self.seed, [worker], step=step, path=("dropout", str(r))).bits(1)[0, 0]) & 0x7FFFFFFF

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        if not self.random:
            yield
            return
        with torch.random.fork_rng():
            yield

    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers, with a leading worker axis."""
        return {"parameters": self.parameters.clone(), "buffers": {name: b.clone() for name, b in self.buffers.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave, into the same memory."""
        self.parameters.copy_(state["parameters"])
        for name, value in state["buffers"].items():
            self.buffers[name].copy_(value)
