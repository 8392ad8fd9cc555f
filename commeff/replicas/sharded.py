"""One worker's model on several processes, each of which holds and updates a piece."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from commeff.communicator import Communicator, observe
from commeff.compressors import Layout, WorkerRandom
from commeff.replicas.arrivals import Arrivals, Listener
from commeff.replicas.stacked import Batch
from commeff.sharding import Axis, Computation, Mesh, Objective
from commeff.sharding.computation import Scored, Scores, weighed
from commeff.sharding.layout import RankColumnMap
from commeff.sharding.precision import LossScale, lower_frozen, lowered, named_precision, raised
from commeff.sharding.rows import build_row

BUCKET_MB = 25.0  # of gradients that shard ranks reduce together


class ShardedWorker:
    """This process's piece of one worker, with the surface of `Stacked`: a method sees one row, of what it updates.

    What a method gets are the columns of the parameters' row that this rank updates: some of them, with a stage of ZeRO
    (`commeff.sharding.zero`).

    Parameters
    ----------
    computation : Computation
        What this rank does of a forward and backward.
    mesh : Mesh
        The processes of all workers.
    zero : int
        The stage of ZeRO: what shard ranks share. For stage 3 the computation's model has been given to `fully`.
    precision : str
        In which the computation runs: "fp32", as the model was made, "bf16", "fp16" or "bf16_reduce_fp32".
    seed : int
        The key of dropout's randomness.

    Attributes
    ----------
    workers : range
        The id of the one worker.
    parameters, gradients : (1, d)
        What this rank updates, and its gradients, to be read where `ready` says that they are final.
    layout : Layout
        Names and shapes of these columns.
    partition : tuple of Part
        The columns by the ranks that hold them; empty where they are a whole model.
    finite : bool or None
        Whether the last gradients were, at all ranks of the worker; None where nobody looks.
    scale : LossScale or None
        The factor of the loss, in fp16.
    models : list of nn.Module
        The worker's model as a function: all of its ranks call it, and each gets the outputs of the whole, or what
        `commeff.sharding.score` makes of them.
    buffers : dict of str to (1, ...)
        BatchNorm's statistics, for example.

    Raises
    ------
    ValueError
        The model does not lie on the mesh as it should.
    """

    def __init__(
        self, computation: Computation, mesh: Mesh, *, zero: int = 0, precision: str = "fp32", seed: int = 0
    ) -> None:
        self.computation, self.mesh, self.precision, self.seed = computation, mesh, precision, seed
        how = named_precision(precision)
        self._dtype = how.dtype
        self.workers = range(mesh.coordinates["worker"], mesh.coordinates["worker"] + 1)
        named = computation.parameters
        self._whole = Layout.of([(name, tuple(p.shape)) for name, p in named.items()])
        self._row, self.layout, self.partition = build_row(self._whole, named, mesh, zero, BUCKET_MB, how)
        lower_frozen(computation.modules, self._dtype)
        self.scale = LossScale(mesh.inner.values()) if how.scaled else None
        self.finite: bool | None = None
        self.models = [_Function(computation, mesh.axis("shard"), self._dtype)]
        self._arrivals: Arrivals | None = None
        self._checked = False

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees of the mesh."""
        return self.mesh.degrees

    @property
    def where(self) -> RankColumnMap:
        """The map of the columns that this rank updates into the whole model."""
        named, pipeline = self.computation.parameters, self.mesh.axis("pipeline")
        return RankColumnMap.on_rank(self._whole, named, self._row.spans, pipeline)

    @property
    def inside(self) -> dict[str, tuple[float, float]]:
        """The bytes that this rank has sent to others of its worker, and the seconds it waited for them, by axis."""
        families = {name: axis.family for name, axis in self.mesh.inner.items()}
        return {name: (sum(a.bytes for a in axes), sum(a.waited for a in axes)) for name, axes in families.items()}

    def uncounted(self) -> AbstractContextManager[None]:
        """A context in which `inside` does not grow: what is sent meanwhile is not the method's."""
        return self.mesh.uncounted()

    @property
    def parameters(self) -> Tensor:
        """(1, d): what this rank updates."""
        return self._row.parameters

    @property
    def gradients(self) -> Tensor:
        """(1, d): their gradients."""
        return self._row.gradient

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
        self._row.load(x)

    @contextmanager
    def averaged(self, communicator: Communicator) -> Iterator[tuple[nn.Module, Tensor]]:
        """The model with the mean of all workers' parameters, and this rank's (1, d) of it. Every process calls it.

        The model itself holds the mean meanwhile: nothing is as large as a whole model.
        """
        mean = observe(communicator, self.parameters).to(self.parameters)[None]
        saved, buffers = self.parameters.clone(), {name: buffer.clone() for name, buffer in self.buffers.items()}
        self.load(mean)
        try:
            yield self.models[0], mean
        finally:
            self.load(saved)
            self._restore(buffers)

    active: Tensor | None = None  # all of a worker's ranks compute, whether it takes part or not

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
        self._row.begin(l2)
        awaited = self._row.awaited(awaited) if self.computation.passes else ()
        if awaited and self._arrivals is None:
            passes, late = self._row.passes(self.computation.passes), self.computation.late
            self._arrivals = Arrivals([self.computation.parameters], self._whole, awaited, passes, late)
        listener = partial(self._arrived, ready or (lambda start, stop: None))
        factor = 1.0 if self.scale is None else self.scale.value
        shard, losses = self.mesh.axis("shard"), []
        place = [f"{name} {self.mesh.coordinates[name]}" for name in ("pipeline", "shard")]
        device = self._row.gradient.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []), self._all_arrive():
            for r, batch in enumerate(batches):
                if self._arrivals is not None:
                    self._arrivals.listen(listener if r == len(batches) - 1 else None)
                key = WorkerRandom(self.seed, self.workers, step, ("dropout", r, *place)).bits(1)
                torch.manual_seed(int(key[0, 0]) & 0x7FFFFFFF)
                share = tuple(shard.part(part[0], 0) for part in batch)
                of_share = loss if shard.size == 1 else _of_share(loss, share, [part[0] for part in batch])
                losses.append(self.computation.backward(raised(of_share, self._dtype), share, factor / len(batches)))
        gradient = self._row.finish()
        self.finite = None if self.scale is None else self.scale.unscale(gradient)
        return gradient, torch.stack(losses).mean()[None] * self.mesh.degrees["pipeline"]

    def _arrived(self, ready: Listener, start: int, stop: int) -> None:
        """Backward has made the gradients of these columns."""
        with torch.no_grad():
            final = self._row.arrived(start, stop)
            for first, last in final if self.scale is None else ():  # scaled ones may not be finite
                ready(first, last)

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
        all_used(name for name in self.computation.parameters if name not in arrived)
        self._checked = True

    def state_dict(self) -> dict[str, Any]:
        """What this rank updates, its buffers, and the bytes and seconds of the axes so far; no tensor is copied."""
        axes = {name: [[a.bytes, a.waited] for a in axis.family] for name, axis in self.mesh.inner.items()}
        scale = {} if self.scale is None else {"scale": self.scale.state_dict()}
        return {"parameters": self.parameters, "buffers": dict(self.buffers), "axes": axes} | scale

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on the process of the same place; all ranks of the worker call it."""
        self.load(state["parameters"])
        self._restore(state["buffers"])
        if self.scale is not None:
            self.scale.load_state_dict(state["scale"])
        for name, counts in state["axes"].items():
            for axis, (sent, waited) in zip(self.mesh.axis(name).family, counts, strict=True):
                axis.bytes, axis.waited = sent, waited

    def _restore(self, buffers: dict[str, Tensor]) -> None:
        for name, buffer in self.buffers.items():
            buffer.copy_(buffers[name])


def _of_share(loss: Objective, share: Batch, batch: Sequence[Tensor]) -> Objective:
    """The objective of a share of a batch, so that the mean over all shares is the batch's."""
    (_, own), (_, every) = loss.inputs_targets(*share), loss.inputs_targets(*batch)
    return loss._replace(criterion=lambda outputs, part: weighed(loss.criterion(outputs, part), own, every))


def all_used(missing: Iterable[str]) -> None:
    """Refuse parameters that get no gradient."""
    if names := ", ".join(missing):
        raise ValueError(
            f"every parameter must get a gradient, got none for {names}: what the loss does not use would stay as it "
            "is; use it, or freeze it by requires_grad_(False)"
        )


class _Function(Scored):
    """A computation as a module; in evaluation, shard ranks deal the samples among them, if they can do so equally."""

    def __init__(self, computation: Computation, shard: Axis, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._dtype, self._shard = dtype, shard
        self.parts = nn.ModuleList(computation.modules)
        self._computation = computation

    def forward(self, *inputs: Tensor) -> Tensor:
        """The outputs of the whole model."""
        return self.score(_whole, inputs, None)

    def score(self, scores: Scores, inputs: Batch, targets: Any) -> Tensor:
        """As `commeff.sharding.score`."""
        if shared := self._deals(inputs):
            inputs, targets = tree_map_only(Tensor, lambda x: self._shard.part(x, 0), (inputs, targets))

        def read(outputs: Tensor) -> Tensor:
            outputs = outputs if self._dtype is None else outputs.float()
            return scores(outputs, targets, self._computation.vocabulary)

        out = self._computation.forward(read, *lowered(inputs, self._dtype))
        return self._shard.gather(out, 0) if shared else out

    def _deals(self, inputs: Batch) -> bool:
        """Whether each rank computes its share; statistics that are re-estimated meanwhile are of all samples."""
        if self._shard.size == 1 or torch.is_grad_enabled() or any(len(x) % self._shard.size for x in inputs):
            return False
        return not any(module.training for module in self.modules())


def _whole(outputs: Tensor, _: Any, vocabulary: Axis | None) -> Tensor:
    return outputs if vocabulary is None else vocabulary.gather(outputs, -1)
