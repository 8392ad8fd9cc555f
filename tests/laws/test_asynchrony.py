"""Methods whose workers do not wait: against their definitions, event by event; on every engine; from any event on."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, methods, topologies
from commeff.cluster.events import OutOfStep
from commeff.cluster.speeds import Speeds
from commeff.core.events import WaitsFor
from commeff.core.properties import own_pace
from commeff.laws.engines import rehearse
from commeff.laws.problem import LAYOUT, slope, start
from commeff.optimizers import ScheduleFreeSGD
from commeff.topologies.meetings import meeting, reading, sides
from commeff.transforms import asynchronous

N, LR, STEPS = 4, 0.05, 6
SGD = partial(torch.optim.SGD, lr=LR)
RING = topologies.ring(N)
ASYNCHRONOUS = {
    "async_sgd": lambda: methods.async_sgd(SGD),
    "async_sgd patient": lambda: methods.async_sgd(partial(SGD, momentum=0.5), patience=1.5),
    "async_local_sgd": lambda: methods.async_local_sgd(SGD, period=2, buffer_size=3),
    "quorum_local_sgd": lambda: methods.quorum_local_sgd(SGD, period=2, quorum=0.5, grace=0.4),
    "ad_psgd": lambda: methods.ad_psgd(SGD, RING),
    "ad_psgd one side": lambda: methods.ad_psgd(SGD, RING, seed=3, one_sided=True),
    "stale_dsgd": lambda: methods.stale_dsgd(partial(SGD, momentum=0.5), RING),
}
DRAWN = Speeds(N, spread=0.5, straggler=3.0, seed=5)
STAGGERED = Speeds(N, staggered=True)


def events_of(strategy, speeds, steps=STEPS):
    clock = OutOfStep(speeds, own_pace(strategy).waits_for)
    return [event for step in range(steps) for event in clock.events(step)]


def drive(strategy, events, communicator=None, x=None, watch=lambda x, gradient, event: None):
    """The rows after the last event. Only those who finish may use their gradient: others' are not numbers."""
    communicator = communicator or Communicator(workers=N, seed=3)
    communicator.ledger.record()
    workers = list(communicator.workers)
    if x is None:
        x = start()[workers]
        strategy.start(x, LAYOUT, communicator)
    for event in events:
        communicator.begin(event.number, finished=event.finished)
        gradient = slope(x, event.number, workers)
        gradient[~event.finished[workers]] = torch.nan
        watch(x, gradient, event)
        x = strategy.step(x, gradient, communicator)
        assert x.isfinite().all()
    return x


def shown(strategy, x, communicator=None):
    return strategy.evaluated(x, communicator or Communicator(workers=N, seed=3))


@pytest.mark.parametrize("speeds", [DRAWN, STAGGERED], ids=["drawn", "staggered"])
def test_asynchronous_sgd_is_its_definition(speeds):
    strategy, y, read, due = methods.async_sgd(SGD), start()[0], start(), []
    for event in events_of(strategy, speeds):
        here = event.finished
        y = y - LR * slope(read, event.number)[here].mean(0)
        read[here] = y
        due.append(y)
    assert len(due) > STEPS
    x = drive(strategy, events_of(strategy, speeds))
    assert (x - read).abs().max() <= 1e-12
    assert (shown(strategy, x) - due[-1]).abs().max() <= 1e-12


def test_staleness_is_what_the_clock_predicts():
    robin = methods.async_sgd(SGD)
    drive(robin, events_of(robin, STAGGERED))
    assert robin.parameters.staleness.tolist() == [N - 1] * N  # everybody else comes once in between
    for k in (2, 5):
        slow = methods.async_sgd(SGD)
        drive(slow, events_of(slow, Speeds(N, straggler=float(k)), steps=2 * k))
        assert slow.parameters.staleness.tolist() == [0] * (N - 1) + [k - 1]  # the fast ones come together
    drawn, read, found = methods.async_sgd(SGD), [0] * N, [0] * N
    events = events_of(drawn, DRAWN)
    for k, event in enumerate(events):
        for worker in event.finished.nonzero().flatten().tolist():
            found[worker], read[worker] = k - read[worker], k + 1
    drive(drawn, events)
    assert drawn.parameters.staleness.tolist() == found


def test_old_gradients_are_scaled_by_patience_over_their_age():
    patient, y, read, seen = methods.async_sgd(SGD, patience=1.5), start()[0], start(), [0] * N
    for k, event in enumerate(events_of(patient, DRAWN)):
        here = event.finished.nonzero().flatten().tolist()
        scales = torch.tensor([min(1.0, 1.5 / max(1, k - seen[i])) for i in here], dtype=torch.float64)
        y = y - LR * (scales[:, None] * slope(read, k)[here]).mean(0)
        for i in here:
            read[i], seen[i] = y, k + 1
    assert (drive(patient, events_of(patient, DRAWN)) - read).abs().max() <= 1e-12


@pytest.mark.parametrize("one_sided", [False, True])
def test_ad_psgd_is_its_definition_and_keeps_the_sum(one_sided):
    strategy = methods.ad_psgd(SGD, RING, seed=7, one_sided=one_sided)
    y, read, events = start(), start(), events_of(strategy, DRAWN)
    total, moved, met = y.sum(0), torch.zeros_like(y[0]), 0
    asking = sides(RING) if one_sided else np.ones(N, dtype=bool)
    for event in events:
        gradient, here = slope(read, event.number), event.finished
        W = torch.from_numpy(meeting(RING, 7, event.number, here.numpy() & asking).dense())
        met += int((W.diagonal() < 1).sum())
        y = W @ y
        y[here] -= LR * gradient[here]
        moved -= LR * gradient[here].sum(0)
        read[here] = y[here]
        assert (y.sum(0) - total - moved).abs().max() <= 1e-12
    assert met > 0
    x = drive(strategy, events)
    assert (x - read).abs().max() <= 1e-12
    assert (shown(strategy, x) - y).abs().max() <= 1e-12
    assert (read - y).abs().max() > 1e-3  # somebody's model moved while it computed


def test_stale_gossip_is_its_definition():
    strategy, x = methods.stale_dsgd(SGD, RING), start()
    for event in events_of(strategy, DRAWN):
        here = event.finished
        x[here] = (torch.from_numpy(RING.at(0).dense()) @ x - LR * slope(x, event.number))[here]
    assert (drive(strategy, events_of(strategy, DRAWN)) - x).abs().max() <= 1e-12


def of_ring(strategy, gradient, x):
    """The rows of 8 workers who take turns, after 6 steps of each."""
    communicator = Communicator(workers=8)
    strategy.start(x, Layout.flat(1), communicator)
    for event in events_of(strategy, Speeds(8, staggered=True)):
        communicator.begin(event.number, finished=event.finished)
        x = strategy.step(x, gradient(x), communicator)
    return shown(strategy, x, communicator)


def test_stale_gossip_takes_whole_steps_and_rests_where_gossip_does():
    ring, still, b = topologies.ring(8), torch.zeros(8, 1, dtype=torch.float64), torch.arange(8.0).double()[:, None]
    pairs, stale = (
        of_ring(method(SGD, ring), torch.ones_like, still) for method in (methods.ad_psgd, methods.stale_dsgd)
    )
    assert float(pairs.mean()) == pytest.approx(-STEPS * LR)
    assert float(stale.mean()) <= -STEPS * LR, "what a worker gives to its neighbours is no share of its step"
    matrix = (1 + LR) * torch.eye(8, dtype=torch.float64) - torch.from_numpy(ring.at(0).dense())
    rest = torch.linalg.solve(matrix, LR * b)  # x = W x - lr (x - b)
    assert (of_ring(methods.stale_dsgd(SGD, ring), lambda x: x - b, rest) - rest).abs().max() <= 1e-12


def test_delayed_nesterov_is_the_published_algorithm():
    """One arrival at a time (arXiv 2401.09135, c = 0): momentum once in `size` of them."""
    size, beta, rate = 3, 0.8, 0.6
    strategy = methods.async_local_sgd(SGD, period=2, outer_lr=rate, beta=beta, buffer_size=size)
    y, m, gathered, arrivals = start()[0], torch.zeros(LAYOUT.d, dtype=torch.float64), 0.0, 0
    x, read, own = start(), start(), [0] * N
    events = events_of(strategy, STAGGERED, steps=9)
    for event in events:
        (worker,) = event.finished.nonzero().flatten().tolist()
        x[worker] -= LR * slope(x, event.number)[worker]
        own[worker] += 1
        if own[worker] % 2:
            continue
        g = read[worker] - x[worker]
        gathered, arrivals = gathered + g, arrivals + 1
        if arrivals % size == 0:
            m = beta * m + gathered / size
            y = y - rate * (beta * m + g / size)
            gathered = 0.0
        else:
            y = y - rate * g / size
        x[worker] = read[worker] = y
    assert arrivals > 2 * size
    found = drive(strategy, events)
    assert (found - x).abs().max() <= 1e-12
    assert (shown(strategy, found) - y).abs().max() <= 1e-12


def test_a_quorum_merges_the_mean_of_those_who_have_come():
    speeds = Speeds(N, straggler=4.0)
    strategy, y, x, read, own = (
        methods.quorum_local_sgd(SGD, period=2, quorum=0.75),
        start()[0],
        start(),
        start(),
        [0] * N,
    )
    events, merges = events_of(strategy, speeds), 0
    for event in events:
        here = event.finished
        x[here] -= LR * slope(x, event.number)[here]
        due = [i for i in range(N) if here[i] and (own[i] + 1) % 2 == 0]
        own = [count + int(done) for count, done in zip(own, here, strict=True)]
        if due:
            merges += 1
            y = y + (x[due] - read[due]).mean(0)
            x[due] = read[due] = y
    assert merges > 2
    assert (drive(strategy, events) - x).abs().max() <= 1e-12


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_who_hosts_whom_does_not_show(name, monkeypatch):
    """The events are a function of the seed, so every process plays the same list."""
    strategy = ASYNCHRONOUS[name]()
    events = events_of(strategy, DRAWN)
    communicator = Communicator(workers=N, seed=3)
    x = drive(strategy, events, communicator)
    result = shown(strategy, x, communicator)

    monkeypatch.setattr(asynchronous, "broadcast", lambda communicator, state: state)  # threads have no group

    def one(mine):
        own = ASYNCHRONOUS[name]()
        rows = drive(own, events, mine)
        return rows, mine.ledger.rows, own.evaluated(rows, mine) if mine.servers else None

    for processes in (2, N):
        found = rehearse(processes, N, one)
        difference = (torch.cat([rows for rows, _, _ in found]) - x).abs().max()
        assert difference <= (1e-12 if name == "stale_dsgd" else 0.0)  # sums of three may be taken in another order
        assert all(bill == communicator.ledger.rows for _, bill, _ in found)
        assert (found[0][2] - result[: N // processes]).abs().max() <= 1e-12


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_it_goes_on_from_any_event(name):
    strategy = ASYNCHRONOUS[name]()
    events = events_of(strategy, DRAWN)
    x = drive(strategy, events)
    for stop in (1, 5, len(events) - 2):
        first, communicator = ASYNCHRONOUS[name](), Communicator(workers=N, seed=3)
        rows = drive(first, events[:stop], communicator)
        again = ASYNCHRONOUS[name]()
        again.start(start(), LAYOUT, Communicator(workers=N, seed=3))
        again.load_state_dict(first.state_dict())
        rows = drive(again, events[stop:], Communicator(workers=N, seed=3), rows)
        assert torch.equal(rows, x)


@pytest.mark.parametrize(
    "strategy",
    [methods.async_sgd(SGD), methods.stale_dsgd(SGD, RING), methods.ad_psgd(SGD, RING)],
    ids=["server", "ring", "pairs"],
)
def test_only_who_sends_is_billed(strategy):
    """One arrival: up to the server and down from it; of both neighbours to the one who reads; both ways in a pair."""
    communicator, bills = Communicator(workers=N, seed=3), []
    events = events_of(strategy, STAGGERED)
    drive(strategy, events, communicator, watch=lambda *_: bills.append(communicator.ledger.payload_bytes))
    assert all(int(event.finished.sum()) == 1 for event in events)
    assert np.diff(bills) == pytest.approx(2 * 8 * LAYOUT.d / N)


def test_gossip_of_who_reads():
    W = reading(topologies.exponential(4).at(0), [True, False, False, True]).dense()
    assert np.array_equal(W[1:3], np.eye(4)[1:3])
    assert np.array_equal(W[[0, 3]], topologies.exponential(4).at(0).dense()[[0, 3]])


def test_meetings_are_pairs_of_neighbours_and_fair():
    counts = np.zeros(N)
    for step in range(400):
        W = meeting(RING, 1, step, [True, False, False, False]).dense()
        assert W[0, 0] == 0.5
        counts += W[0] == 0.5
    assert counts[0] == 400
    assert counts[2] == 0
    assert abs(counts[1] - 200) < 5 * 10  # five standard deviations
    everybody = [meeting(topologies.complete(6), 1, step, [True] * 6) for step in range(50)]
    assert all(pairs.doubly_stochastic and (pairs.out_degrees == 1).all() for pairs in everybody)


def test_sides_of_a_graph():
    assert sides(topologies.hypercube(8)).sum() == 4
    with pytest.raises(ValueError, match="one side to the other"):
        sides(topologies.ring(5))
    with pytest.raises(ValueError, match="fixed topology"):
        methods.ad_psgd(SGD, topologies.one_peer_exponential(4), one_sided=True)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: methods.async_sgd(SGD, patience=0), r"patience must lie in \(0, inf\]"),
        (lambda: methods.async_local_sgd(SGD, period=0), "period must be a whole number"),
        (lambda: methods.async_local_sgd(SGD, beta=1.0), "beta must lie in"),
        (lambda: methods.async_local_sgd(SGD, outer_lr=0.0), "outer_lr must be above 0"),
        (lambda: methods.async_local_sgd(SGD, buffer_size=0), "buffer_size must be"),
        (lambda: methods.quorum_local_sgd(SGD, quorum=1.5), "quorum must lie in"),
        (lambda: methods.quorum_local_sgd(SGD, grace=-1.0), "grace must be at least 0"),
        (lambda: methods.ad_psgd(partial(ScheduleFreeSGD, lr=0.1), RING), "optimizer must be evaluated where"),
        (lambda: WaitsFor(quorum=-0.5), "quorum must lie"),
    ],
)
def test_what_cannot_be_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
