"""A run under way: what decides its future, what it has measured, and which run it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, zeros_like

from commeff.communicator import Communicator, barrier, observe
from commeff.core import overlap
from commeff.core.events import EventClock, Instant
from commeff.core.properties import hold_rates, unclipped_norm
from commeff.core.strategy import Strategy
from commeff.sharding.precision import step_of_finite
from commeff.training.evaluation import Replicas, at_result, measure
from commeff.training.identity import describe, run_identity
from commeff.training.oracle import oracle_of
from commeff.training.participation import Participation
from commeff.training.recorder import Recorder
from commeff.training.returning import attend
from commeff.training.task import Task

Batches = list[tuple[Tensor, ...]]  # one tuple of (w, b, ...) tensors for each accumulated minibatch


@dataclass
class Run:
    """A run under way: everything that decides its future, and what it has measured since the last row.

    Attributes
    ----------
    replicas, strategy, communicator : Stacked or ShardedWorker, Strategy, Communicator
        The models of the hosted workers, the method, started on them, and what connects the workers.
    everybody : Communicator
        What connects all processes of the run: those of the workers, unless workers lie on several.
    losses : (w,)
        The sum of the minibatch losses since the last row.
    counted : int
        The steps since the last row.
    step : int
        The model updates so far.
    seconds : float
        The time that the steps took.
    exposed : float
        The part of it in which this process stood still for others; on a GPU, the host did.
    samples : int
        What all workers together have drawn; differs from the steps where gradients are accumulated.
    row : dict
        The last row of measurements.
    identity, method : str
        Which run this is, and its method, in words.
    began : dict
        What was measured before the first step, where that cannot be done at the end.
    measure_start : callable
        Measures that.
    participation : Participation, optional
        Who takes part in which step; everybody unless given.
    event_clock : EventClock, optional
        Which events a step has, and when; one of all workers unless given.
    now : Instant, optional
        The event that is under way, or the last one, on an event clock.
    sample_seconds : float, optional
        What one process's device takes at its peak for a sample, if that is known.
    """

    replicas: Replicas
    strategy: Strategy
    communicator: Communicator
    everybody: Communicator
    losses: Tensor
    counted: int = 0
    step: int = 0
    seconds: float = 0.0
    exposed: float = 0.0
    samples: int = 0
    row: dict[str, Any] = field(default_factory=dict)
    identity: str = ""
    method: str = ""
    began: dict[str, float] = field(default_factory=dict)
    measure_start: Callable[[], dict[str, float]] = dict
    participation: Participation | None = None
    event_clock: EventClock | None = None
    now: Instant | None = None
    sample_seconds: float | None = None

    @classmethod
    def start(
        cls, replicas: Replicas, strategy: Strategy, communicator: Communicator, everybody: Communicator | None = None
    ) -> Run:
        """A run at step 0, its strategy started."""
        if replicas.parameters.is_cuda:
            torch.cuda.reset_peak_memory_stats(replicas.parameters.device)
        identity = run_identity(strategy, communicator.n, communicator.seed, replicas.layout)
        method = describe(strategy)
        strategy.start(replicas.parameters, replicas.layout, communicator)
        losses = zeros_like(replicas.parameters[:, 0])
        return cls(
            replicas, strategy, communicator, everybody or communicator, losses, identity=identity, method=method
        )

    def events(self, step: int) -> Iterator[Instant | None]:
        """The model updates of a step, with the communicator's clock at each: one, of all, unless on an event clock."""
        communicator = self.communicator
        if self.event_clock is None:
            communicator.step = step
            yield None
            return
        *early, last = self.event_clock.events(step)
        for event in (*early, last):
            hold_rates(self.strategy.local, event is not last)
            self.now = event
            communicator.begin(event.number, finished=event.finished)
            self.replicas.active = None if event.finished is None else event.finished[list(communicator.workers)]
            yield event
        communicator.begin(communicator.step)  # between two steps nobody is late
        self.replicas.active = None
        self.step = step + 1

    def gather_workers(self) -> None:
        """See who takes part in the step to come. Where all others agree, those who return get what they agree on."""
        if self.participation is None:
            return
        before = self.replicas.parameters
        x = attend(self.strategy, before, self.communicator, self.participation.present)
        self.replicas.active = self.communicator.context.active
        if x is not before:
            self.replicas.load(x)

    def draw(self, task: Task) -> Batches:
        """The minibatches of the hosted workers for this step."""
        rounds, workers = self.strategy.accumulate, self.communicator.workers
        if self.now is not None and self.now.finished is not None:
            finished, counts = self.now.finished, self.now.counts
            steps = {worker: counts[worker] * rounds for worker in workers if finished[worker]}
            batches = [_batch_of_each(task, workers, steps, r) for r in range(rounds)]
        else:
            batches = [task.batch(self.communicator.step * rounds + r, workers) for r in range(rounds)]
        self.samples += self.present_count * sum(len(batch[0][0]) for batch in batches)
        return batches

    def gradient(self, loss: Any, batches: Batches, l2: float = 0.0) -> Tensor:
        """The gradients (w, d) of the mean loss at the parameters, l2 x added; what can be sent meanwhile is sent."""
        self.strategy.post(self.replicas.parameters, self.communicator)
        awaited = overlap.awaited(self.strategy) if self.communicator.transport.size > 1 else ()
        gradient, losses = self.replicas.compute(loss, batches, self.communicator.step, l2, awaited, self._ready)
        self.communicator.context.losses = losses
        if self.now is not None and self.now.finished is not None:  # the mean is over gradients, not over events
            weights = self.communicator.n * self.now.finished[list(self.communicator.workers)].to(losses)
            self.losses, self.counted = self.losses + weights * losses, self.counted + self.present_count
        elif self.communicator.context.active is None:
            self.losses, self.counted = self.losses + losses, self.counted + 1
        elif self.present_count:  # the mean over workers is that over those who are there
            weights = self.communicator.context.active.to(losses) * (self.communicator.n / self.present_count)
            self.losses, self.counted = self.losses + weights * losses, self.counted + 1
        return gradient

    @property
    def present_count(self) -> int:
        """How many workers have a gradient in this step."""
        return int(self.communicator.context.finished.sum())

    def _ready(self, start: int, stop: int) -> None:
        overlap.ready(self.strategy, self.replicas.gradients, start, stop, self.communicator)

    def update(self, task: Task, batches: Batches, gradient: Tensor, l2: float = 0.0) -> None:
        """The strategy's step with the gradient of these minibatches."""
        replicas, strategy, communicator = self.replicas, self.strategy, self.communicator
        x, finite = replicas.parameters, replicas.finite
        if strategy.needs_oracle:
            oracle = oracle_of(task, replicas, batches, communicator.step, l2)
            x = strategy.step(x, gradient, communicator, oracle)
        elif finite is None:
            x = strategy.step(x, gradient, communicator, donate=True)
        else:
            x = step_of_finite(strategy, x, gradient, communicator, finite)
        self.finish_step(x)

    def finish_step(self, x: Tensor) -> None:
        """Take over the parameters after an event, which is a step unless there is an event clock."""
        self.replicas.load(x)
        if self.event_clock is None:
            self.step = self.communicator.step + 1

    @contextmanager
    def clock(self) -> Iterator[None]:
        """Count what is done inside as seconds of training."""
        begin, waited = time.perf_counter(), self.communicator.transport.waited
        yield
        self.seconds += time.perf_counter() - begin
        self.exposed += self.communicator.transport.waited - waited

    def meet(self) -> None:
        """Wait for this device and for all processes: a step is over when it is over everywhere."""
        with self.clock():
            torch.get_device_module(self.losses.device).synchronize()
            barrier(self.everybody)

    def record(self, task: Task, recorder: Recorder | None) -> dict[str, Any]:
        """A new row: the mean minibatch loss since the last one, and how well the average model does."""
        mean_loss = float(observe(self.everybody, self.losses / max(1, self.counted)))
        self.losses, self.counted = zeros_like(self.losses), 0
        before, self.row = self.row, {"step": self.step, "minibatch_loss": mean_loss, "lr": self.strategy.local.lr}
        self.row |= {"seconds": self.seconds, "samples": self.samples}
        self.row |= {"epoch": self.samples / task.size} if task.size else {}
        self.row |= {"events": self.now.number + 1, "simulated_seconds": self.now.seconds} if self.now else {}
        with self.replicas.uncounted(), at_result(self.replicas, self.strategy, self.communicator), self.agreeing():
            self.row |= measure(task, self.replicas, self.communicator)
        self.row |= self._sent() | self._gradient_norm() | peak_memory(self.losses.device)
        samples, seconds = (self.row[name] - before.get(name, 0) for name in ("samples", "seconds"))
        if self.sample_seconds is not None and seconds:  # model FLOP utilisation since the row before
            self.row |= {"mfu": samples * self.sample_seconds / (seconds * self.everybody.transport.size)}
        if self.everybody.transport.size > 1:
            self.row |= {"exposed_seconds": self.exposed}
        if recorder:
            recorder.write(self.row)
        return self.row

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """While it is measured, absent workers of a method whose workers agree are where the others are, in the mean.

        Theirs are models of the past, which nobody will use: they get another when they return.
        """
        active, x = self.communicator.context.active, self.replicas.parameters
        if active is None or not self.present_count or not self.strategy.agrees():
            yield
            return
        away, weights = ~active.to(x.device), active.to(x.device, x.dtype)[:, None]
        before = x[away].clone()
        scale = self.communicator.n / self.present_count
        mean = scale * observe(self.communicator, torch.where(away[:, None], 0.0, x * weights))
        x[away] = mean.to(x)
        self.replicas.load(x)
        yield
        x[away] = before
        self.replicas.load(x)

    def _gradient_norm(self) -> dict[str, float]:
        """The norm that a clip bounded in the last step, before; nothing where a step may be without some workers."""
        norm = unclipped_norm(self.strategy.gradients)
        if norm is None or self.participation or self.event_clock or self.replicas.finite is not None:
            return {}
        return {"gradient_norm": float(observe(self.communicator, norm.expand(len(self.losses), 1)))}

    def _sent(self) -> dict[str, float]:
        """What a worker has sent: its pieces together, if it lies on several processes, and inside it by axis."""
        ledger = self.communicator.ledger
        sent: dict[str, float] = {"payload_bytes": ledger.payload_bytes, "wire_bytes": ledger.wire_bytes}
        if not (inside := self.replicas.inside):
            return sent
        sent |= {f"{name}_bytes": count for name, (count, _) in inside.items()}
        seconds = {f"{name}_exposed_seconds": waited for name, (_, waited) in inside.items()}
        pieces = self.everybody.n // self.communicator.n
        totals = pieces * observe(self.everybody, torch.tensor([[*sent.values()]], dtype=torch.float64))
        return dict(zip(sent, map(round, totals.tolist()), strict=True)) | seconds


def peak_memory(device: torch.device) -> dict[str, int]:
    """What torch had allocated at most on this process's GPU since the run was started.

    Nothing on a CPU: the system counts what a process has had, with libraries and the runs before, not what a run has.
    """
    return {"peak_memory_bytes": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {}


def _batch_of_each(task: Task, workers: Sequence[int], steps: Mapping[int, int], r: int) -> tuple[Tensor, ...]:
    """The minibatches (w, b, ...), the r-th of its step for each of some workers; what others have is not looked at."""
    drawn = {worker: task.batch(step + r, [worker]) for worker, step in steps.items()}
    other = next(iter(drawn.values())) if drawn else task.batch(r, workers[:1])
    return tuple(torch.cat(parts) for parts in zip(*(drawn.get(worker, other) for worker in workers), strict=True))
