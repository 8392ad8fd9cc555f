"""Any method of the catalogue in a plain PyTorch loop: three lines change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from commeff.adapters.holding import Holding, Models
from commeff.core import overflow, overlap
from commeff.core.strategy import Strategy
from commeff.parallelism.foreign import AnyMesh
from commeff.parallelism.precision import LossScale
from commeff.parallelism.precision import precision as named_precision
from commeff.replicas.arrivals import Arrivals
from commeff.training.allocator import keep_freed_memory
from commeff.transforms import BUCKET_MB, bucketed, clipped, fitted

M = TypeVar("M", bound=nn.Module | Sequence[nn.Module])


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
    model : nn.Module or sequence of them
        The model of this process, or its parts, not wrapped in DistributedDataParallel.
    strategy : Strategy
        The method, such as `methods.psgd(...)`.
    seed : int
        The key of the method's randomness.
    group : ProcessGroup, optional
        The processes; the default group unless given.
    mesh : Mesh or DeviceMesh, optional
        The processes of all workers, where each lies on several. With a `Mesh` the model is this process's piece of its
        worker, split over tensor ranks, or what a `Pipeline`, which then goes backward, has left of it; shard ranks
        each backward their share of the worker's batch, all equally large. With a DeviceMesh, or DTensors, you have
        split the model yourself, by fully_shard, parallelize_module, or stages of a pipeline, over other axes than the
        workers': gradients are yours until the step, and sent then.
    axis : str
        The axis of a DeviceMesh that is the workers'.
    zero : int
        What shard ranks share (ZeRO): 0 nothing, 1 the states of the method, 2 gradients too, which backward then takes
        away from the parameters, bucket by bucket, 3 parameters too (FSDP2, which is put on the model here; see
        `commeff.parallelism.fully` for its units).
    precision : str
        In which the model computes: "fp32", as it is, "bf16" or "fp16". Inputs have to be given in it, the loss best
        taken in 32 bits, and for fp16 multiplied by a scale: `optimizer.scaled(loss).backward()`.
    pieces : {"own"}, optional
        Over a split model, let what is not exact on pieces (`commeff list --long`), such as top-k, act within a piece;
        what all its ranks hold is one.
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
    copied : int
        Bytes of parameters that lie here twice: those whose memory is not ours, DTensors and other dtypes, are copied
        after each step.

    Raises
    ------
    ValueError
        There is no process group, something else keeps workers equal (DDP, or FSDP over their axis), or the strategy
        does not fit the model, a split one, or the number of processes.
    """

    def __init__(
        self,
        model: Models,
        strategy: Strategy,
        *,
        seed: int = 0,
        group: Any = None,
        mesh: AnyMesh | None = None,
        axis: str = "dp_replicate",
        zero: int = 1,
        precision: str = "fp32",
        pieces: Literal["own"] | None = None,
        bucket_mb: float = BUCKET_MB,
        clip: float | None = None,
        collective: str = "auto",
    ) -> None:
        dtype, scaled = named_precision(precision)
        holding = Holding(
            model, mesh, axis, group, seed=seed, collective=collective, zero=zero, bucket_mb=bucket_mb, dtype=dtype
        )
        self._holding, self.communicator, self.copied = holding, holding.communicator, holding.copied
        self._scale = LossScale(holding.inner) if scaled else None
        self._row, layout, partition = holding.dealt
        own = self._row.parameters
        strategy = clipped(bucketed(fitted(strategy, partition, pieces), bucket_mb, own, layout), clip)
        self.strategy = strategy
        keep_freed_memory()
        strategy.start(own, layout, self.communicator)
        awaited = self._row.awaited(overlap.awaited(strategy)) if holding.once else ()
        self._arrivals = Arrivals([holding.parameters], holding.computed, awaited)
        self._early = bool(awaited) and strategy.accumulate == 1
        self._row.forget()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._posted = self._sent = self._scaled = False
        self._arrivals.listen(self._arrived if self._early else None)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, of either kind; communication that needs none sets out."""
        if self._sent:
            raise RuntimeError(
                "zero_grad was called after backward, when some gradients had been sent; take the step, or give "
                "bucket_mb=0 to be free to drop them"
            )
        self._arrivals.listen(self._arrived if self._early else None)
        self._row.forget()
        self._post()

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to go backward from: in fp16 many times as large, so that small gradients do not vanish."""
        self._scaled = True
        return loss if self._scale is None else loss * self._scale.value

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One model update of all workers; every process calls it. Returns what the closure does.

        Every trainable parameter must have a gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._scale is not None and not self._scaled:
            raise ValueError("fp16 needs a scale, got a loss without: go backward from optimizer.scaled(loss)")
        if missing := self._row.missing():
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise ValueError(
                f"every trainable parameter must have a gradient, got none for {', '.join(missing[:3])}{more}: a step "
                "would count it as zero; use the parameter in the loss, or freeze it with requires_grad_(False)"
            )
        if (self._sent or self._row.takes) and self._row.changed():
            raise RuntimeError(
                "the gradients were changed after backward, when some of them had been sent; to clip them, give "
                "clip=NORM; to change them otherwise before the step, give bucket_mb=0"
            )
        with torch.no_grad():
            self._post()
            x, gradient = self._row.parameters, self._row.finish()
            finite = None if self._scale is None else self._scale.taken(gradient)
            self._row.load(overflow.step(self.strategy, x, gradient, self.communicator, finite))
        self.communicator.step += 1
        self._begin_anew()
        return loss

    def _post(self) -> None:
        if not self._posted:
            self.strategy.post(self._row.parameters, self.communicator)
            self._posted = True

    def _arrived(self, start: int, stop: int) -> None:
        """Backward has made the gradients of these columns."""
        with torch.no_grad():
            final = self._row.arrived(start, stop)
            self._post()
            for first, last in final if self._scale is None else ():  # scaled ones may not be finite
                self._sent |= overlap.ready(self.strategy, self._row.gradient, first, last, self.communicator)

    def average_into(self, model: M) -> M:
        """Write the mean of all workers' parameters into another model of this kind; every process calls it."""
        self._holding.average_into(model)
        return model

    def state_dict(self) -> dict[str, Any]:
        """The clock, the bill, and what is this process's own: the parameters that it updates, buffers and memory."""
        return {
            "step": self.communicator.step,
            "ledger": self.communicator.ledger.state_dict(),
            "parameters": self._row.parameters.clone(),
            "buffers": {name: buffer.clone() for name, buffer in self._holding.buffers.items()},
            "strategy": self.strategy.state_dict(),
        } | ({} if self._scale is None else {"scale": self._scale.state_dict()})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on the process of the same rank, its parameters too; all of them call it."""
        self.strategy.load_state_dict(state["strategy"])
        self._row.load(state["parameters"])
        if self._scale is not None:
            self._scale.load_state_dict(state["scale"])
        for name, buffer in self._holding.buffers.items():
            buffer.copy_(state["buffers"][name])
        self.communicator.ledger.load_state_dict(state["ledger"])
        self.communicator.step = state["step"]
        self._begin_anew()
