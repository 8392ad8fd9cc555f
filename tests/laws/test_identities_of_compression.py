"""What compressed methods must reduce to, and the recursions of their papers written out, at 1e-12 in float64."""

from __future__ import annotations

import pytest
import torch

from commeff import Communicator, Layout, methods, topologies
from commeff.compressors import QSGD, Composed, Dense, Natural, TopK
from commeff.laws import start
from tests.laws.paths import DROP, EXPONENTIAL, HEAVY, MEAN, RATES, RING, SGD, STEPS, D, N, dense, drive, equal, slope

LAZY = topologies.lazy(RING)


def top(v, k):
    return torch.zeros_like(v).scatter(1, index := v.abs().argsort(1, descending=True)[:, :k], v.gather(1, index))


def natural(v, step, path=("parameters", "up")):
    """C(v) with the randomness of a strategy's first transform."""
    communicator = Communicator(workers=N, seed=1)
    communicator.step = step
    for name in path[:-1]:
        communicator = communicator.child(name)
    return Natural().compress(v, communicator.random(path[-1])).decode()


# --- compressed gossip ---


@pytest.mark.parametrize("graph", [LAZY, EXPONENTIAL, topologies.one_peer_exponential(N)])
def test_gossip_that_loses_nothing_is_gossip(graph):
    equal(methods.deep_squeeze(HEAVY, graph, Dense(), eta=1.0), methods.dsgd(HEAVY, graph))
    if graph.period == 1:
        for method in (methods.dcd_psgd, methods.ecd_psgd):
            equal(method(HEAVY, graph, Dense()), methods.dsgd(HEAVY, graph, order="awc"))
    equal(methods.deep_squeeze(SGD, MEAN, Dense(), eta=1.0), methods.psgd(SGD))


def test_deep_squeeze_follows_its_equations_and_hides_exact_sgd():
    path, errors = drive(methods.deep_squeeze(DROP, RING, TopK(k=6), eta=0.4), watch=lambda s: error_of(s).clone())
    e, w = torch.zeros(N, D, dtype=torch.float64), dense(RING)
    for k in range(STEPS):
        v = path[k] - RATES[k] * slope(path[k], k) + e
        before, c = e, top(v, 6)
        e = v - c
        assert (errors[k] - e).abs().max() <= 1e-12
        assert (path[k + 1] - (c + 0.4 * (w @ c - c))).abs().max() <= 1e-12
        moved = (path[k + 1] + e - path[k] - before).mean(0)
        assert (moved + RATES[k] * slope(path[k], k).mean(0)).abs().max() <= 1e-12


def error_of(strategy):
    return strategy.parameters.encoder.error


def test_dcd_follows_its_equation_and_its_neighbours_know_where_it_is():
    path, sums = drive(methods.dcd_psgd(SGD, LAZY, Natural()), watch=lambda s: s.parameters.neighbours.clone())
    w = dense(LAZY)
    for k in range(STEPS):
        move = w @ path[k] - 0.1 * slope(path[k], k) - path[k]
        assert (path[k + 1] - (path[k] + natural(move, k))).abs().max() <= 1e-12
        assert (sums[k] - w @ path[k + 1]).abs().max() <= 1e-12


def test_ecd_extrapolates_as_published():
    path, sums = drive(methods.ecd_psgd(SGD, LAZY, Natural()), watch=lambda s: s.parameters.neighbours.clone())
    w, y = dense(LAZY), start(N, D)
    for k in range(STEPS):
        t = k + 1
        assert (path[k + 1] - (w @ y - 0.1 * slope(path[k], k))).abs().max() <= 1e-12
        z = (1 - 0.5 * t) * path[k] + 0.5 * t * path[k + 1]
        y = (1 - 2 / t) * y + 2 / t * natural(z, k)
        assert (sums[k] - w @ y).abs().max() <= 1e-12


def test_what_compressed_gossip_needs_is_said():
    changing = topologies.one_peer_exponential(N)
    for method in (methods.dcd_psgd, methods.ecd_psgd):
        with pytest.raises(ValueError, match=r"(D|E)CD-PSGD needs a fixed topology"):
            drive(method(SGD, changing, Natural()))
        with pytest.raises(ValueError, match=r"(D|E)CD-PSGD needs an unbiased compressor, got TopK"):
            drive(method(SGD, LAZY, TopK(k=2)))
    with pytest.raises(ValueError, match=r"eta must lie in \(0, 1\], got 0"):
        methods.deep_squeeze(SGD, LAZY, Dense(), eta=0)


# --- local steps ---


def test_qsparse_remembers_what_a_period_has_missed():
    period, k = 3, 4
    path, _ = drive(methods.qsparse_local_sgd(SGD, TopK(k=k), period))
    x = anchor = start(N, D)
    e = torch.zeros_like(x)
    for step in range(STEPS):
        x = x - 0.1 * slope(x, step)
        if (step + 1) % period == 0:
            q = anchor - x + e
            e = q - top(q, k)
            x = anchor = anchor - top(q, k).mean(0)
        assert (path[step + 1] - x).abs().max() <= 1e-12
    equal(methods.qsparse_local_sgd(HEAVY, Dense(), period), methods.local_sgd(HEAVY, period))
    equal(methods.qsparse_local_sgd(SGD, TopK(k=k), period=1), methods.mem_sgd(SGD, TopK(k=k)))
    equal(methods.qsparse_local_sgd(SGD, Dense(), period=1), methods.psgd(SGD))


def test_qsparse_sends_a_quantised_selection_once_a_period():
    communicator, x = Communicator(workers=N), start(N, D)
    strategy = methods.qsparse_local_sgd(SGD, Composed(QSGD(levels=7), TopK(k=2)), period=2)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(4):
        x = strategy.step(x, slope(x, communicator.step), communicator)
    assert communicator.ledger.payload_bytes == 2 * (1 + 8 + 1), "2 indices of 4 bits, a scale, 2 codes of 4 bits"
