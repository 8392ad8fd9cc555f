"""The event clock: who finishes at which simulated instant."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from commeff import Layout, methods, profile, topologies
from commeff.cluster.events import InStep, OutOfStep
from commeff.cluster.speeds import Speeds
from commeff.core.events import WaitsFor

SGD = partial(torch.optim.SGD, lr=0.1)


def play(speeds, waits_for=WaitsFor(), exchange=0.0, steps=4):  # noqa: B008
    clock = OutOfStep(speeds, waits_for, exchange)
    return [event for step in range(steps) for event in clock.events(step)]


def who(event):
    return "".join("1" if done else "0" for done in event.finished.tolist())


def test_equal_speeds_are_one_event_a_step():
    """Tenths of a second, which binary fractions only approximate, and any quorum."""
    for waits_for in (WaitsFor(), WaitsFor(3), WaitsFor(2, 0.5), WaitsFor(2, 1.0, 0.3)):
        events = play(Speeds(5, seconds=0.1), waits_for, exchange=0.05, steps=12)
        assert [who(event) for event in events] == ["11111"] * 12
        exchanges = [(k + 1) // waits_for.period for k in range(12)]
        assert [event.seconds for event in events] == pytest.approx(
            [0.1 * (k + 1) + 0.05 * count for k, count in enumerate(exchanges)], rel=1e-12
        )


def test_a_straggler_of_k_comes_with_every_kth_event_of_the_others():
    events = play(Speeds(3, seconds=0.1, straggler=3.0), steps=9)
    assert [who(event) for event in events] == ["110", "110", "111"] * 4  # 28 gradients: 9 steps begin in them
    assert [event.counts for event in events[:4]] == [(0, 0, 0), (1, 1, 0), (2, 2, 0), (3, 3, 1)]


def test_staggered_workers_are_late_once():
    times = Speeds(4, seconds=2.0, staggered=True).matrix(600)
    assert times[0].tolist() == [2.0, 2.5, 3.0, 3.5]
    assert (times[1:] == 2.0).all()


def test_staggered_workers_take_turns():
    events = play(Speeds(4, staggered=True))
    assert [who(event) for event in events] == ["1000", "0100", "0010", "0001"] * 4
    assert [event.seconds for event in events[:5]] == [1.0, 1.25, 1.5, 1.75, 2.0]


def test_a_step_is_n_gradients_and_every_step_has_an_event():
    for seed in range(5):
        speeds = Speeds(5, spread=0.8, straggler=7.0, seed=seed)
        clock = OutOfStep(speeds, WaitsFor(2, 0.6))
        gradients, last, ends = 0, -1, np.zeros(5)
        for step in range(40):
            events = clock.events(step)
            assert events
            for event in events:
                assert gradients == sum(event.counts)
                assert gradients // 5 == step
                assert event.number == last + 1
                assert event.seconds >= ends.max()
                ends[event.finished.numpy()] = event.seconds
                gradients, last = gradients + int(event.finished.sum()), event.number
        again = OutOfStep(speeds, WaitsFor(2, 0.6))
        assert clock.events(7) == clock.events(7)
        assert [e.number for e in again.events(7)] == [e.number for e in clock.events(7)]  # from any step, in any order


def test_a_quorum_lets_those_go_who_have_come_and_no_earlier():
    speeds = Speeds(4, trace={0: [1.0], 1: [2.0], 2: [3.0], 3: [8.0]})
    events = play(speeds, WaitsFor(quorum=0.75), steps=3)
    merges = [(event.seconds, who(event)) for event in events]
    assert merges == [(3.0, "1110"), (6.0, "1110"), (8.0, "1101"), (10.0, "1110")]


def test_a_quorum_of_k_of_n_is_k():
    """Also where the share times n is a little more in binary: 0.28 x 25 is."""
    assert WaitsFor(quorum=0.28).needed(25) == 7
    assert all(WaitsFor(quorum=k / n).needed(n) == max(1, k) for n in (3, 25, 1000) for k in range(n + 1))
    assert WaitsFor(quorum=0.2801).needed(25) == 8


def test_grace_ends_the_wait_for_a_quorum():
    """The first has come at 1 and waits for another until 1.5; then worker 1 comes at 2, with worker 0 at 2.5."""
    speeds = Speeds(3, trace={0: [1.0], 1: [2.0], 2: [9.0]})
    events = play(speeds, WaitsFor(quorum=0.5, grace=0.5), steps=2)
    assert [(event.seconds, who(event)) for event in events][:3] == [(1.5, "100"), (2.5, "110"), (4.0, "100")]


def test_grace_is_counted_from_the_first_who_waits():
    """Three come one after the other, at 1, 1.3 and 1.4: who comes later does not prolong the wait of the first."""
    speeds = Speeds(4, trace={0: [1.0], 1: [1.3], 2: [1.4], 3: [9.0]})
    events = play(speeds, WaitsFor(quorum=1.0, grace=0.5), steps=2)
    assert [(event.seconds, who(event)) for event in events][:3] == [(1.5, "1110"), (3.0, "1110"), (4.5, "1110")]


def test_own_steps_between_two_exchanges_wait_for_nobody():
    events = play(Speeds(2, straggler=2.0), WaitsFor(period=2, quorum=1.0), steps=4)
    assert [(event.seconds, who(event)) for event in events][:4] == [(1.0, "10"), (2.0, "01"), (4.0, "11"), (5.0, "10")]


def test_synchronous_methods_wait_for_those_they_hear_from():
    speeds, layout, steps = Speeds(6, straggler=4.0), Layout.flat(8), 12

    def seconds(method):
        clock = InStep(speeds, profile(method, layout, 6), steps=steps)
        return [clock.events(step)[0].seconds for step in range(steps)]

    assert seconds(methods.psgd(SGD)) == pytest.approx([4.0 * (k + 1) for k in range(steps)])
    assert seconds(methods.dsgd(SGD, topologies.ring(6))) == pytest.approx([4.0 * (k + 1) for k in range(steps)])
    speeds = Speeds(6, spread=0.6, seed=2)
    rare, often = seconds(methods.local_sgd(SGD, period=4)), seconds(methods.psgd(SGD))
    assert often == pytest.approx(np.cumsum(speeds.matrix(steps).max(1)))
    assert rare[3::4] == pytest.approx(np.cumsum(speeds.matrix(steps).reshape(3, 4, 6).sum(1).max(1)))
    gossip = seconds(methods.dsgd(SGD, topologies.ring(6)))
    assert rare[-1] < gossip[-1] < often[-1]


def test_what_sending_takes_is_added():
    timed = InStep(Speeds(3), profile(methods.psgd(SGD), Layout.flat(8), 3), steps=2, price=lambda operation: 0.25)
    assert timed.events(1)[0].seconds == pytest.approx(2.5)
    assert play(Speeds(3), exchange=0.25, steps=2)[-1].seconds == pytest.approx(2.5)


def test_drawn_times_have_the_mean_and_are_the_seeds():
    times = Speeds(8, seconds=0.2, spread=0.3, seed=1).matrix(3000)
    assert times.mean() == pytest.approx(0.2, rel=0.02)
    assert times.std() == pytest.approx(0.06, rel=0.05)
    assert np.array_equal(times[:700], Speeds(8, seconds=0.2, spread=0.3, seed=1).matrix(700))
    assert not np.array_equal(times[:256], times[256:512])
    assert not np.array_equal(times, Speeds(8, seconds=0.2, spread=0.3, seed=2).matrix(3000))


def test_a_trace_goes_round_across_chunks():
    times = Speeds(2, trace={1: [1.0, 2.0, 5.0]}, straggler=2.0).matrix(600)
    assert np.array_equal(times[:, 1], 2 * np.resize([1.0, 2.0, 5.0], 600))
    assert (times[:, 0] == 1.0).all()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"seconds": 0.0}, "seconds must lie in"),
        ({"spread": -1.0}, "spread must be at least 0"),
        ({"straggler": 0.0}, "straggler must lie in"),
        ({"trace": {4: [1.0]}}, "a trace must name workers from 0 to 3"),
        ({"trace": {0: [1.0, 0.0]}}, r"seconds in \(0, 1000000\)"),
    ],
)
def test_speeds_that_cannot_be_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        Speeds(4, **wrong)


def test_the_slowest_workers_do_not_run_back_in_time():
    """Nanoseconds that no 64 bits hold are as many as they do."""
    slow = Speeds(2, seconds=9e5, straggler=9e5)
    assert slow.nanoseconds(0, 0) < slow.nanoseconds(1, 0) == 9 * 10**18


@pytest.mark.parametrize("exchange", [-1.0, 1e6, float("nan")])
def test_an_exchange_that_cannot_be_is_refused(exchange):
    with pytest.raises(ValueError, match=r"exchange must be seconds in \[0, 1000000\)"):
        play(Speeds(2), exchange=exchange)
