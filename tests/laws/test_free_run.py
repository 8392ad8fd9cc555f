"""Processes that do not wait for each other write down their order, and a replay of it gives the same bits."""

from __future__ import annotations

import time
from functools import partial
from threading import Event

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, methods, scheduled, topologies, train
from commeff.core.events import WaitsFor
from commeff.experiments.tasks import Quadratic
from commeff.training.free_run import free_run
from commeff.training.order import OVER, Order, Replay
from tests.laws.processes import on_processes
from tests.laws.test_resume import same

N, STEPS = 3, 8
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.3)
HALVING = scheduled(SGD, partial(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.5))
METHODS = {
    "ad_psgd": lambda: methods.ad_psgd(SGD, topologies.complete(N), seed=2),
    "async_sgd": lambda: methods.async_sgd(SGD, patience=1.0),
    "quorum": lambda: methods.quorum_local_sgd(SGD, period=2, quorum=0.6),
    "grace": lambda: methods.quorum_local_sgd(SGD, period=2, quorum=1.0, grace=0.003),
    "no grace": lambda: methods.quorum_local_sgd(HALVING, period=2, quorum=1.0, grace=0.0),
    "schedule": lambda: methods.async_sgd(HALVING),
    "stale_dsgd": lambda: methods.stale_dsgd(SGD, topologies.complete(N)),
}


class Uneven(Quadratic):
    """The last worker begins its k-th gradient once 5 k events are there, which the others have to come to without it.

    From the third on it waits for 15, which any run comes to: of the gradients of a worker at least every other one is
    an event of its own, the rest are at most three an event, so that 24 gradients are at least 12 + 12 / 3 = 16 events.
    """

    order: Order

    def batch(self, step, workers):
        while N - 1 in workers and len(list(self.order.events())) < min(5 * (step + 1), 15):
            time.sleep(0.001)
        return super().batch(step, workers)


def task(kind=Quadratic):
    return kind(workers=N, dimension=6, sigma=0.3, dtype="float64", seed=1)


@pytest.fixture(scope="module")
def free(tmp_path_factory):
    """What each process of each method found, and the order."""
    folder = tmp_path_factory.mktemp("orders")

    def all_of_them():
        found = {}
        for name, make in METHODS.items():
            strategy = make()
            communicator = Communicator(N, seed=3, group=dist.group.WORLD)
            uneven = task(Uneven)
            uneven.order = Order(folder / f"{name}.csv", N, strategy.waits_for)
            summary = free_run(uneven, strategy, communicator, steps=STEPS, order=uneven.order.path)
            state = strategy.state_dict()
            found[name] = summary, state, communicator.ledger.payload_bytes, strategy.local.lr
        return found

    return folder, on_processes(N, all_of_them)


@pytest.mark.parametrize("name", METHODS)
def test_a_replay_gives_the_same_bits(free, name):
    folder, ranks = free
    strategy = METHODS[name]()
    order = Order(folder / f"{name}.csv", N, strategy.waits_for)
    replay, communicator = Replay(order), Communicator(N, seed=3)
    assert replay.steps >= STEPS
    summary = train(task(), strategy, communicator, steps=STEPS, event_clock=replay)
    memories = strategy.state_dict()
    for rank, found in enumerate(ranks):
        other, state, sent, rate = found[name]
        assert rate == strategy.local.lr
        assert other["events"] == summary["events"]
        assert sent == communicator.ledger.payload_bytes
        assert other["train_loss"] == pytest.approx(summary["train_loss"], rel=1e-12)
        for kept in (kept for kept in state if kept.startswith("parameters/")):
            mine, theirs = state[kept], memories[kept]
            apart = torch.is_tensor(mine) and mine.shape != theirs.shape
            same(mine, theirs[rank : rank + 1] if apart else theirs, kept)
    of_server = {kept for kept in memories if kept.startswith("parameters/server/model/")}
    assert of_server <= ranks[0][name][1].keys()


def test_nobody_waited_for_the_slow_one(free):
    """Who would have waited for it would have waited for ever."""
    folder, ranks = free
    for name in METHODS:
        events = list(Order(folder / f"{name}.csv", N, METHODS[name]().waits_for).events())
        for k in (1, 2, 3):
            assert sum(int(event.finished[N - 1]) for event in events[: 5 * k]) < k
        assert ranks[0][name][0]["samples"] >= STEPS * N
    assert OVER in (folder / "grace.csv").read_text()


def test_nobody_says_twice_that_an_exchange_is_over(free):
    """With a grace of no time neither: the order would fill with it while nothing happens."""
    folder, _ = free
    for name in ("grace", "no grace"):
        lines = (folder / f"{name}.csv").read_text().splitlines()
        said = [line.split(",")[0] for line in lines if line.startswith(OVER)]
        assert 0 < max(map(said.count, said), default=0) <= N, name


def test_an_order_is_read_as_it_grows(tmp_path):
    order = Order(tmp_path / "order.csv", 3, WaitsFor(period=2, quorum=2 / 3))
    lines = [1, 1, 0, 2, 0, 2, f"{OVER}7", f"{OVER}1"]
    for k, who in enumerate(lines):
        order.append(who, 0.25 * k)
    events = [(event.seconds, event.finished.nonzero().flatten().tolist(), event.counts) for event in order.events()]
    assert events == [
        (0.0, [1], (0, 0, 0)),
        (0.5, [0], (0, 1, 0)),
        (0.75, [2], (1, 1, 0)),
        (1.0, [0, 1], (1, 1, 1)),
        (1.75, [2], (2, 2, 1)),
    ]  # 2 waited alone until the second exchange was over; there is no eighth


@pytest.mark.parametrize(
    ("method", "words"),
    [(methods.psgd(SGD), "workers go on by themselves"), (methods.async_sgd(SGD), "one worker on each process")],
)
def test_what_cannot_run_free_is_refused(method, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        free_run(task(), method, Communicator(N), steps=2, order=tmp_path / "order.csv")


def test_a_run_of_one_is_a_run(tmp_path):
    alone, path = Communicator(1), tmp_path / "order.csv"
    one = Quadratic(workers=1, dimension=6, sigma=0.3, dtype="float64", seed=1)
    found = free_run(one, methods.async_sgd(SGD), alone, steps=5, order=path)
    expected = train(one, methods.psgd(SGD), Communicator(1), steps=5)
    assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-12)
    assert (found["events"], found["samples"]) == (5, expected["samples"])
    with pytest.raises(ValueError, match="order must be a new file"):
        free_run(one, methods.async_sgd(SGD), alone, steps=5, order=path)
    stuck, again = Stuck(workers=1, dimension=6, seed=1), tmp_path / "again.csv"
    with pytest.raises(TimeoutError, match="an event must come within"):
        free_run(stuck, methods.async_sgd(SGD), alone, steps=5, order=again, patience=0.05)


def test_an_exchange_that_stands_still_ends_the_run(tmp_path, monkeypatch):
    """As where another process is halted in it, which breaks no connection."""
    strategy, goes_on = methods.async_sgd(SGD), Event()
    monkeypatch.setattr(strategy, "step", lambda x, gradient, communicator: x if goes_on.wait() else None)
    alone = Quadratic(workers=1, dimension=6, seed=1)
    with pytest.raises(TimeoutError, match="an exchange must end within"):
        free_run(alone, strategy, Communicator(1), steps=1, order=tmp_path / "order.csv", patience=0.05)
    goes_on.set()


class Stuck(Quadratic):
    """Whose second minibatch takes longer than anybody waits for."""

    def batch(self, step, workers):
        time.sleep(0.3 * (step > 0))
        return super().batch(step, workers)
