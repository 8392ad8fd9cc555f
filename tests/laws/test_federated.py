"""Federated methods against loops written out from their papers: weights of data, coins, control variates."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, methods, topologies
from commeff.core import scheduled
from commeff.experiments.tasks import Digits
from commeff.laws import start
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from commeff.transforms import Every, Gossip
from tests.laws.paths import DROP, RATES, SGD, STEPS, D, N, drive, equal, mean, slope

WEIGHTS = [3.0, 1.0, 2.0, 0.5, 1.0, 4.0]
P = torch.tensor(WEIGHTS, dtype=torch.float64) / sum(WEIGHTS)


# --- fedavg ---


def test_the_mixing_matrix_of_fedavg_has_the_shares_of_the_data_as_rows():
    rows = topologies.from_matrices([np.tile(P.numpy(), (N, 1))])
    equal(methods.fedavg(SGD, 3, WEIGHTS), Strategy(Local(SGD), parameters=Every(3, Gossip(rows))))
    equal(methods.fedavg(SGD, 3, [7.0] * N), methods.local_sgd(SGD, 3))
    equal(methods.fedavg(SGD, 3), methods.local_sgd(SGD, 3), tolerance=0)


def test_fedavg_ends_at_the_optimum_of_the_weighted_objective():
    a = torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None]
    b = torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    path, _ = drive(methods.fedavg(SGD, 1, WEIGHTS), steps=600, d=1, slope=lambda x, k: a * (x - b))
    assert (path[-1] - (P[:, None] * a * b).sum() / (P[:, None] * a).sum()).abs().max() <= 1e-12


def taken_part(strategy, samples=None):
    """Who is there changes; gives the rows and those who were there last."""
    communicator, x = Communicator(workers=N, seed=1), start(N, D)
    communicator.context.samples = samples
    strategy.start(x, Layout.flat(D), communicator)
    path = [x]
    for communicator.step in range(4):
        communicator.begin(
            communicator.step, present=torch.tensor([worker != communicator.step for worker in range(N)])
        )
        x = strategy.step(x, slope(x, communicator.step), communicator)
        path.append(x)
    return path, communicator


@pytest.mark.parametrize("told", [False, True], ids=["weights", "samples"])
def test_weights_of_those_who_take_part_are_divided_by_their_sum(told: bool):
    samples = torch.tensor([6, 2, 4, 1, 2, 8])
    path, communicator = taken_part(methods.fedavg(SGD, 2, None if told else WEIGHTS), samples if told else None)
    x = start(N, D)
    for k in range(4):
        there = [worker for worker in range(N) if worker != k]
        x[there] = x[there] - 0.1 * slope(x, k)[there]
        if k % 2:
            x[there] = (P[there, None] * x[there]).sum(0) / P[there].sum()
        assert (path[k + 1] - x).abs().max() <= 1e-12
    assert communicator.context.present.tolist() == [True, True, True, False, True, True]


def test_a_run_weighs_by_the_samples_of_its_task(tmp_path):
    task = Digits(4, seed=1, model="linear", batch=8, dtype="float64")
    assert sum(task.sizes) == task.size
    assert len(set(task.sizes)) > 1

    def end(method, **options):
        return train(
            task, method(SGD, 2, **options), Communicator(4), RunSettings(steps=4), recorder=Recorder(tmp_path)
        )["val_loss"]

    own, given, equal_ones = (
        end(methods.fedavg),
        end(methods.fedavg, weights=[float(size) for size in task.sizes]),
        end(methods.local_sgd),
    )
    assert own == pytest.approx(given, abs=1e-12)
    assert abs(own - equal_ones) > 1e-4


def test_weights_that_do_not_fit_are_refused():
    for build, reason in (
        (lambda: methods.fedavg(SGD, 2, [1.0, 0.0]), "weights must be above 0"),
        (lambda: drive(methods.fedavg(SGD, 2, [1.0, 2.0])), "one for each of the run's 6 workers, got 2"),
        (lambda: taken_part(methods.fedavg(SGD, 1), torch.ones(3)), "for each of the 6 workers"),
        (lambda: methods.scaffnew(SGD, 0.0), r"probability must lie in \(0, 1\], got 0"),
        (lambda: methods.scaffold(SGD, option="three"), "option must be 'one' or 'two'"),
        (lambda: methods.scaffold(SGD, 0, option="one"), "period must be a whole number of at least 1"),
    ):
        with pytest.raises(ValueError, match=reason) as refusal:
            build()
        assert "\n" not in str(refusal.value)


# --- scaffnew ---


def coins(strategy, steps):
    return [strategy.parameters.due(k) for k in range(steps)]


@pytest.mark.parametrize("optimizer", [SGD, DROP], ids=["constant", "drop"])
@pytest.mark.parametrize("probability", [0.2, 0.6, 1.0])
def test_scaffnew_is_its_published_loop(optimizer, probability):
    strategy = methods.scaffnew(optimizer, probability)
    path, shifts = drive(strategy, watch=lambda s: s.local.shift.clone())
    rates = RATES if optimizer is DROP else [0.1] * STEPS
    x, h, seen = start(N, D), torch.zeros(N, D, dtype=torch.float64), coins(strategy, STEPS)
    for k in range(STEPS):
        assert (shifts[k] + h).abs().max() <= 1e-10
        y = x - rates[k] * (slope(x, k) - h)
        x = mean(y) if seen[k] else y
        h = h + probability / rates[k] * (x - y)
        assert (path[k + 1] - x).abs().max() <= 1e-12
        assert h.sum(0).abs().max() <= 1e-10
    assert any(seen)
    if probability == 1:
        equal(strategy, methods.psgd(optimizer))


def test_scaffnew_reaches_the_optimum_where_local_sgd_does_not():
    a = torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None]
    b = torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    for strategy, good in (
        (methods.scaffnew(SGD, 0.3), True),
        (methods.scaffold(SGD, 4, "one"), True),
        (methods.local_sgd(SGD, 4), False),
    ):
        path, _ = drive(strategy, steps=1500, d=1, slope=lambda x, k: a * (x - b))
        assert bool((path[-1] - (a * b).sum() / a.sum()).abs().max() <= 1e-11) == good


def test_the_coin_is_fair_and_the_seeds():
    """4000 coins of 0.3: a standard deviation of 0.007."""
    strategies = [methods.scaffnew(SGD, 0.3) for _ in range(3)]
    for seed, strategy in zip((1, 1, 2), strategies, strict=True):
        strategy.start(start(2, D), Layout.flat(D), Communicator(workers=2, seed=seed))
    first, again, other = (coins(strategy, steps) for strategy, steps in zip(strategies, (4000, 50, 50), strict=True))
    assert sum(first) / 4000 == pytest.approx(0.3, abs=0.022)
    assert sum(a and b for a, b in pairwise(first)) / 4000 == pytest.approx(0.09, abs=0.018)
    assert first[:50] == again != other


def test_the_shifts_of_scaffnew_stay_with_a_worker_that_was_absent():
    """Worker 1 misses step 2, in whose end the others average."""
    strategy, communicator, x = methods.scaffnew(SGD, 1.0), Communicator(workers=N, seed=1), start(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    shifts = []
    for communicator.step in range(5):
        communicator.begin(
            communicator.step, present=torch.tensor([w != 1 or communicator.step != 2 for w in range(N)])
        )
        x = strategy.step(x, slope(x, communicator.step), communicator)
        if communicator.step == 2:
            x = x[:1].repeat(N, 1)
        shifts.append(strategy.local.shift.clone())
    assert torch.equal(shifts[3][1], shifts[1][1]), "it did not take the step before"
    assert not torch.equal(shifts[3][0], shifts[2][0])
    assert not torch.equal(shifts[4][1], shifts[3][1])


def test_scaffnew_stands_still_where_the_rate_is_nothing():
    ending = scheduled(SGD, partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda k: float(k < 3)))
    path, shifts = drive(methods.scaffnew(ending, 1.0), steps=8, watch=lambda s: s.local.shift.clone())
    assert (path[-1] - path[3]).abs().max() <= 1e-12
    assert all(shift.isfinite().all() for shift in shifts)


# --- SCAFFOLD, option I ---


@pytest.mark.parametrize("optimizer", [SGD, DROP], ids=["constant", "drop"])
def test_scaffold_with_gradients_at_the_servers_model(optimizer):
    period, rates = 5, RATES if optimizer is DROP else [0.1] * STEPS
    path, _ = drive(methods.scaffold(optimizer, period, "one"))
    x, y = start(N, D), start(N, D)
    variates, c = torch.zeros(N, D, dtype=torch.float64), torch.zeros(1, D, dtype=torch.float64)
    for k in range(STEPS):
        if k % period == 0:
            fresh = slope(x, k)
        y = y - rates[k] * (slope(y, k) - variates + c)
        if k % period == period - 1:
            variates, c = fresh, mean(fresh)
            x = y = mean(y)
        assert (path[k + 1] - y).abs().max() <= 1e-12
