"""One worker's model on several processes, each of which holds and updates a piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from commeff.communicator import Communicator
from commeff.compressors import Layout, WorkerRandom
from commeff.parallelism import Computation, Mesh, Objective
from commeff.parallelism.rows import dealt
from commeff.replicas.arrivals import Arrivals, Listener
from commeff.replicas.stacked import Batch, put_into, rows_for


class ShardedWorker:
    """This process's piece of one worker, with the surface of `Stacked`: a method sees one row, of what it updates.

    The parameters that this rank computes with are a row; with stage 1 of ZeRO it updates some columns of it, and those
    are what a method gets.

    Parameters
    ----------
    computation : Computation
        What this rank does of a forward and backward.
    mesh : Mesh
        The processes of all workers.
    zero : int
        The stage of ZeRO: 0, or 1 to share the states of the method over the shard axis.
    seed : int
        The key of dropout's randomness.

    Attributes
    ----------
    workers : range
        The id of the one worker.
    parameters, gradients : (1, d)
        What this rank updates, and its gradients, as soon as `compute` has given them.
    layout : Layout
        Names and shapes of these columns.
    partition : tuple of Part
        The columns by the ranks that hold them; empty where they are a whole model.
    models : list of nn.Module
        The worker's model as a function: all of its ranks call it, and each gets the outputs of the whole.
    buffers : dict of str to (1, ...)
        BatchNorm's statistics, for example.

    Raises
    ------
    ValueError
        The model does not lie on the mesh as it should.
    """

    def __init__(self, computation: Computation, mesh: Mesh, *, zero: int = 0, seed: int = 0) -> None:
        self.computation, self.mesh, self.seed = computation, mesh, seed
        self.workers = range(mesh.coordinates["worker"], mesh.coordinates["worker"] + 1)
        named = computation.parameters
        self._whole = Layout.of([(name, tuple(p.shape)) for name, p in named.items()])
        self._parameters, self._gradients = rows_for(named, 1, self._whole)
        put_into(self._parameters[0], self._gradients[0], named, self._whole)
        self._row, self.layout, self.partition = dealt(self._whole, named, mesh, zero)
        self.parameters, self.gradients = self._row.own(self._parameters), self._row.own(self._gradients)
        self.models = [_Function(computation)]
        # Gradients that several ranks share are summed over them before they are anybody's to send.
        self._early = mesh.degrees["shard"] == 1 and computation.passes > 0
        self._arrivals: Arrivals | None = None
        self._checked = False

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers of what lies at this rank, by name."""
        return {
            f"{i}.{name}": buffer.detach()[None]
            for i, module in enumerate(self.computation.modules)
            for name, buffer in module.named_buffers()
        }

    def load(self, x: Tensor) -> None:
        """Make x the parameters, at all ranks that compute with them; all of these call it."""
        self._row.spread(x, self._parameters)

    @contextmanager
    def averaged(self, communicator: Communicator) -> Iterator[tuple[nn.Module, Tensor]]:
        """The model with the mean of all workers' parameters, and this rank's (1, d) of it. Every process calls it.

        The model itself holds the mean meanwhile: nothing is as large as a whole model.
        """
        mean = communicator.observe(self.parameters).to(self.parameters)[None]
        own, buffers = self.parameters.clone(), {name: buffer.clone() for name, buffer in self.buffers.items()}
        self.load(mean)
        try:
            yield self.models[0], mean
        finally:
            self.load(own)
            self._restore(buffers)

    def compute(
        self,
        loss: Objective,
        batches: Sequence[Batch],
        step: int,
        l2: float = 0.0,
        awaited: Sequence[tuple[int, int]] = (),
        ready: Listener | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `Stacked.compute`; of each minibatch (1, b, ...) a shard rank takes its equal share.

        The loss (1,) is of that share. Its mean over all processes is the mean over all workers.
        """
        torch.mul(self._parameters, l2, out=self._gradients) if l2 else self._gradients.zero_()
        if awaited and self._early and self._arrivals is None:
            named, passes = self.computation.parameters, self.computation.passes
            self._arrivals = Arrivals([named], self._whole, awaited, passes)
        shard, losses = self.mesh.axis("shard"), []
        place = [f"{name} {self.mesh.coordinates[name]}" for name in ("pipeline", "shard")]
        device = self._parameters.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []), self._all_arrive():
            for r, batch in enumerate(batches):
                if self._arrivals is not None:
                    self._arrivals.listen(ready if r == len(batches) - 1 else None)
                key = WorkerRandom(self.seed, self.workers, step, ("dropout", r, *place)).bits(1)
                torch.manual_seed(int(key[0, 0]) & 0x7FFFFFFF)
                share = tuple(shard.part(part[0], 0) for part in batch)
                losses.append(self.computation.backward(loss, share, 1 / len(batches)))
        self.gradients = self._row.reduce(self._gradients)
        return self.gradients, torch.stack(losses).mean()[None] * self.mesh.degrees["pipeline"]

    @contextmanager
    def _all_arrive(self) -> Iterator[None]:
        """Refuse, the first time, a model of which a parameter gets no gradient: it would be taken for zero."""
        if self._checked or not self.computation.passes:
            yield
            return
        arrived: set[str] = set()
        hooks = [
            parameter.register_post_accumulate_grad_hook(lambda _, name=name: arrived.add(name))
            for name, parameter in self.computation.parameters.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        if missing := [name for name in self.computation.parameters if name not in arrived]:
            raise ValueError(
                f"every parameter must get a gradient, got none for {', '.join(missing)}: what the loss does not use "
                "would stay as it is; use it, or freeze it by requires_grad_(False)"
            )
        self._checked = True

    def state_dict(self) -> dict[str, Any]:
        """What this rank updates, its buffers, and the bytes and seconds of the axes so far."""
        axes = {name: [[a.bytes, a.waited] for a in axis.family] for name, axis in self.mesh.inner.items()}
        buffers = {name: buffer.clone() for name, buffer in self.buffers.items()}
        return {"parameters": self.parameters.clone(), "buffers": buffers, "axes": axes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on the process of the same place; all ranks of the worker call it."""
        self.load(state["parameters"])
        self._restore(state["buffers"])
        for name, counts in state["axes"].items():
            for axis, (sent, waited) in zip(self.mesh.axis(name).family, counts, strict=True):
                axis.bytes, axis.waited = sent, waited

    def _restore(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])


class _Function(nn.Module):
    """A computation as a module."""

    def __init__(self, computation: Computation) -> None:
        super().__init__()
        self.parts = nn.ModuleList(computation.modules)
        self._computation = computation

    def forward(self, *inputs: Tensor) -> Tensor:
        """The outputs of the whole model."""
        return self._computation.forward(*inputs)
