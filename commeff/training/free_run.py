"""A run of processes that do not wait for each other: each computes at its own pace, and they write down their order.

A process has one worker and two threads. One computes: a gradient at its row, then a line in the `Order`, then it waits
until its row has moved. The other follows the order, event by event as all processes do, and steps the strategy: most
events are of others and cost it nothing, and in those that it has a part in it exchanges with them, while the first one
computes. So nobody waits for a gradient of another. What happens is a function of the order alone, which `Replay` plays
again on simulated workers.
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import Condition, Thread
from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.core.events import WaitsFor
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
        Seconds without any event after which a process gives up.

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
    communicator.meet()
    follower = _Follower(strategy, communicator, replicas.parameters.clone(), Order(order, communicator.n, waits_for))
    thread = Thread(target=follower.run, args=(steps, patience), daemon=True)
    begin = time.perf_counter()
    thread.start()
    own, samples = 0, 0
    while not follower.over:
        batch = task.batch(own, communicator.workers)
        gradient, _ = replicas.compute(task.loss, [batch], own)
        x = follower.finish(gradient, time.perf_counter() - begin, waits_for)
        if x is None:
            break
        replicas.load(x)
        own, samples = own + 1, samples + len(batch[0][0])
    thread.join()
    if follower.error is not None:
        raise follower.error
    seconds = time.perf_counter() - begin
    replicas.load(follower.x)
    with at_result(replicas, strategy, communicator):
        row = measure(task, replicas, communicator) | measure_final(task, replicas, communicator, {})
    total = communicator.n * float(communicator.observe(torch.tensor([[float(samples)]])))
    sent = {"payload_bytes": communicator.ledger.payload_bytes, "wire_bytes": communicator.ledger.wire_bytes}
    return {"steps": steps, "events": follower.events, "samples": round(total), "seconds": seconds} | row | sent


class _Follower:
    """Steps a process's strategy by the order; hands its worker the gradient's place in it and the row that follows."""

    def __init__(self, strategy: Strategy, communicator: Communicator, x: Tensor, order: Order) -> None:
        self._strategy, self._communicator, self._order = strategy, communicator, order
        (self._worker,) = communicator.workers
        self._news, self._gradient = Condition(), torch.zeros_like(x)
        self._period, self._own, self._exchanges = order.waits_for.period, 0, 0
        self.x, self.events, self.over = x, 0, False
        self.error: BaseException | None = None

    def finish(self, gradient: Tensor, seconds: float, waits_for: WaitsFor) -> Tensor | None:
        """Write down that the worker has a gradient; its row once it has been used, None if the run is over."""
        with self._news:
            if self.over:
                return None
            self._gradient.copy_(gradient)
            before, grace = self._own, waits_for.grace if (self._own + 1) % waits_for.period == 0 else None
            self._order.append(self._worker, seconds)
            while not self._news.wait_for(lambda: self.over or self._own > before, grace):
                self._order.append(f"{OVER}{self._exchanges}", seconds)
            return self.x.clone() if self._own > before else None

    def run(self, steps: int, patience: float) -> None:
        """Follow the order to the end of the run."""
        try:
            with torch.no_grad():
                self._follow(steps, patience)
        except BaseException as error:  # is raised by the worker's thread
            self.error = error
        with self._news:
            self.over = True
            self._news.notify_all()

    def _follow(self, steps: int, patience: float) -> None:
        communicator, n = self._communicator, self._communicator.n
        for event in self._order.events(follow=patience):
            if sum(event.counts) >= steps * n:
                return
            communicator.step, communicator.finished = event.number, event.finished
            x = self._strategy.step(self.x, self._gradient, communicator)
            done = [] if event.finished is None else event.finished.nonzero().flatten().tolist()
            with self._news:
                self.x, self.events = x, event.number + 1
                self._own += self._worker in done
                self._exchanges += any((event.counts[worker] + 1) % self._period == 0 for worker in done)
                self._news.notify_all()
        raise TimeoutError(
            f"an event must come within {patience:g} s, got none: another process has ended or stands still"
        )
