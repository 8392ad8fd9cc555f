"""Runs on an event clock: equal speeds are the synchronous twin, drawn ones repeat and go on from any step, and real
processes play the same events.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, Local, RunSettings, Strategy, methods, profile, scheduled, topologies, train
from commeff.cluster.events import InStep, OutOfStep
from commeff.cluster.speeds import Speeds
from commeff.compressors import Layout
from commeff.core.events import WaitsFor
from commeff.core.properties import own_pace
from commeff.experiments.tasks import Quadratic
from commeff.training.checkpoint import Checkpoints
from commeff.training.participation import Participation
from commeff.training.recorder import Recorder
from commeff.transforms import ParameterServer, ServerOptimizer
from tests.laws.processes import on_processes
from tests.laws.test_resume import same

N, STEPS = 4, 12
SGD = partial(torch.optim.SGD, lr=0.05)
RING = topologies.ring(N)
TWINS = {
    "async_sgd": (lambda: methods.async_sgd(SGD), lambda: methods.psgd(SGD)),
    "async_local_sgd": (lambda: methods.async_local_sgd(SGD, period=3), lambda: methods.diloco(SGD, period=3)),
    "quorum": (lambda: methods.quorum_local_sgd(SGD, period=3, grace=0.1), lambda: methods.local_sgd(SGD, period=3)),
    "ad_psgd": (
        lambda: methods.ad_psgd(SGD, RING, seed=2),
        lambda: methods.dsgd(SGD, topologies.random_pairs(RING, seed=2), order="awc"),
    ),
    "stale_dsgd": (lambda: methods.stale_dsgd(SGD, RING), lambda: methods.dsgd(SGD, RING, order="awc")),
}
SERVED = {name: make for name, (make, _) in TWINS.items() if name in ("async_sgd", "quorum")} | {
    "momentum": lambda: Strategy(
        Local(SGD), parameters=ParameterServer(ServerOptimizer(Local(partial(SGD, momentum=0.9))), WaitsFor())
    )
}
DRAWN = Speeds(N, spread=0.7, straggler=2.5, seed=4)
MEASURED = dict.fromkeys(("seconds", "exposed", "row"))
CLOCKS = ("seconds", "exposed_seconds")


def task():
    return Quadratic(workers=N, dimension=5, sigma=0.3, dtype="float64", seed=1)


def on(strategy, speeds, folder=None, communicator=None, **told):
    """The final parameters, and the rows without measured seconds."""
    communicator = communicator or Communicator(N, seed=3)
    clock = OutOfStep(speeds, own_pace(strategy).waits_for, exchange=0.1)
    seen = []
    told = {"progress": lambda step, row: seen.append(row)} | told
    summary = train(
        task(),
        strategy,
        communicator,
        RunSettings(steps=STEPS, evaluate_every=1, event_clock=clock),
        recorder=Recorder(folder) if folder else None,
        checkpoints=Checkpoints(folder, 5) if folder else None,
        **told,
    )
    return {name: value for name, value in summary.items() if name not in CLOCKS}


@pytest.mark.parametrize("name", TWINS)
def test_equal_speeds_are_the_synchronous_twin(name):
    asynchronous, synchronous = (make() for make in TWINS[name])
    found = on(asynchronous, Speeds(N, seconds=0.1))
    expected = train(task(), synchronous, Communicator(N, seed=3), RunSettings(steps=STEPS, evaluate_every=1))
    assert found["events"] == STEPS == expected["steps"]
    same = ("train_loss", "minibatch_loss", "samples") + ("consensus_distance",) * (name == "stale_dsgd")
    assert {key: found[key] for key in same} == pytest.approx({key: expected[key] for key in same}, rel=1e-12)


@pytest.mark.parametrize("name", TWINS)
def test_drawn_speeds_repeat_bit_for_bit_and_go_on_from_any_step(name, tmp_path):
    whole = on(TWINS[name][0](), DRAWN, tmp_path / "whole")
    assert whole["events"] > STEPS
    assert whole == on(TWINS[name][0](), DRAWN)
    for stop in (1, 7):
        folder, at = tmp_path / str(stop), iter(range(STEPS))
        stopped = on(TWINS[name][0](), DRAWN, folder, should_stop=lambda at=at, stop=stop: next(at) == stop)
        assert stopped == {"state": "stopped", "steps": stop}
        assert on(TWINS[name][0](), DRAWN, folder) == whole
        rows, undisturbed = (
            [{k: v for k, v in row.items() if k not in CLOCKS} for row in Recorder(place).rows()]
            for place in (folder, tmp_path / "whole")
        )
        assert rows == undisturbed


def test_equal_samples_at_equal_steps_and_slow_seconds_for_those_who_wait():
    slow = Speeds(N, straggler=10.0)
    free = on(methods.async_sgd(SGD), slow)
    waits = train(
        task(),
        methods.psgd(SGD),
        Communicator(N, seed=3),
        RunSettings(
            steps=STEPS,
            evaluate_every=1,
            event_clock=InStep(slow, profile(methods.psgd(SGD), Layout.flat(5), N), steps=STEPS),
        ),
    )
    assert 0 <= free["samples"] - waits["samples"] < N * waits["samples"] / STEPS
    assert waits["simulated_seconds"] == 10.0 * STEPS
    assert free["simulated_seconds"] < 1.4 * STEPS + 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_batch_is_the_next_of_the_workers_own(accumulate):
    """However often others come in between: worker i takes its batches 0, 1, 2, ..."""
    drawn = []

    class Watched(Quadratic):
        def batch(self, step, workers):
            drawn.extend((worker, step) for worker in workers)
            return super().batch(step, workers)

    strategy = methods.async_sgd(SGD)
    strategy.accumulate = accumulate
    clock = OutOfStep(Speeds(N, straggler=3.0), own_pace(strategy).waits_for)
    communicator = Communicator(N, seed=3)
    watched = Watched(workers=N, dimension=5, sigma=0.3, dtype="float64", seed=1)
    train(watched, strategy, communicator, RunSettings(steps=6, event_clock=clock))
    assert communicator.context.finished.all()  # between two steps nobody is late
    of_fast, of_slow = ([step for worker, step in drawn if worker == who] for who in (0, N - 1))
    assert of_fast == list(range(len(of_fast)))
    assert of_slow == list(range(2 * accumulate))


def test_learning_rates_move_once_a_step():
    """However many events it has: a schedule over the run's steps ends with them."""
    rates = []
    optimizer = scheduled(SGD, partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=STEPS))
    on(methods.async_sgd(optimizer), DRAWN, progress=lambda step, row: rates.append(row["lr"]))
    expected = [0.025 * (1 + math.cos(math.pi * step / STEPS)) for step in range(1, STEPS + 1)]
    assert rates == pytest.approx(expected, abs=1e-12)


def test_real_processes_play_the_same_events(tmp_path):
    def all_of_them():
        group = dist.group.WORLD if dist.is_initialized() else None
        found = {}
        for name in TWINS:
            communicator = Communicator(N, seed=3, group=group)
            summary = on(TWINS[name][0](), DRAWN, communicator=communicator)
            found[name] = {key: summary[key] for key in ("train_loss", "events", "simulated_seconds", "payload_bytes")}
        return found

    alone = all_of_them()
    for rank in on_processes(2, all_of_them):
        for name, numbers in alone.items():
            assert rank[name] == pytest.approx(numbers, rel=1e-12, abs=0)


def test_processes_that_are_stopped_leave_the_checkpoint_of_those_that_are_not(tmp_path):
    """With the memory of the server's optimizer, which one of the processes hosts."""

    def all_of_them():
        for name, make in SERVED.items():
            for place, stop in (("whole", STEPS), ("half", 7), ("half", STEPS)):
                strategy = make()
                train(
                    task(),
                    strategy,
                    Communicator(N, seed=3, group=dist.group.WORLD),
                    RunSettings(
                        steps=stop, evaluate_every=1, event_clock=OutOfStep(DRAWN, own_pace(strategy).waits_for)
                    ),
                    checkpoints=Checkpoints(tmp_path / name / place),
                )

    on_processes(2, all_of_them)
    for name in SERVED:
        whole, half = (Checkpoints(tmp_path / name / place).load() for place in ("whole", "half"))
        same({**half, **MEASURED}, {**whole, **MEASURED}, name)


def test_absence_and_a_clock_are_not_for_one_run():
    clock = OutOfStep(DRAWN, own_pace(methods.async_sgd(SGD)).waits_for)
    with pytest.raises(ValueError, match="needs all workers"):
        train(
            task(),
            methods.async_sgd(SGD),
            Communicator(N, seed=3),
            RunSettings(steps=2, event_clock=clock, participation=Participation(N, share=0.5)),
        )
