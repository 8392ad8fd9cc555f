"""What compressed methods must reduce to, and the recursions of their papers written out, at 1e-12 in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, methods, profile, topologies
from commeff.compressors import QSGD, Composed, Dense, Natural, RandomK, ScaledSign, TopK, WorkerRandom
from commeff.core import scheduled
from commeff.core.compared import Lazy
from commeff.laws import start
from commeff.optimizers import UncorrectedAdam
from commeff.transforms import ThroughServer
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
    path, _ = drive(methods.zero_one_adam(DROP, TopK(k=3), freeze, kappa, doubling, longest, **ADAM))
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
        zero_one = methods.zero_one_adam(SGD, compressor, freeze=4, longest=1, **ADAM)
        equal(zero_one, methods.one_bit_adam(SGD, compressor, warmup=4, **ADAM))
    adam = methods.psgd(UNCORRECTED)
    equal(methods.zero_one_adam(SGD, TopK(k=1), freeze=STEPS, kappa=STEPS, **ADAM), adam)


def test_what_never_had_a_gradient_does_not_move_by_the_errors_of_messages():
    def flat(x, step):
        return torch.cat([slope(x[:, :-1], step), torch.zeros_like(x[:, :1])], 1)

    for method in (partial(methods.one_bit_adam, warmup=2), partial(methods.zero_one_adam, freeze=4, kappa=1)):
        path, _ = drive(method(SGD, ScaledSign()), slope=flat)
        assert (path[:, :, -1] == path[0, :, -1]).all()


def test_what_compressed_adam_needs_is_said():
    with pytest.raises(ValueError, match="warmup must be at least 1, got 0"):
        methods.one_bit_adam(SGD, warmup=0)
    with pytest.raises(ValueError, match=r"beta2 must lie in \[0, 1\), got 1"):
        methods.one_bit_adam(SGD, beta2=1)
    with pytest.raises(ValueError, match="eps must be above 0, got 0"):
        methods.zero_one_adam(SGD, eps=0)
    with pytest.raises(ValueError, match="longest must be a whole number of at least 1, got 0"):
        methods.zero_one_adam(SGD, longest=0)
    with pytest.raises(ValueError, match="server must be one of 'row', 'sharded', got 'ring'"):
        methods.one_bit_adam(SGD, server="ring")


# --- MARINA ---


def coins(probability):
    keys = (WorkerRandom(1, [0], k, ("local", "coin")) for k in range(STEPS))
    return [k == 0 or float(key.uniform(1)) < probability for k, key in enumerate(keys)]


def test_marina_moves_by_differences_of_the_same_batch():
    p = 0.3
    path, _ = drive(methods.marina(SGD, Natural(), p))
    assert 3 < sum(coins(p)) < STEPS - 3
    for k, whole in enumerate(coins(p)):
        g = slope(path[k], k)
        if whole:
            h = g.mean(0)
        else:
            h = h + natural(g - slope(path[k - 1], k), k, ("gradients", "up")).mean(0)
        assert (path[k + 1] - (path[k] - 0.1 * h)).abs().max() <= 1e-12


def test_marina_is_psgd_where_it_sends_whole_gradients_or_loses_nothing_without_noise():
    equal(methods.marina(HEAVY, Natural(), probability=1.0), methods.psgd(HEAVY))

    def quiet(x, step):
        return slope(x, 0)

    equal(methods.marina(HEAVY, Dense(), probability=0.2), methods.psgd(HEAVY), slope=quiet)
    with pytest.raises(ValueError, match="MARINA needs an unbiased compressor, got TopK"):
        drive(methods.marina(SGD, TopK(k=2)))
    with pytest.raises(ValueError, match=r"probability must lie in \(0, 1\], got 0"):
        methods.marina(SGD, Natural(), probability=0)


def test_what_compares_gradients_asks_for_an_oracle():
    communicator, x = Communicator(workers=N), start(N, D)
    for strategy in (methods.marina(SGD, Natural()), methods.lasg(SGD)):
        strategy.start(x, Layout.flat(D), communicator)
        with pytest.raises(ValueError, match="must know gradients of the step's batch at another point, got no oracle"):
            strategy.step(x, slope(x, 0), communicator)


def test_marina_sends_as_much_as_its_coins_say():
    p, k = 0.3, 2
    strategy, communicator, x = methods.marina(SGD, RandomK(k=k), p), Communicator(workers=N, seed=1), start(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(STEPS):
        x = strategy.step(x, slope(x, 0), communicator, partial(slope, step=0))
    bytes_sent = [row.payload_bytes for row in communicator.ledger.rows]
    assert bytes_sent == [8 * D if whole else 8 * k + 8 for whole in coins(p)]
    drawn = [float(WorkerRandom(1, [0], k, ("local", "coin")).uniform(1)) < p for k in range(4000)]
    assert abs(sum(drawn) / 4000 - p) < 4 * (p * (1 - p) / 4000) ** 0.5


def test_marina_goes_on_without_some_workers_from_the_mean_of_all():
    """With partial participation the mean moves by the mean difference of those who are there."""
    strategy, communicator, x = methods.marina(SGD, Dense(), 0.3), Communicator(workers=N, seed=1), start(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    before, h, there = x.clone(), None, torch.tensor([True] * (N - 2) + [False] * 2)
    for communicator.step in range(8):
        communicator.active = None if communicator.step % 3 == 0 else there
        here = torch.ones(N, dtype=torch.bool) if communicator.active is None else there
        g = slope(x, communicator.step)
        old = slope(before, communicator.step)
        h = g[here].mean(0) if coins(0.3)[communicator.step] else h + (g - old)[here].mean(0)
        expected = torch.where(here[:, None], x - 0.1 * h, x)
        after = strategy.step(x, g, communicator, partial(slope, step=communicator.step))
        assert (after - expected).abs().max() <= 1e-12
        before, x = torch.where(here[:, None], x, before), after


# --- lazily aggregated gradients ---


def test_lag_is_silent_where_a_plain_loop_is():
    """LAG-WK: the condition of arXiv 1805.09965, (15a), for the mean of the f_i; momentum moves x too."""
    xi, memory = 0.02, 4
    path, seen = drive(methods.lag(DROP, threshold=xi, memory=memory), watch=lambda s: s.local.sends.clone())
    h = torch.zeros(N, D, dtype=torch.float64)
    for k in range(STEPS):
        g = slope(path[k], k)
        moves = sum((path[k + 1 - d] - path[k - d]).square().sum(1) for d in range(1, memory + 1) if k - d >= 0)
        speaks = (g - h).square().sum(1) > xi / RATES[k] ** 2 * moves if k else torch.ones(N, dtype=torch.bool)
        assert torch.equal(seen[k], speaks)
        h = torch.where(speaks[:, None], g, h)
        assert (path[k + 1] - (path[k] - RATES[k] * h.mean(0))).abs().max() <= 1e-12
    shares = torch.stack(seen).double().mean(1)
    assert 0 < shares[1:].min() < 1 or (shares[1:] == 0).any()
    assert shares.mean() < 0.9


@pytest.mark.parametrize("rule", ["server", "batch"])
def test_other_rules_compare_points(rule):
    xi, memory, longest = 0.1, 3, 4
    if rule == "server":
        strategy = methods.lag(SGD, rule="server", threshold=xi, memory=memory, smoothness=1.5)
    else:
        strategy = methods.lasg(SGD, threshold=xi, memory=memory, longest=longest)
    path, seen = drive(strategy, watch=lambda s: s.local.sends.clone())
    h, y, age = torch.zeros(N, D, dtype=torch.float64), path[0].clone(), torch.zeros(N)
    for k in range(STEPS):
        g = slope(path[k], k)
        moves = sum((path[k + 1 - d] - path[k - d]).square().sum(1) for d in range(1, memory + 1) if k - d >= 0)
        change = 1.5 * (path[k] - y) if rule == "server" else g - slope(y, k)
        speaks = change.square().sum(1) > xi / 0.01 * moves if k else torch.ones(N, dtype=torch.bool)
        speaks |= age >= longest if rule == "batch" else False
        assert torch.equal(seen[k], speaks)
        age = torch.where(speaks, 1, age + 1)
        h, y = (torch.where(speaks[:, None], new, old) for new, old in ((g, h), (path[k], y)))
        assert (path[k + 1] - (path[k] - 0.1 * h.mean(0))).abs().max() <= 1e-12
    assert 0.05 < torch.stack(seen).double().mean() < 0.95


LAZIES = {
    "worker": partial(methods.lag, SGD, memory=3),
    "server": partial(methods.lag, SGD, rule="server", memory=3),
    "batch": partial(methods.lasg, SGD, memory=3, longest=5),
}


@pytest.mark.parametrize("build", LAZIES.values(), ids=LAZIES)
def test_lazy_workers_are_billed_for_what_they_upload(build):
    def bill(strategy):
        communicator, x, uploads = Communicator(workers=N), start(N, D), []
        communicator.ledger.record()
        strategy.start(x, Layout.flat(D), communicator)
        for communicator.step in range(STEPS):
            oracle = partial(slope, step=communicator.step)
            x = strategy.step(x, oracle(x), communicator, oracle)
            uploads.append(int(strategy.local.sends.sum()) if isinstance(strategy.local, Lazy) else N)
        return communicator.ledger, uploads

    ledger, uploads = bill(build(threshold=0.05))
    assert sum(row.payload_bytes for row in ledger.rows if row.kind == "to_server") * N == 8 * D * sum(uploads)
    assert [row.step for row in ledger.rows if row.kind == "from_server"] == [k for k, n in enumerate(uploads) if n]
    assert sum(row.payload_bytes for row in ledger.rows if row.kind == "all_gather") == STEPS
    always, everybody = bill(build(threshold=0.0))
    through, _ = bill(Strategy(Local(SGD), ThroughServer(Dense(), Dense())))
    assert everybody == [N] * STEPS
    assert always.payload_bytes == through.payload_bytes + STEPS
    assert ledger.payload_bytes < always.payload_bytes
    said = profile(build(threshold=0.05), Layout.flat(D), N, dtype=torch.float64)
    assert (said.exact, said.payload_bytes * STEPS) == (False, always.payload_bytes), "the most that it sends"
    assert "LazyMean depend on values: what is said is the most" in said.note


@pytest.mark.parametrize("build", LAZIES.values(), ids=LAZIES)
def test_who_is_never_silent_is_psgd(build):
    equal(build(threshold=0.0), methods.psgd(SGD))
    if build is LAZIES["batch"]:
        equal(methods.lasg(SGD, threshold=1e9, longest=1), methods.psgd(SGD))


def test_what_lazy_methods_need_is_said():
    for bad, words in {
        "threshold must be at least 0, got -1": {"threshold": -1},
        "memory must be at least 1, got 0": {"memory": 0},
        "smoothness must be above 0, got 0": {"rule": "server", "smoothness": 0},
        "rule must be one of 'worker', 'server', got 'both'": {"rule": "both"},
    }.items():
        with pytest.raises(ValueError, match=bad):
            methods.lag(SGD, **words)
    with pytest.raises(ValueError, match="longest must be at least 1, got 0"):
        methods.lasg(SGD, longest=0)
