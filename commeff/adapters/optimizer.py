"""Any method of the catalogue in a plain PyTorch loop: three lines change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn

from commeff.communicator import Communicator
from commeff.core import overlap
from commeff.core.strategy import Strategy
from commeff.parallelism import Mesh
from commeff.parallelism.rows import dealt
from commeff.replicas import Stacked
from commeff.replicas.arrivals import Arrivals
from commeff.replicas.stacked import trainable, write_row
from commeff.training.allocator import keep_freed_memory
from commeff.transforms import BUCKET_MB, bucketed, clipped, fitted


class DistributedOptimizer:
    """The optimizer of one model on each of n processes, which are the n workers of a strategy.

        model = Net()                                                        # not wrapped in DDP
        strategy = methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(dist.get_world_size()))
        optimizer = commeff.DistributedOptimizer(model, strategy)
        for inputs, targets in loader:                                       # each process its own data
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()

    Gradients are sent while backward still runs, so they are final when backward has made them: to change them, or to
    go backward several times before a step, give bucket_mb=0. To clip them, give `clip`.

    All models begin as that of rank 0, buffers and frozen parameters too. From there on a worker's parameters are its
    own, wherever the method lets them differ: evaluate `average_into(another model)`. BatchNorm statistics are never
    averaged. Schedules belong to the strategy (`commeff.scheduled`). A method over several minibatches a step
    (`strategy.accumulate`) wants as many backward passes, each of its loss divided by their number; nothing is sent
    before the step then.

    Parameters
    ----------
    model : nn.Module
        The model of this process, not wrapped in DistributedDataParallel.
    strategy : Strategy
        The method, such as `methods.psgd(...)`.
    seed : int
        The key of the method's randomness.
    group : ProcessGroup, optional
        The processes; the default group unless given.
    mesh : Mesh, optional
        The processes of all workers, where each lies on several: the model is this process's piece of its worker, split
        over tensor ranks, or what a `Pipeline`, which then goes backward, has left of it. Shard ranks each backward
        their share of the worker's batch, all equally large, and share the states of the method (ZeRO stage 1).
    pieces : {"own"}, optional
        Over a split model, let what selects, scales or factors do so within a piece; what all its ranks hold is one.
    bucket_mb : float
        About how many megabytes of gradients travel together; 0: all of them, after backward.
    clip : float, optional
        The largest norm of a gradient: of the average where the method averages gradients, else of the worker's own.
    collective : str
        How averages travel, as in `Communicator`.

    Attributes
    ----------
    communicator : Communicator
        With the ledger of what this worker has sent, and the clock `step`.
    strategy : Strategy
        The method, in buckets.

    Raises
    ------
    ValueError
        There is no process group, the model is wrapped in DDP, or the strategy does not fit the model, a split one, or
        the number of processes.
    """

    def __init__(
        self,
        model: nn.Module,
        strategy: Strategy,
        *,
        seed: int = 0,
        group: Any = None,
        mesh: Mesh | None = None,
        pieces: Literal["own"] | None = None,
        bucket_mb: float = BUCKET_MB,
        clip: float | None = None,
        collective: str = "auto",
    ) -> None:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise ValueError(
                "the model is wrapped in DistributedDataParallel, which averages gradients beside the method; "
                "give model.module"
            )
        if mesh is not None:
            if group is not None:
                raise ValueError("group must not be given beside mesh, which says who the workers are: leave it out")
            group = mesh.group("worker")
        self.communicator, self._model = Communicator.per_process(seed, group, collective), model
        self._replicas = Stacked(lambda: model, self.communicator.workers, seed)
        self._row, layout, partition = dealt(self._replicas.layout, trainable(model), mesh)
        own = self._row.own(self._replicas.parameters)
        strategy = clipped(bucketed(fitted(strategy, partition, pieces), bucket_mb, own, layout), clip)
        self.strategy = strategy
        keep_freed_memory()
        fields, row = self._replicas.layout.fields, self._replicas.gradients[0]
        self._places = {
            field.start: (parameter, row[field.start : field.stop].view(field.shape))
            for parameter, field in zip(trainable(model).values(), fields, strict=True)
        }
        frozen = [parameter.data for parameter in model.parameters() if not parameter.requires_grad]
        for tensor in (self._replicas.parameters, *self._replicas.buffers.values(), *frozen):
            self._row.begin(tensor)
            self.communicator.transport.broadcast(tensor)
        strategy.start(own, layout, self.communicator)
        # Gradients that several ranks share are summed over them before they are anybody's to send.
        # Those of a pipeline come with every micro-batch.
        early = own.shape == self._replicas.parameters.shape and (mesh is None or mesh.degrees["pipeline"] == 1)
        awaited = overlap.awaited(strategy) if early else ()
        self._arrivals = Arrivals([trainable(model)], self._replicas.layout, awaited)
        self._early = bool(awaited) and strategy.accumulate == 1
        self._drop()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._posted = False
        self._sent: int | None = None  # the version of the gradients when the last of them were sent
        self._arrivals.listen(self._arrived if self._early else None)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, of either kind; communication that needs none sets out."""
        if self._sent is not None:
            raise RuntimeError(
                "zero_grad was called after backward, when some gradients had been sent; take the step, or give "
                "bucket_mb=0 to be free to drop them"
            )
        self._arrivals.listen(self._arrived if self._early else None)
        self._drop()
        self._post()

    def _drop(self) -> None:
        for parameter, _ in self._places.values():
            parameter.grad = None

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One model update of all workers; every process calls it. Returns what the closure does.

        Every trainable parameter must have a gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        replicas = self._replicas
        changed = self._sent not in (None, replicas.gradients._version)
        if changed or (self._gather() and self._sent is not None):
            raise RuntimeError(
                "the gradients were changed after backward, when some of them had been sent; to clip them, give "
                "clip=NORM; to change them otherwise before the step, give bucket_mb=0"
            )
        with torch.no_grad():
            self._post()
            own, gradient = self._row.own(replicas.parameters), self._row.reduce(replicas.gradients)
            self._row.spread(self.strategy.step(own, gradient, self.communicator, donate=True), replicas.parameters)
        self.communicator.step += 1
        self._begin_anew()
        return loss

    def _post(self) -> None:
        if not self._posted:
            self.strategy.post(self._row.own(self._replicas.parameters), self.communicator)
            self._posted = True

    def _arrived(self, start: int, stop: int) -> None:
        """Backward has made the gradients of these columns."""
        with torch.no_grad():
            for column in self._places:
                if start <= column < stop:
                    self._placed(column)
            self._post()
            if overlap.ready(self.strategy, self._replicas.gradients, start, stop, self.communicator):
                self._sent = self._replicas.gradients._version

    def average_into(self, model: nn.Module) -> nn.Module:
        """Write the mean of all workers' parameters into another model of this kind; every process calls it."""
        mean = self.communicator.observe(self._replicas.parameters).to(self._replicas.parameters)
        return write_row(model, mean, self._replicas.layout)

    def state_dict(self) -> dict[str, Any]:
        """The clock, the bill, and what is this worker's own: parameters, buffers and memory."""
        return {
            "step": self.communicator.step,
            "ledger": self.communicator.ledger.state_dict(),
            "replicas": self._replicas.state_dict(),
            "strategy": self.strategy.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on the process of the same rank, the model's parameters with it."""
        self.strategy.load_state_dict(state["strategy"])
        self._replicas.load_state_dict(state["replicas"])
        self.communicator.ledger.load_state_dict(state["ledger"])
        self.communicator.step = state["step"]
        self._begin_anew()

    def _gather(self) -> bool:
        """All gradients into their places; returns whether any lay elsewhere."""
        fields = self._replicas.layout.fields
        missing = [field.name for field in fields if self._places[field.start][0].grad is None]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ValueError(
                f"every trainable parameter must have a gradient, got none for {', '.join(missing[:3])}{more}: a step "
                "would count it as zero; use the parameter in the loss, or freeze it with requires_grad_(False)"
            )
        return sum(self._placed(start) for start in self._places) > 0

    def _placed(self, start: int) -> bool:
        """Gradients live in one vector; those that lie elsewhere, since they were thrown away, are put back into it.

        Returns whether the gradient of the tensor that begins there lay elsewhere.
        """
        parameter, place = self._places[start]
        assert parameter.grad is not None
        if parameter.grad.data_ptr() == place.data_ptr():
            return False
        parameter.grad = place.copy_(parameter.grad)
        return True
