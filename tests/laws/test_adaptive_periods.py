"""Periods that follow the loss: Gossip-AGA and AdaComm against loops written out from their papers."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, laws, methods, profile
from commeff.core import scheduled
from commeff.laws import MethodCase, start
from tests.laws.paths import DROP, HEAVY, RATES, RING, SGD, D, N, dense, mean, slope

FALLING = [3.0 * 0.9**k for k in range(40)]
UNEVEN = [2.0, 1.0, 1.7, 0.9, 1.2, 0.4, 0.6, 0.3, 0.35, 0.2] * 4
VARIANTS = {
    "gossip_aga": lambda n: methods.gossip_aga(SGD, laws.problem.lazy_ring(n), period=2, warmup=1),
    "ada_comm": lambda n: methods.ada_comm(SGD, period=4, interval=2),
}


def drive(strategy, losses, steps=30):
    """The path, the steps with an average, the ledger; workers' losses differ, and have this mean."""
    communicator, x = Communicator(workers=N, seed=1), start(N, D)
    communicator.ledger.record()
    strategy.start(x, Layout.flat(D), communicator)
    path, offset = [x], torch.linspace(-0.1, 0.1, N, dtype=torch.float64)
    for communicator.step in range(steps):
        communicator.context.losses = None if losses is None else losses[communicator.step] * (1 + offset)
        x = strategy.step(x, slope(x, communicator.step), communicator)
        path.append(x)
    averaged = [row.step for row in communicator.ledger.rows if row.payload_bytes == 8 * D and row.kind != "mix"]
    return torch.stack(path), averaged, communicator.ledger


def aga(losses, period, warmup, power, steps=30):
    """The steps with an average: counter, running F_init, H = ceil((F_init/F)^power H_init)."""
    count, h, first, found = 0, period, None, []
    for k in range(steps):
        count += 1
        if count == h:
            found.append(k)
            count = 0
            if first is None or k < warmup:
                first = losses[k] if first is None else (first + losses[k]) / 2
            else:
                h = math.ceil(round((first / losses[k]) ** power * period, 9))
    return found


def comm(losses, tau, interval, rates, steps=30, decay=0.5):
    """The steps with an average: tau = ceil(sqrt(F/F_0 r_0/r) tau_0), or half where that is no less."""
    count, now, changed, before, found = 0, tau, -1, rates[0], []
    for k in range(steps):
        count += 1
        if count == now:
            found.append(k)
            count = 0
            if k - changed >= interval:
                new = math.ceil(round((losses[k] / losses[0] * rates[0] / rates[k]) ** 0.5 * tau, 9))
                now = math.ceil(decay * now) if new >= now and rates[k] == before else new
                changed, before = k, rates[k]
    return found


@pytest.mark.parametrize("losses", [FALLING, UNEVEN], ids=["falling", "uneven"])
@pytest.mark.parametrize(("period", "warmup", "power"), [(2, 0, 1.0), (3, 7, 1.0), (2, 5, 0.25), (1, 3, 2.0)])
def test_gossip_aga_is_its_published_loop(losses, period, warmup, power):
    path, averaged, _ = drive(methods.gossip_aga(SGD, RING, period, warmup, power), losses)
    expected, w = aga(losses, period, warmup, power), dense(RING)
    assert averaged == expected
    for k in range(30):
        moved = path[k] - 0.1 * slope(path[k], k)
        assert (path[k + 1] - (mean(moved) if k in expected else w @ moved)).abs().max() <= 1e-12
    assert (expected == list(range(period - 1, 30, period))) <= (power < 1)


@pytest.mark.parametrize("losses", [FALLING, UNEVEN], ids=["falling", "uneven"])
@pytest.mark.parametrize(("optimizer", "rates"), [(SGD, [0.1] * 30), (DROP, RATES)], ids=["constant", "drop"])
@pytest.mark.parametrize(("tau", "interval"), [(6, 1), (5, 8)])
def test_ada_comm_is_its_published_loop(losses, optimizer, rates, tau, interval):
    path, averaged, _ = drive(methods.ada_comm(optimizer, tau, interval), losses)
    expected = comm(losses, tau, interval, rates)
    assert averaged == expected
    for k in range(30):
        moved = path[k] - rates[k] * slope(path[k], k)
        assert (path[k + 1] - (mean(moved) if k in expected else moved)).abs().max() <= 1e-12
    assert expected != list(range(tau - 1, 30, tau))


def test_where_the_loss_stays_so_does_the_period():
    for loss in (None, [1.3] * 30, [math.nan] * 30, [0.0] * 30, [-1.0] * 30):
        one, _, _ = drive(methods.gossip_aga(HEAVY, RING, 3, warmup=4), loss)
        other, _, _ = drive(methods.gossip_pga(HEAVY, RING, 3), None)
        assert (one - other).abs().max() <= 1e-12
    one, other = (drive(m, FALLING)[0] for m in (methods.ada_comm(HEAVY, 3, 10**9), methods.local_sgd(HEAVY, 3)))
    assert (one - other).abs().max() <= 1e-12
    halved = drive(methods.ada_comm(SGD, 8, 1), [1.0] * 30)[1]
    assert halved == [7, 11, 13, *range(14, 30)], "tau is halved where the loss does not fall"


def test_the_loss_is_averaged_with_the_parameters_and_billed():
    _, averaged, ledger = drive(methods.gossip_aga(SGD, RING, 2, 0), FALLING)
    told = [row for row in ledger.rows if row.path.endswith("loss")]
    assert [row.step for row in told] == averaged
    assert {(row.kind, row.payload_bytes) for row in told} == {("all_reduce", 8)}
    _, averaged, ledger = drive(methods.ada_comm(SGD, 4, 1), FALLING)
    assert [row.step for row in ledger.rows if row.path.endswith("loss")] == [0, *averaged]
    _, _, ledger = drive(methods.ada_comm(SGD, 4, 1), None)
    assert not [row for row in ledger.rows if row.path.endswith("loss")]


def test_those_who_are_there_agree_on_the_period_by_their_losses():
    strategy, communicator, x = methods.ada_comm(SGD, 4, 1), Communicator(workers=N, seed=1), start(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(4):
        losses = torch.full((N,), 4.0 if communicator.step == 0 else 1.0, dtype=torch.float64)
        losses[2] = math.nan
        communicator.begin(communicator.step, present=torch.tensor([w != 2 for w in range(N)]), losses=losses)
        x = strategy.step(x, slope(x, communicator.step), communicator)
        assert strategy.agrees(communicator.step) == (communicator.step == 3)
    assert strategy.parameters.period == 2
    assert not strategy.agrees(2)


def test_the_profile_is_a_bound_and_says_so():
    for strategy in (methods.gossip_aga(SGD, RING, 4), methods.ada_comm(SGD, 4)):
        found = profile(strategy, Layout.flat(10**9), workers=N)
        assert (found.payload_bytes, found.exact) == (4 * 10**9 + 4, False)
        assert "depend on values: the profile is an upper bound" in found.note


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("law", laws.LAWS, ids=lambda law: law.__name__)
def test_law(name, law):
    law(MethodCase(name, VARIANTS[name]))


def test_the_laws_see_periods_that_change():
    """Otherwise they would hold for gossip_pga and local_sgd."""
    for build in VARIANTS.values():
        strategy = build(laws.WORKERS)
        laws.run(strategy)
        assert strategy.parameters.period != strategy.parameters._first


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: methods.gossip_aga(SGD, RING, 0), "period must be a whole number of at least 1, got 0"),
        (lambda: methods.gossip_aga(SGD, RING, warmup=-1), "warmup must be a whole number of at least 0, got -1"),
        (lambda: methods.gossip_aga(SGD, RING, power=0.0), "power must be above 0, got 0.0"),
        (lambda: methods.ada_comm(SGD, interval=0), "interval must be a whole number of at least 1, got 0"),
        (lambda: methods.ada_comm(SGD, decay=1.0), r"decay must lie in \(0, 1\), got 1.0"),
        (lambda: drive(methods.ada_comm(SGD), torch.ones(30, 2, 1)), "for each of the 6 hosted workers"),
    ],
)
def test_mistakes_are_refused_in_one_line(build, reason):
    with pytest.raises(ValueError, match=reason) as refusal:
        build()
    assert "\n" not in str(refusal.value)


def test_a_rate_of_nothing_changes_no_period():
    ending = scheduled(SGD, partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda k: float(k < 3)))
    assert drive(methods.ada_comm(ending, 4, 1), FALLING)[1] == list(range(3, 30, 4))
