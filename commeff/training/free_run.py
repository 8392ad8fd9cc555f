"""A run of processes that do not wait for each other: each computes at its own pace, and they write down their order.

A process has one worker and two threads. One computes: a gradient at its row, then a line in the `Order`, then it waits
until its row has moved. The other follows the order, event by event as all processes do, and steps the strategy: most
events are of others and cost it nothing, and in those that it has a part in it exchanges with them, while the first one
computes. So nobody waits for a gradient of another. What happens is a function of the order alone, which `Replay` plays
again on simulated workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator, barrier, observe
from commeff.core.strategy import Strategy
from commeff.replicas import Stacked
from commeff.training.evaluation import at_result, measure, measure_final
from commeff.training.order import OVER, Order
from commeff.training.task import Task

PATIENCE = 60.0  # seconds without any event after which the others count as gone


def free_run(
    task: Task,
    strategy: Strategy,
    communicator: Communicator,
    *,
    steps: int,
    order: str | Path,
    patience: float = PATIENCE,
) -> dict[str, Any]:
    """Train until all workers together have computed `steps` n gradients. Every process of the run calls it.

    Parameters
    ----------
    task : Task
        Model, data and loss; a model that draws random numbers (dropout) repeats in no replay.
    strategy : Strategy
        An asynchronous method, not started.
    communicator : Communicator
        Of one worker on each process.
    steps : int
        Gradients of a worker, in the mean.
    order : path
        Where the order is written down: a file of this machine that is not there yet, the same for all.
    patience : float
        Seconds without any event, or in one exchange, after which a process gives up.

    Returns
    -------
    dict
        As of `train`: `events`, `samples`, what is measured at the end, and `seconds`.
    """
    waits_for = strategy.waits_for
    if waits_for is None:
        raise ValueError("a free run needs a method whose workers go on by themselves, such as ad_psgd or async_sgd")
    if len(communicator.workers) != 1 or strategy.accumulate != 1:
        raise ValueError(
            f"a free run needs one worker on each process and one minibatch a step, got "
            f"{len(communicator.workers)} workers and {strategy.accumulate}: give as many processes as workers"
        )
    if Path(order).exists() and communicator.workers[0] == 0:
        raise ValueError(f"order must be a new file, got {order}, which is there: it would be another run's order")
    replicas = Stacked(task.model, communicator.workers, communicator.seed)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    barrier(communicator)
    written = Order(order, communicator.n, waits_for)
    follower = _Follower(strategy, communicator, replicas.parameters.clone(), written, patience)
    thread = Thread(target=follower.run, args=(steps,), daemon=True)
    begin = time.perf_counter()
    thread.start()
    own, samples = 0, 0
    while not follower.over:
        batch = task.batch(own, communicator.workers)
        gradient, _ = replicas.compute(task.loss, [batch], own)
        x = follower.finish(gradient, time.perf_counter() - begin)
        if x is None:
            break
        replicas.load(x)
        own, samples = own + 1, samples + len(batch[0][0])
    follower.end()
    if follower.error is not None:
        raise follower.error
    seconds = time.perf_counter() - begin
    replicas.load(follower.x)
    with at_result(replicas, strategy, communicator):
        row = measure(task, replicas, communicator) | measure_final(task, replicas, communicator, {})
    total = communicator.n * float(observe(communicator, torch.tensor([[float(samples)]])))
    sent = {"payload_bytes": communicator.ledger.payload_bytes, "wire_bytes": communicator.ledger.wire_bytes}
    return {"steps": steps, "events": follower.events, "samples": round(total), "seconds": seconds} | row | sent


class _Follower:
    """Steps a process's strategy by the order; hands its worker the gradient's place in it and the row that follows."""

    def __init__(
        self, strategy: Strategy, communicator: Communicator, x: Tensor, order: Order, patience: float
    ) -> None:
        self._strategy, self._communicator, self._order = strategy, communicator, order
        (self._worker,) = communicator.workers
        self._news, self._gradient = Condition(), torch.zeros_like(x)
        self._waits_for, self._patience, self._began = order.waits_for, patience, math.inf
        self._own, self._exchanges = 0, 0
        self.x, self.events, self.over = x, 0, False
        self.error: BaseException | None = None

    def finish(self, gradient: Tensor, seconds: float) -> Tensor | None:
        """Write down that the worker has a gradient; its row once it has been used, None if the run is over."""
        with self._news:
            if self.over:
                return None
            self._gradient.copy_(gradient)
            before, period, grace = self._own, self._waits_for.period, self._waits_for.grace
            self._order.append(self._worker, seconds)
            if grace is not None and (before + 1) % period == 0:
                while not self._wait_for(lambda: self.over or self._own > before, grace):
                    self._order.append(f"{OVER}{(ended := self._exchanges)}", seconds)
                    self._wait_for(lambda: self.over or self._own > before or self._exchanges > ended)
            self._wait_for(lambda: self.over or self._own > before)
            return self.x.clone() if self._own > before else None

    def end(self) -> None:
        """Wait until the order has been followed to its end."""
        with self._news:
            self._wait_for(lambda: self.over)

    def _wait_for(self, done: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Whether it was done within so many seconds. An exchange that stands still does not keep the worker."""
        until = time.monotonic() + seconds
        while not self._news.wait_for(done, min(self._patience, max(0.0, until - time.monotonic()))):
            if time.monotonic() - self._began >= self._patience:
                raise TimeoutError(
                    f"an exchange must end within {self._patience:g} s, got no end of it: another process stands still"
                )
            if time.monotonic() >= until:
                return False
        return True

    def run(self, steps: int) -> None:
        """Follow the order to the end of the run."""
        try:
            with torch.no_grad():
                self._follow(steps)
        except BaseException as error:  # is raised by the worker's thread
            self.error = error
        with self._news:
            self.over = True
            self._news.notify_all()

    def _follow(self, steps: int) -> None:
        communicator, n = self._communicator, self._communicator.n
        for event in self._order.events(follow=self._patience):
            if (before := sum(event.counts)) >= steps * n:
                return
            communicator.begin(event.number, finished=event.finished)
            done = [] if event.finished is None else event.finished.nonzero().flatten().tolist()
            self._strategy.local.holds_rate = (before + len(done)) // n == before // n  # it moves once in n gradients
            self._began = time.monotonic()
            x = self._strategy.step(self.x, self._gradient, communicator)
            with self._news:
                self._began = math.inf
                self.x, self.events = x, event.number + 1
                self._own += self._worker in done
                self._exchanges += any((event.counts[worker] + 1) % self._waits_for.period == 0 for worker in done)
                self._news.notify_all()
        raise TimeoutError(
            f"an event must come within {self._patience:g} s, got none: another process has ended or stands still"
        )
