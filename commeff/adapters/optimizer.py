"""Any method of the catalogue in a plain PyTorch loop: three lines change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from commeff.adapters.gradients import Gradients, read_grad_scaler
from commeff.adapters.groups import Grouping, Groups, options_of, states_of
from commeff.adapters.holding import Holding, Models, compare, distinct, merged, origin
from commeff.adapters.weights import Weights
from commeff.compressors.scratch import keep_freed_memory
from commeff.core import overlap
from commeff.core.addresses import Address
from commeff.core.properties import evaluates_elsewhere, kind_of, learner_of, unclipped_norm
from commeff.core.saving import Fresh
from commeff.core.strategy import Strategy
from commeff.sharding.foreign import AnyMesh
from commeff.sharding.pieces import fitted
from commeff.sharding.precision import LossScale, named_precision, step_of_finite
from commeff.transforms import BUCKET_MB, bucketed, clipped

M = TypeVar("M", bound=nn.Module | Sequence[nn.Module])


class DistributedOptimizer(Optimizer):
    """The optimizer of one model on each of n processes, which are the n workers of a strategy.

        model = Net()                                                        # not wrapped in DDP
        strategy = methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(dist.get_world_size()))
        optimizer = commeff.DistributedOptimizer(model, strategy)
        for inputs, targets in loader:                                       # each process its own data
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()

    It is a torch optimizer, whose `param_groups` are the method's local step's: torch's schedulers move their rates, if
    no `commeff.scheduled` in the strategy does, and `torch.amp.GradScaler` takes it: a gradient that is not finite has
    no part in a step. Its worker's step is left out where gradients stay with their worker, that of all where they
    travel.

    Where a method averages gradients, they are sent while backward still runs, from the second step on: the first one
    shows whether they are final then. They are not where a GradScaler divides them, or backward comes several times
    before a step, unless all of these but the last are within `no_sync()`; they are all sent at the step then. To clip
    the average give `clip`; gradients changed by hand between backward and step are refused, as their average would be
    another one, unless bucket_mb=0 says that they are yours until the step. Where gradients stay with their worker, and
    that is one process, they are yours anyway.

    All models begin as that of rank 0, buffers and frozen parameters too. From there on a worker's parameters are its
    own, wherever the method lets them differ: evaluate `average_into(another model)`. A method over several minibatches
    a step (`strategy.accumulate`) wants as many backward passes, each of its loss divided by their number.

    Without a process group, in a script that nothing has started several times, the process is the only worker.

    Parameters
    ----------
    model : nn.Module or sequence of them
        The model of this process, or its parts, not wrapped in DistributedDataParallel.
    strategy : Strategy
        The method, such as `methods.psgd(...)`.
    groups : sequence of dict, or callable, optional
        Parameter groups, as torch's optimizers take them: dicts with "params" and options that differ from those of the
        method's optimizer, such as weight_decay; or a group's number, from a parameter's name and itself. Those of a
        model that is split may have been made before that.
    seed : int
        The key of the method's randomness.
    group : ProcessGroup, optional
        The processes; the default group unless given.
    mesh : Mesh or DeviceMesh, optional
        The processes of all workers, where each lies on several. With a `Mesh` the model is this process's piece of its
        worker, split over tensor ranks, or what a `Pipeline`, which then goes backward, has left of it; shard ranks
        each backward their share of the worker's batch, all equally large, or of their loss shard * len(own) /
        len(batch). With a DeviceMesh, or DTensors, you have split the model yourself, by fully_shard, by
        parallelize_module or into stages, over other axes than the workers': gradients are yours until the step, and
        sent then.
    axis : str
        The axis of a DeviceMesh that is the workers'.
    zero : int
        What shard ranks share (ZeRO): 0 nothing, 1 the states of the method, 2 gradients too, which backward then takes
        away from the parameters, bucket by bucket, 3 parameters too (FSDP2, which is put on the model here; see
        `commeff.sharding.fully` for its units).
    precision : str
        In which the model computes: "fp32", as it is, "bf16", "fp16", or "bf16_reduce_fp32": as "bf16", but shard ranks
        sum gradients in float32, with twice the bytes. In 16 bits inputs have to be given in that type, the loss best
        taken in 32 bits, and for fp16 multiplied by a scale: `optimizer.scaled(loss).backward()`.
    pieces : {"own"}, optional
        Over a split model, let what is not exact on pieces (`commeff list --long`), such as top-k, act within a piece;
        what all its ranks hold is one.
    bucket_mb : float
        About how many megabytes of gradients travel together; 0: all of them, after backward, however often it came.
    clip : float, optional
        The largest norm of a gradient: of the average where the method averages gradients, else of the worker's own.
    collective : str
        How averages travel, as in `Communicator`.
    find_unused_parameters : bool
        Whether parameters that a step's loss does not depend on have a gradient of zero, as in DDP; they are refused
        otherwise.

    Attributes
    ----------
    communicator : Communicator
        With the ledger of what this worker has sent, and the clock `step`.
    strategy : Strategy
        The method, in buckets.
    param_groups : list of dict
        The parameters and the options of the step to come, to be written.
    state : dict
        What the local step remembers of each parameter that this process updates, in copies.
    copied : int
        Bytes of parameters that lie here twice: those whose memory is not ours, DTensors and other dtypes, are copied
        after each step.

    Raises
    ------
    ValueError
        There is no process group where several processes were started, something else keeps workers equal (DDP, or FSDP
        over their axis), or the strategy does not fit the model, a split one, or the number of processes.
    """

    _step_supports_amp_scaling = True  # a GradScaler always calls the step, which must be one of all workers
    _complete = _averaged = False

    def __init__(
        self,
        model: Models,
        strategy: Strategy,
        *,
        groups: Groups | None = None,
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
        find_unused_parameters: bool = False,
    ) -> None:
        if not isinstance(strategy, Strategy):
            raise TypeError(
                f"strategy must be a method, got a {type(strategy).__name__}: a torch optimizer goes into one; give "
                "methods.psgd(functools.partial(torch.optim.SGD, lr=0.1))"
            )
        if strategy.compares:
            raise ValueError(
                "the method must need nothing but gradients where they are, got one that compares them with others of "
                "the same batch: DistributedOptimizer cannot re-evaluate your loss; use commeff.train, or diana"
            )
        if (learner := learner_of(strategy.local)) is not None:
            raise ValueError(
                f"the method's optimizer must need nothing but gradients, got {learner.kind}: "
                "DistributedOptimizer does not know the curvature of your loss; use commeff.train, or AdamW"
            )
        if evaluates_elsewhere(strategy.local):
            raise ValueError(
                f"the method's optimizer must be evaluated where it is trained, got {kind_of(strategy.local)}: the "
                "model holds where gradients are taken, which is not the result; use commeff.train, or AdamW with a "
                "schedule"
            )
        scaled = named_precision(precision).scaled
        holding = Holding(
            model,
            mesh,
            axis,
            group,
            seed=seed,
            collective=collective,
            zero=zero,
            bucket_mb=bucket_mb,
            precision=precision,
        )
        self._holding, self.communicator = holding, holding.communicator
        self._scale = LossScale(holding.inner) if scaled else None
        self._row, layout, partition = holding.local_part
        self.copied = self._row.copied
        grouping = Grouping(holding.parameters, groups)
        self._layout = layout = grouping.of(layout)
        parameters = self._row.parameters
        self._original, strategy.driver = strategy, self.communicator
        strategy = clipped(bucketed(fitted(strategy, partition, pieces), bucket_mb, parameters, layout), clip)
        self.strategy = strategy
        keep_freed_memory()
        strategy.start(parameters, layout, self.communicator)
        super().__init__(grouping.begin(strategy.local), next(iter(strategy.local.options.values())))
        self._complete, self._options = True, strategy.local.options
        self._gradients = Gradients(
            holding, strategy, bucket_mb > 0, scaled, self._take_options, find_unused_parameters
        )
        self._weights, self._scaled = Weights(holding, strategy), False

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("an optimizer of several processes must not be copied or pickled: save its state_dict()")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused, once the optimizer is made: the method has memories of the parameters that it began with."""
        if self._complete:
            raise ValueError(
                "parameter groups must be given at the beginning, got another one: the method remembers what it began "
                "with; make the optimizer anew, with groups="
            )
        super().add_param_group(param_group)

    @property
    def state(self) -> defaultdict[Tensor, Any]:
        """What the local step remembers of each parameter that this process updates, in copies."""
        return states_of(self.strategy.local, self._holding.parameters, self._layout)

    @state.setter
    def state(self, state: Any) -> None:
        """torch's optimizers begin with none."""

    def _take_options(self) -> None:
        """Let the local step have what was written into the groups."""
        self._refuse_average()
        options = options_of(self.param_groups)
        if options != self._options:
            if self._gradients.sent:
                raise RuntimeError(
                    "the options of parameter groups must not change between backward and step, where gradients have "
                    "been sent already: move a scheduler after the step, or give bucket_mb=0"
                )
            self.strategy.local.options = options
            self._options = options

    def _refuse_average(self) -> None:
        """Refuse what needs this worker's model while the average one is in its place."""
        if self._averaged:
            raise RuntimeError("within averaged() the model is not this worker's: leave it to train, save or load")

    def _show_options(self) -> None:
        """Let the groups have what the method's own schedule has moved."""
        for g, options in self.strategy.local.options.items():
            self.param_groups[g].update(options)
        self._options = options_of(self.param_groups)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, or make them zero; communication that needs none sets out."""
        self._gradients.forget(set_to_none)

    def no_sync(self) -> AbstractContextManager[None]:
        """Around every backward pass of a step but the last, as in DDP: what the last one completes is sent meanwhile.

        Without it the first step shows that several passes come, and all is sent at the step, to the same result.
        """
        return self._gradients.accumulating()

    @property
    def gradient_norm(self) -> Tensor | None:
        """The norm that `clip` bounded in the last step, before it did, a number; None: nothing was clipped."""
        norm = unclipped_norm(self.strategy.gradients)
        return None if norm is None else norm[0, 0]

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to go backward from: in fp16 many times as large, so that small gradients do not vanish."""
        self._scaled = True
        return loss if self._scale is None else loss * self._scale.value

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One model update of all workers; every process calls it. Returns what the closure does.

        Every trainable parameter must have a gradient, unless find_unused_parameters was given. The gradients that are
        there afterwards mean nothing: call `zero_grad` before the next backward.
        """
        self._refuse_average()
        with torch.enable_grad():
            loss = None if closure is None else closure()
        if self._scale is not None and not self._scaled:
            raise ValueError("fp16 needs a scale, got a loss without: go backward from optimizer.scaled(loss)")
        stay = not (self._gradients.consumed or self._scale is not None or self._holding.inner)
        overflown, factor, writes = read_grad_scaler(
            self, len(self._holding.parameters), self._row.parameters.device, stay
        )
        if self._original.driver is not self.communicator:
            raise RuntimeError(
                "a strategy must have one optimizer, got one that another optimizer was made with since: it remembers "
                "one model; build it anew for each"
            )
        self._weights.check()
        self._gradients.check(writes)
        if self._weights.replaced():
            self._begin_anew()
        with torch.no_grad():
            self._gradients.post()
            x, gradients = self._row.parameters, [self._row.finish()]
            finite = None if overflown is None else not bool(overflown)
            if self._scale is not None:
                finite = self._scale.unscale(gradients[0])
            if factor is not None:
                gradients[0].div_(factor)
            if finite is None:  # the step lets go of the gradient as soon as it can
                x = self.strategy.step(x, gradients.pop(), self.communicator, donate=True)
            else:
                x = step_of_finite(self.strategy, x, gradients.pop(), self.communicator, finite)
            self._row.load(x)
        self._weights.settled()
        self._gradients.learn(overflown is None)
        self._show_options()
        self.communicator.step += 1
        self._scaled = False
        self._gradients.begin()
        return loss

    def _begin_anew(self) -> None:
        """Take the weights that are there now for those before the first step."""
        overlap.drain(self.strategy.parameters)  # of what has set out of other weights
        local, x = self.strategy.local, self._row.parameters
        local.start(x, self._layout)
        if local.options != self._options:
            local.options = self._options
        self.strategy.parameters.start(x, self._layout, self.communicator.child("parameters"))

    def average_into(self, model: M, calibrate: Iterable[Any] | None = None) -> M:
        """Make another model of this kind the average one, the same at every process; every process calls it.

        Parameters
        ----------
        model : nn.Module or sequence of them
            Gets the mean of all workers' parameters, and of their buffers: BatchNorm's statistics, for example. Buffers
            that are no floating-point numbers, such as counts, are those of the first worker. A new model, split as the
            first was, or a copy, which zero=3 cannot make.
        calibrate : iterable of Tensor or (Tensor, ...), optional
            Minibatches of this worker's training data, augmented as in training; the first or only tensor is the input.
            The average model estimates BatchNorm statistics on them, which are then averaged over the processes: the
            mean of the workers' own statistics is not what it would see.
        """
        self._holding.average_into(model, calibrate)
        return model

    @contextmanager
    def averaged(self, calibrate: Iterable[Any] | None = None) -> Iterator[None]:
        """The model that is trained is the average one meanwhile, to be evaluated, and then again this worker's own.

            with optimizer.averaged():
                evaluate(model)

        No second model is needed, so one that FSDP2 has split is evaluated as it lies; a copy of what this process
        updates is kept. Every process enters and leaves it. Not between backward and step. To train, save or load is
        refused meanwhile.

        Parameters
        ----------
        calibrate : iterable of Tensor or (Tensor, ...), optional
            As in `average_into`.
        """
        if self._gradients.sent:
            raise RuntimeError("averaged must not come between backward and step, where gradients have been sent")
        before, self._averaged = self._averaged, True
        try:
            with self._holding.averaged(calibrate):
                yield
        finally:
            self._averaged = before
            self._weights.restored()

    def state_dict(self) -> dict[str, Any]:
        """The clock, the bill, and what is this process's own: the parameters that it updates, buffers and memory."""
        self._take_options()
        state = {
            "step": self.communicator.step,
            "ledger": self.communicator.ledger.state_dict(),
            "parameters": self._row.parameters.clone(),
            "buffers": {name: distinct(buffer).clone() for name, buffer in self._holding.buffers.items()},
            "strategy": self.strategy.state_dict(),
        }
        scale = {} if self._scale is None else {"scale": self._scale.state_dict()}
        return origin(self.communicator, self._layout) | state | scale

    def load_state_dict(self, state: dict[str, Any] | Sequence[dict[str, Any]]) -> None:
        """Restore what `state_dict` gave on the process of the same rank, its parameters too; all of them call it.

        Given those of all workers, in their order, each takes its own. If there were more or fewer workers, all begin
        at the mean of their parameters and buffers, and what the method and its optimizer remember begins anew, as
        `commeff.train` has it; schedules and the clock go on.
        """
        self._refuse_average()
        current, worker = origin(self.communicator, self._layout), self.communicator.workers[0]
        states = [state] if isinstance(state, Mapping) else [*state]
        anew = not isinstance(state, Mapping) and len(states) != self.communicator.n
        state = merged(states, current) if anew else states[0 if len(states) == 1 else worker]
        compare(state, current, self._row.parameters, self._holding.buffers)
        self._row.load(state["parameters"].to(self._row.parameters))
        if anew:
            self.strategy.start(self._row.parameters, self._layout, self.communicator)
            self.strategy.exchange(Address.of(self._layout.d), Fresh(state["strategy"]))
        else:
            self.strategy.load_state_dict(state["strategy"])
        if self._scale is not None:
            self._scale.load_state_dict(state["scale"])
        for name, buffer in self._holding.buffers.items():
            distinct(buffer).copy_(state["buffers"][name])
        self.communicator.ledger.load_state_dict(state["ledger"])
        self.communicator.step = state["step"]
        self._show_options()
        self._weights.settled()
        self._scaled = False
        self._gradients.begin()
