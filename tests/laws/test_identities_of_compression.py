"""What compressed gossip, local steps and Adam must do: the recursions of their papers, at 1e-12 in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, methods, topologies
from commeff.compressors import QSGD, Composed, Dense, Natural, ScaledSign, TopK
from commeff.core import scheduled
from commeff.laws import start
from commeff.optimizers import UncorrectedAdam
from commeff.transforms import Doubling, Thinning
from tests.laws.messages import natural
from tests.laws.paths import (
    DROP,
    EXPONENTIAL,
    HEAVY,
    MEAN,
    RATES,
    RING,
    SGD,
    STEPS,
    D,
    N,
    dense,
    drive,
    equal,
    mean,
    slope,
)

LAZY = topologies.lazy(RING)


def top(v, k):
    return torch.zeros_like(v).scatter(1, index := v.abs().argsort(1, descending=True)[:, :k], v.gather(1, index))


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


# --- Adam ---

BETAS, EPS = (0.8, 0.9), 1e-3
ADAM = {"beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS}
UNCORRECTED = partial(UncorrectedAdam, lr=0.1, betas=BETAS, eps=EPS)


def test_one_bit_adam_without_end_is_adam_on_averages():
    adam = methods.psgd(scheduled(UNCORRECTED, DROP.schedule))
    equal(methods.one_bit_adam(DROP, TopK(k=1), warmup=STEPS, **ADAM), adam)
    path, _ = drive(methods.one_bit_adam(SGD, Dense(), warmup=9, **ADAM))
    x, m, v = start(N, D), 0, 0
    for k in range(STEPS):
        g = slope(x, k).mean(0)
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g**2 if k < 9 else v
        x = x - 0.1 * m / (v.sqrt() + EPS)
        assert (path[k + 1] - x).abs().max() <= 1e-12


@pytest.mark.parametrize("server", ["row", "sharded"])
def test_one_bit_adam_sends_its_momentum_both_ways(server):
    """A plain loop: top-k of the momenta with errors at the workers and at the server, or at n of them."""
    warmup, k = 5, 1 if server == "sharded" else 3
    shards = [[D * i // N, D * (i + 1) // N] for i in range(N)] if server == "sharded" else [[0, D]]
    path, _ = drive(methods.one_bit_adam(SGD, TopK(k=k), warmup=warmup, server=server, **ADAM))
    x, m, v, up, down = (torch.zeros(N, D, dtype=torch.float64) for _ in range(5))
    x = start(N, D)
    for step in range(STEPS):
        g = slope(x, step)
        if step < warmup:
            m = BETAS[0] * m + (1 - BETAS[0]) * mean(g)
            v = BETAS[1] * v + (1 - BETAS[1]) * mean(g) ** 2
        else:
            own = BETAS[0] * m + (1 - BETAS[0]) * g + up
            sent = torch.cat([top(own[:, a:b], k) for a, b in shards], 1)
            up = own - sent
            there = mean(sent) + down
            m = torch.cat([top(there[:, a:b], k) for a, b in shards], 1)
            down = there - m
        x = x - 0.1 * m / (v.sqrt() + EPS)
        assert (path[step + 1] - x).abs().max() <= 1e-12


def test_zero_one_adam_moves_alone_between_averages_as_published():
    """u is what a worker moved, in units before the division by v; all go on from where they were together."""
    freeze, kappa, doubling, longest = 6, 2, 8, 4
    path, _ = drive(
        methods.zero_one_adam(DROP, TopK(k=3), Thinning(freeze, kappa), Doubling(doubling, longest), **ADAM)
    )
    x = anchor = start(N, D)
    m, v, u, up, down = (torch.zeros(N, D, dtype=torch.float64) for _ in range(5))
    rates = 0
    for k in range(STEPS):
        g, gamma, alone = slope(x, k), RATES[k], (k - freeze) // doubling if k >= freeze else 0
        updates, meets = k in (0, 1, 2, 4), k < freeze or (k - freeze + 1) % min(longest, 2**alone) == 0
        if updates:
            g = mean(g)
            v = BETAS[1] * v + (1 - BETAS[1]) * g**2
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        x = x - gamma * m / (v.sqrt() + EPS)
        if updates:
            anchor = x
        else:
            u, rates = u + gamma * m, rates + gamma
            if meets:
                sent = top(u + up, 3)
                up = u + up - sent
                said = top(mean(sent) + down, 3)
                down = mean(sent) + down - said
                m = said / rates
                x = anchor = anchor - said / (v.sqrt() + EPS)
                u, rates = torch.zeros_like(u), 0
        assert (path[k + 1] - x).abs().max() <= 1e-12, k
    assert {k for k in range(STEPS) if path[k + 1].std(0).max() > 1e-9} == alone_steps(freeze, doubling, longest)


def alone_steps(freeze, doubling, longest):
    periods = {k: min(longest, 2 ** ((k - freeze) // doubling)) for k in range(freeze, STEPS)}
    return {k for k, period in periods.items() if (k - freeze + 1) % period}


def test_zero_one_adam_that_always_meets_is_one_bit_adam():
    for compressor in (Dense(), TopK(k=2), ScaledSign()):
        zero_one = methods.zero_one_adam(SGD, compressor, Thinning(freeze=4), Doubling(longest=1), **ADAM)
        equal(zero_one, methods.one_bit_adam(SGD, compressor, warmup=4, **ADAM))
    adam = methods.psgd(UNCORRECTED)
    equal(methods.zero_one_adam(SGD, TopK(k=1), Thinning(STEPS, STEPS), **ADAM), adam)


def test_what_never_had_a_gradient_does_not_move_by_the_errors_of_messages():
    def flat(x, step):
        return torch.cat([slope(x[:, :-1], step), torch.zeros_like(x[:, :1])], 1)

    for method in (partial(methods.one_bit_adam, warmup=2), partial(methods.zero_one_adam, updates=Thinning(4, 1))):
        path, _ = drive(method(SGD, ScaledSign()), slope=flat)
        assert (path[:, :, -1] == path[0, :, -1]).all()


def test_what_compressed_adam_needs_is_said():
    with pytest.raises(ValueError, match="warmup must be a whole number of at least 1, got 0"):
        methods.one_bit_adam(SGD, warmup=0)
    with pytest.raises(ValueError, match=r"beta2 must lie in \[0, 1\), got 1"):
        methods.one_bit_adam(SGD, beta2=1)
    with pytest.raises(ValueError, match="eps must be above 0, got 0"):
        methods.zero_one_adam(SGD, eps=0)
    with pytest.raises(ValueError, match="longest must be a whole number of at least 1, got 0"):
        methods.zero_one_adam(SGD, meetings=Doubling(longest=0))
    with pytest.raises(ValueError, match="server must be one of row, sharded, got 'ring'"):
        methods.one_bit_adam(SGD, server="ring")


@pytest.mark.parametrize(
    ("optimizer", "got"),
    [
        (partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1), "SGD with momentum and weight_decay"),
        (partial(torch.optim.AdamW, lr=0.1), "AdamW"),
    ],
)
def test_zero_one_adam_refuses_an_optimizer_whose_steps_cannot_be_taken_back(optimizer, got):
    strategy, communicator = methods.zero_one_adam(optimizer), Communicator(workers=2)
    with pytest.raises(ValueError, match=f"optimizer must be plain SGD, got {got}"):
        strategy.start(torch.zeros(2, 3), Layout.flat(3), communicator)
