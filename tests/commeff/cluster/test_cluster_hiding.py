"""Laws of what hides communication: closed forms of early, bucketed and delayed operations, and what adds up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from commeff import Layout, Local, Strategy, methods, profile
from commeff.cluster import Cluster
from commeff.cluster.modelled import BACKWARD, Modelled, modelled, play
from commeff.compressors import Dense
from commeff.profiling import Operation
from commeff.transforms import Delayed, PowerSGD


class Table:
    """A hand-made schedule: the same rows of operations again and again, as `period` says, or without saying so."""

    workers, first = 4, 0

    def __init__(self, rows: Sequence[Sequence[Operation]], period: int | None = 0) -> None:
        self.rows, self.period = rows, len(rows) if period == 0 else period

    def operations(self, step: int) -> list[Operation]:
        return [operation.moved(step) for operation in self.rows[step % len(self.rows)]]


def sent(payload: float, seconds: float, kind: str = "all_reduce", **more: Any) -> Operation:
    """An operation of a hand-made profile: its bytes on the wire stand for seconds."""
    return Operation(0, "gradients", kind, payload, seconds, 1, 1, **more)


def seconds(operation: Operation) -> float:
    return operation.wire_bytes


def same(operations: Sequence[Operation], compute: float, steps: int) -> Modelled:
    """A run that sends the same in every step, and waits for it there."""
    return play(Table([operations]), seconds, steps=steps, compute=compute)


# Where a step's time goes


def test_what_waits_for_the_gradient_is_exposed() -> None:
    line = same([sent(1, 2.0), sent(1, 3.0, "mix")], compute=1.0, steps=5)
    assert line.by_step.tolist() == pytest.approx([6.0 * k for k in range(1, 6)])
    assert line.exposed_by_kind == pytest.approx({"all_reduce": 2.0, "mix": 3.0})
    assert sum(line.hidden_by_kind.values()) == pytest.approx(0.0)


def test_an_early_operation_hides_behind_the_whole_computation() -> None:
    def line(each: float) -> Modelled:
        return same([sent(1, each, early=True)], compute=1.0, steps=10)

    assert (line(0.9).step, line(1.5).step) == pytest.approx((1.0, 1.5))
    assert line(0.9).hidden_by_kind["all_reduce"] == pytest.approx(0.9)
    assert line(1.5).exposed_by_kind["all_reduce"] == pytest.approx(0.5)


def test_buckets_follow_the_backward_pass() -> None:
    """k buckets of t seconds after a backward pass of b: the link is free in between, or always busy from b/k on."""
    k, b = 4, 3.0
    for t in (0.1, 0.5, 2.0):
        buckets = [sent(1, t, bucketed=True) for _ in range(k)]
        line = same(buckets, compute=b / BACKWARD, steps=3)
        ready = [b * (i + 1) / k for i in range(k)]
        end = 0.0
        for each in ready:
            end = max(end, each) + t
        assert line.step == pytest.approx(b / BACKWARD + end - b)
    dense = same([sent(k, k * t)], compute=b / BACKWARD, steps=3)
    assert line.step < dense.step


def test_a_delayed_operation_hides_behind_the_steps_before_it_is_waited_for() -> None:
    def line(each: float) -> Modelled:
        return play(Table([[sent(1, each, waited=2)]]), seconds, compute=1.0, steps=200)

    assert line(1.8).step == pytest.approx(1.8, rel=0.01), "the link is the bottleneck"
    assert line(0.9).step == pytest.approx(1.0)


def test_parts_add_up_and_periods_repeat_whatever_is_sent() -> None:
    """Computing and exposed make the step, exposed and hidden what was sent; a long run is its periods."""
    random = np.random.default_rng(0)
    for _ in range(40):
        period = int(random.integers(1, 5))
        table = [
            [
                sent(
                    float(random.uniform(1, 2)),
                    float(random.uniform(0, 1)),
                    str(random.choice(["mix", "all_reduce"])),
                    early=bool(random.integers(2)),
                    bucketed=bool(random.integers(2)),
                )
                for _ in range(random.integers(0, 4))
            ]
            for _ in range(period)
        ]
        compute, steps = float(random.uniform(0, 2)), 120

        line = play(Table(table), seconds, compute=compute, steps=steps)
        total = sum(op.wire_bytes for step in range(steps) for op in table[step % period]) / steps
        assert line.step == pytest.approx(compute + sum(line.exposed_by_kind.values()))
        assert sum(line.exposed_by_kind.values()) + sum(line.hidden_by_kind.values()) == pytest.approx(total)
        whole = play(Table(table, period=None), seconds, compute=compute, steps=steps)
        assert line.by_step.tolist() == pytest.approx(whole.by_step.tolist()), "extrapolated against played"


def test_a_sharded_server_takes_an_nth_of_the_time_of_one() -> None:
    """(n-1)/n of the vector through every link, there and back, instead of n-1 vectors through one."""
    cluster = Cluster.named("ethernet_1g", gpus=8)
    link, d, n = cluster.inter, 1_000_000, 8
    sgd = partial(torch.optim.SGD, lr=0.1)
    for server, through in (("row", (n - 1) * 4 * d), ("sharded", (n - 1) / n * 4 * d)):
        sent = profile(methods.double_squeeze(sgd, Dense(), server), Layout.flat(d), n)
        run = modelled(sent, cluster, steps=1)
        assert run.total == pytest.approx(2 * link.seconds(through), rel=1e-3), server


def test_a_round_that_begins_late_hides_behind_nothing() -> None:
    rounds = [sent(1, 0.4, waited=1), sent(1, 0.3, "mix", waited=1, posted=1)]
    line = same(rounds, compute=1.0, steps=6)
    assert line.by_step.tolist() == pytest.approx([1.0, *(1.0 + 1.3 * k for k in range(1, 6))])
    assert line.exposed.tolist() == pytest.approx([0.0, *[0.3] * 5])
    assert line.exposed_by_kind["all_reduce"] == pytest.approx(0.0)
    assert play(Table([rounds], period=None), seconds, steps=6, compute=1.0).total == pytest.approx(line.total)


def test_delayed_power_sgd_sends_its_later_rounds_a_step_later() -> None:
    local = Local(partial(torch.optim.SGD, lr=0.1))
    strategy = Strategy(local, gradients=Delayed(PowerSGD(rank=1), 1))
    operations = profile(strategy, Layout.of([("w", (4, 5))]), 4).operations(5)
    assert [(each.step, each.posted, each.waited) for each in operations] == [(5, 5, 6), (5, 6, 6)]
