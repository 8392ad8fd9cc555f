"""Methods with an anchor, against loops written out from their papers: NoLoCo, Overlap-Local-SGD, MuLoCo."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import methods, topologies
from commeff.compressors import Dense, Int4
from commeff.laws import start
from commeff.optimizers import MuonWithAdamW
from tests.laws.paths import HEAVY, MEAN, RING, SGD, STEPS, D, N, drive, equal, mean, slope

MUON = partial(MuonWithAdamW, lr=0.02)


def zeros():
    return torch.zeros(N, D, dtype=torch.float64)


# --- NoLoCo ---


@pytest.mark.parametrize("topology", [topologies.random_matching(N, 3), RING, topologies.exponential(N)])
@pytest.mark.parametrize("gamma", [0.4, 1.0])
def test_noloco_is_its_published_loop(topology, gamma):
    path, _ = drive(methods.noloco(SGD, topology, period=4, alpha=0.3, beta=0.6, gamma=gamma))
    x, anchor, u = start(N, D), start(N, D), zeros()
    for k in range(STEPS):
        x = x - 0.1 * slope(x, k)
        if k % 4 == 3:
            w = torch.from_numpy(topology.at(k).dense())
            u = 0.3 * u + 0.6 * (w @ (x - anchor)) - gamma * (anchor - w @ anchor)
            x = anchor = anchor + u
        assert (path[k + 1] - x).abs().max() <= 1e-12


def test_noloco_between_all_is_diloco_with_a_heavy_ball():
    heavy = partial(torch.optim.SGD, lr=0.7, momentum=0.5)
    equal(methods.noloco(HEAVY, MEAN, period=3), methods.diloco(HEAVY, 3, heavy))
    equal(methods.noloco(SGD, topologies.random_matching(2, 0), period=3), methods.diloco(SGD, 3, heavy), n=2)
    equal(methods.noloco(SGD, MEAN, 3, alpha=0.0, beta=1.0), methods.local_sgd(SGD, 3))


def test_the_last_term_of_noloco_draws_anchors_together():
    """After one push, which differs between workers, nobody has a slope: they meet at the mean, momentum and all."""
    push = torch.arange(N, dtype=torch.float64)[:, None] ** 2
    path, _ = drive(
        methods.noloco(SGD, topologies.random_matching(N, 1), period=1),
        steps=200,
        slope=lambda x, k: push.expand_as(x) if k == 0 else torch.zeros_like(x),
    )
    spread = (path - path.mean(1, keepdim=True)).abs().amax((1, 2))
    assert spread[1] > 0.1
    assert spread[-1] <= 1e-12
    assert (path[-1].mean(0) - (path[0].mean(0) - 0.7 * 2 * 0.1 * push.mean())).abs().max() <= 1e-12


# --- Overlap-Local-SGD ---


@pytest.mark.parametrize(("pull", "beta"), [(0.6, 0.7), (0.3, 0.0), (1.0, 0.4)])
def test_overlap_local_sgd_by_hand_on_a_quadratic(pull, beta):
    a = torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None]
    b = torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    period, gradient = 4, lambda x, k: a * (x - b)
    path, anchors = drive(
        methods.overlap_local_sgd(SGD, period, pull, beta),
        slope=gradient,
        watch=lambda s: s.parameters.inner.anchor.clone(),
    )
    x, z, v, travelling = start(N, D), start(N, D), zeros(), None
    for k in range(STEPS):
        x = x - 0.1 * gradient(x, k)
        if (k + 1) % period == 0:
            if travelling is not None:  # what was sent a period ago
                v = beta * v + travelling - z
                z = z + v
            x = x - pull * (x - z)
            travelling = mean(x)
        assert (path[k + 1] - x).abs().max() <= 1e-12
        assert (anchors[k] - z).abs().max() <= 1e-12


def test_an_anchor_without_momentum_is_the_mean_a_period_ago():
    path, anchors = drive(
        methods.overlap_local_sgd(HEAVY, 3, 1.0, 0.0), watch=lambda s: s.parameters.inner.anchor.clone()
    )
    for k in range(5, STEPS, 3):
        assert (anchors[k] - mean(path[k - 2])).abs().max() <= 1e-12
        assert (path[k + 1] - anchors[k]).abs().max() <= 1e-12


# --- MuLoCo ---


def test_muloco_is_diloco_with_muon_and_its_settings():
    settings = partial(torch.optim.SGD, lr=0.7, momentum=0.6, nesterov=True)
    equal(methods.muloco(MUON, 3), methods.diloco(MUON, 3, settings), tolerance=0)
    assert methods.muloco(MUON).parameters.period == 30
    compressed = methods.sparse_loco(MUON, Int4(), 3, 1.0, settings)
    path, _ = drive(compressed)
    exact, _ = drive(methods.muloco(MUON, 3))
    assert 1e-4 < (path - exact).abs().max() < 0.2
    equal(methods.sparse_loco(MUON, Dense(), 3, 1.0, settings), methods.muloco(MUON, 3))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: methods.noloco(SGD, RING, alpha=1.0), r"alpha must lie in \[0, 1\), got 1.0"),
        (lambda: methods.noloco(SGD, RING, beta=0.0), "beta must be above 0, got 0.0"),
        (lambda: methods.noloco(SGD, RING, gamma=3.0), r"gamma must lie in \(0, 3\), got 3.0"),
        (lambda: methods.noloco(SGD, RING, gamma=0.0), r"gamma must lie in \(0, 3\), got 0.0"),
        (lambda: drive(methods.noloco(SGD, topologies.ring(4))), "connect the run's 6 workers, got one of 4"),
        (lambda: methods.overlap_local_sgd(SGD, pull=0.0), r"pull must lie in \(0, 1\], got 0.0"),
        (lambda: methods.overlap_local_sgd(SGD, beta=1.0), r"beta must lie in \[0, 1\), got 1.0"),
    ],
)
def test_mistakes_are_refused_in_one_line(build, reason):
    with pytest.raises(ValueError, match=reason) as refusal:
        build()
    assert "\n" not in str(refusal.value)
