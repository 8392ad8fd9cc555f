"""What the methods that mix, push, correct or share in turns must reduce to, at 1e-12 in float64 (algorithms.md,
sections 2 and 3).
"""

from __future__ import annotations

from functools import partial

import networkx
import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, methods, topologies
from commeff.compressors import QSGD, Dense, Natural, RandomK, TopK
from commeff.core.properties import scope_of
from commeff.transforms import Average, Every, Fragments, Outer
from tests.laws.paths import (
    DROP,
    EXPONENTIAL,
    HEAVY,
    RATES,
    RING,
    SGD,
    STEPS,
    D,
    N,
    dense,
    drive,
    equal,
    follows,
    mean,
    slope,
)

FAN = networkx.DiGraph([(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (5, 2), (4, 1)])
DIRECTED = topologies.from_graph(FAN)
CHANGING = topologies.from_matrices([DIRECTED.at(0).dense(), topologies.from_graph(FAN.reverse()).at(0).dense()])
CURVATURES = torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None]
CENTRES = torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
OPTIMUM = (CURVATURES * CENTRES).sum() / CURVATURES.sum()


def apart(x, step):
    """Gradients of quadratics that disagree about where the minimum is, and how steep it is."""
    return CURVATURES * (x - CENTRES)


def end(strategy, steps=600):
    return drive(strategy, steps=steps, d=1, slope=apart)[0][-1]


# --- momentum under gossip ---


def test_dmsgd_mixes_its_momentum_too():
    w, beta, m = dense(EXPONENTIAL), 0.6, torch.zeros(N, D, dtype=torch.float64)

    def update(k, x):
        nonlocal m
        moved, m = w @ (x[k] - 0.1 * m), w @ (beta * m + slope(x[k], k))
        return moved

    follows(drive(methods.dmsgd(SGD, EXPONENTIAL, beta))[0], update)


def test_decentlam_follows_its_equations_through_a_learning_rate_drop():
    w, beta, m = dense(RING), 0.7, torch.zeros(N, D, dtype=torch.float64)

    def update(k, x):
        nonlocal m
        moved = (x[k] - w @ (x[k] - RATES[k] * slope(x[k], k))) / RATES[k]
        m = beta * m + moved
        return x[k] - RATES[k] * m

    follows(drive(methods.decentlam(DROP, RING, beta))[0], update)
    equal(methods.decentlam(SGD, RING, beta=0.0), methods.dsgd(SGD, RING))


@pytest.mark.parametrize("nesterov", [False, True])
def test_qg_dsgdm_follows_its_equations_through_a_learning_rate_drop(nesterov):
    w, beta, mu, h = dense(RING), 0.8, 0.7, torch.zeros(N, D, dtype=torch.float64)

    def update(k, x):
        nonlocal h
        if k:
            h = mu * h + (1 - mu) * (x[k - 1] - x[k]) / RATES[k - 1]
        m = beta * h + slope(x[k], k)
        return w @ (x[k] - RATES[k] * (slope(x[k], k) + beta * m if nesterov else m))

    follows(drive(methods.qg_dsgdm(DROP, RING, beta, mu, nesterov))[0], update)
    equal(methods.qg_dsgdm(SGD, RING, beta=0.0), methods.dsgd(SGD, RING))


def test_decentlam_and_quasi_global_momentum_end_where_plain_gossip_does_and_local_momentum_further_away():
    plain = end(methods.dsgd(SGD, RING))
    assert (end(methods.decentlam(SGD, RING, beta=0.8)) - plain).abs().max() <= 1e-10
    assert (end(methods.qg_dsgdm(SGD, RING, beta=0.8, mu=0.8)) - plain).abs().max() <= 1e-10
    amplified = partial(torch.optim.SGD, lr=0.1, momentum=0.8)
    assert (end(methods.dsgd(amplified, RING)) - plain).abs().max() > 0.1
    assert (end(methods.dmsgd(SGD, RING, beta=0.8)) - plain).abs().max() > 0.1


# --- corrections ---


def test_exact_diffusion_follows_its_equations_through_a_learning_rate_drop():
    w, before = (dense(RING) + torch.eye(N, dtype=torch.float64)) / 2, None

    def update(k, x):
        nonlocal before
        now = x[k] - RATES[k] * slope(x[k], k)
        out = w @ (now + x[k] - (x[0] if before is None else before))
        before = now
        return out

    follows(drive(methods.exact_diffusion(DROP, RING))[0], update)
    equal(methods.exact_diffusion(SGD, RING), methods.d2(SGD, topologies.lazy(RING)))


@pytest.mark.parametrize("refused", [topologies.one_peer_exponential(4), topologies.exponential(6)])
def test_exact_diffusion_says_what_it_needs(refused):
    with pytest.raises(ValueError, match=r"exact_diffusion: .* must be (fixed|symmetric), got"):
        methods.exact_diffusion(SGD, refused)


def test_scaffold_is_its_published_form_with_control_variates_that_travel():
    period, c, ci, y, x0 = 5, torch.zeros(1, D, dtype=torch.float64), torch.zeros(N, D, dtype=torch.float64), None, None
    path, _ = drive(methods.scaffold(DROP, period))
    for k in range(STEPS):
        if k % period == 0:
            x0 = y = path[k]
            rates = sum(RATES[k : k + period])
        y = y - RATES[k] * (slope(y, k) - ci + c)
        if (k + 1) % period == 0:
            ci = ci - c + (x0 - y) / rates
            c, y = ci.mean(0, keepdim=True), mean(y)
        assert (path[k + 1] - y).abs().max() <= 1e-12


def test_scaffold_and_diana_reach_the_optimum_that_their_plain_forms_miss():
    assert (end(methods.scaffold(SGD, period=5)) - OPTIMUM).abs().max() <= 1e-10
    assert (end(methods.local_sgd(SGD, period=5)) - OPTIMUM).abs().max() > 0.05
    assert (end(methods.diana(SGD, Natural())) - OPTIMUM).abs().max() <= 1e-10
    assert (end(methods.compressed_sgd(SGD, Natural())) - OPTIMUM).abs().max() > 1e-4


def test_fedprox_pulls_towards_what_the_period_began_with():
    period, mu = 4, 0.3

    def update(k, x):
        moved = x[k] - 0.1 * (slope(x[k], k) + mu * (x[k] - x[k - k % period]))
        return mean(moved) if (k + 1) % period == 0 else moved

    follows(drive(methods.fedprox(SGD, period, mu))[0], update)
    equal(methods.fedprox(HEAVY, period, mu=0.0), methods.local_sgd(HEAVY, period))


def test_fedopt_is_local_sgd_with_a_plain_server_and_adagrad_on_the_mean_move():
    plain, adagrad = partial(torch.optim.SGD, lr=1.0), partial(torch.optim.Adagrad, lr=0.3, eps=1e-3)
    equal(methods.fedopt(HEAVY, period=4, server=plain), methods.local_sgd(HEAVY, period=4))
    path, _ = drive(methods.fedopt(SGD, period=3, server=adagrad))
    anchor, x, v = path[0], path[0], torch.zeros(N, D, dtype=torch.float64)
    for k in range(STEPS):
        x = x - 0.1 * slope(x, k)
        if (k + 1) % 3 == 0:
            move = mean(anchor - x)
            v = v + move.square()
            anchor = x = anchor - 0.3 * move / (v.sqrt() + 1e-3)
        assert (path[k + 1] - x).abs().max() <= 1e-12


def test_fedopts_default_is_fedadam_with_torchs_corrections():
    path, _ = drive(methods.fedopt(SGD, period=3))
    anchor = x = path[0]
    m, v, t = 0 * x, 0 * x, 0
    for k in range(STEPS):
        x = x - 0.1 * slope(x, k)
        if (k + 1) % 3 == 0:
            t, move = t + 1, mean(anchor - x)
            m, v = 0.9 * m + 0.1 * move, 0.99 * v + 0.01 * move.square()
            anchor = x = anchor - 0.01 * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-3)
        assert (path[k + 1] - x).abs().max() <= 1e-12


def test_diana_learns_what_it_compresses_and_reduces_to_its_kin():
    path, seen = drive(
        methods.diana(SGD, RandomK(k=4)),
        watch=lambda s: (s.gradients.shift.clone(), s.gradients.mean.clone()),
    )
    assert torch.isfinite(path).all()
    for shift, h in seen:
        assert (shift.mean(0) - h[0]).abs().max() <= 1e-12
    equal(methods.diana(SGD, Natural(), alpha=0.0), methods.compressed_sgd(SGD, Natural()))
    equal(methods.diana(HEAVY, Dense(), alpha=0.4), methods.psgd(HEAVY))
    assert scope_of(methods.diana(SGD, Natural()).gradients) == "whole"
    assert scope_of(methods.diana(SGD, Natural(), alpha=0.5).gradients) == "coordinate"
    with pytest.raises(ValueError, match="DIANA needs an unbiased compressor, got TopK"):
        drive(methods.diana(SGD, TopK(k=2)))


# --- push-sum ---


def test_push_sum_follows_its_equations_on_a_directed_graph():
    p = dense(DIRECTED)
    assert not DIRECTED.at(0).row_stochastic
    y, w = None, torch.ones(N, 1, dtype=torch.float64)
    path, seen = drive(methods.sgp(SGD, DIRECTED), watch=lambda s: s.parameters.weight.clone())
    y = path[0]
    for k in range(STEPS):
        y, w = p @ (y - 0.1 * slope(path[k], k)), p @ w
        assert (path[k + 1] - y / w).abs().max() <= 1e-12
        assert (seen[k] - w).abs().max() <= 1e-12
        assert float(seen[k].sum()) == pytest.approx(N, abs=1e-12)


def test_push_sum_finds_the_mean_where_gossip_is_refused_and_is_gossip_where_rows_sum_too():
    still = drive(methods.sgp(SGD, DIRECTED), steps=400, slope=lambda x, k: torch.zeros_like(x) + (k == 0) * CENTRES)[0]
    assert (still[-1] - (still[0] - 0.1 * CENTRES).mean(0)).abs().max() <= 1e-12
    with pytest.raises(ValueError, match="weights must sum to 1 for each receiver"):
        methods.dsgd(SGD, DIRECTED)
    equal(methods.sgp(HEAVY, EXPONENTIAL), methods.dsgd(HEAVY, EXPONENTIAL))
    lossy = topologies.from_matrices([np.full((N, N), 1 / N) + np.outer(np.arange(N), np.r_[1.0, -1, 0, 0, 0, 0])])
    with pytest.raises(ValueError, match="weights must sum to 1 for each sender"):
        methods.sgp(SGD, lossy)


def test_diging_follows_its_equations():
    """The papers' order and start: y^0 = g^0, and the mean of y is that of g."""
    w = dense(RING)
    path, seen = drive(methods.gradient_tracking(SGD, RING, order="awc"), watch=lambda s: s.gradients.tracked.clone())
    y = slope(path[0], 0)
    for k in range(STEPS):
        assert (seen[k] - y).abs().max() <= 1e-12
        assert (path[k + 1] - (w @ path[k] - 0.1 * y)).abs().max() <= 1e-12
        assert (y.sum(0) - slope(path[k], k).sum(0)).abs().max() <= 1e-12
        y = w @ y + slope(path[k + 1], k + 1) - slope(path[k], k)


@pytest.mark.parametrize("graph", [DIRECTED, CHANGING], ids=["fixed", "changing"])
def test_push_diging_follows_its_equations_on_a_directed_graph(graph):
    """Of arXiv 1607.03218, Algorithm 2: C(k) is that of all three that step k mixes."""
    path, _ = drive(methods.push_diging(SGD, graph))
    u, y, weight = path[0], slope(path[0], 0), torch.ones(N, 1, dtype=torch.float64)
    for k in range(STEPS):
        c = torch.from_numpy(graph.at(k).dense())
        u, weight = c @ (u - 0.1 * y), c @ weight
        assert (path[k + 1] - u / weight).abs().max() <= 1e-12
        y = c @ y + slope(path[k + 1], k + 1) - slope(path[k], k)
        assert (y.sum(0) - slope(path[k + 1], k + 1).sum(0)).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("method", "numbers", "degree"),
    [
        (methods.push_diging(SGD, DIRECTED), 2 * D + 1, len(FAN.edges) / N),
        (methods.dmsgd(SGD, RING), 2 * D, 2),
        (methods.noloco(SGD, RING, period=1), 2 * D, 2),
    ],
)
def test_two_vectors_are_one_message_in_one_round(method, numbers, degree):
    communicator, x = Communicator(workers=N), torch.zeros(N, D, dtype=torch.float64)
    method.start(x, Layout.flat(D), communicator)
    method.step(x, x, communicator)
    (row,) = communicator.ledger.rows
    assert (row.payload_bytes, row.messages, row.rounds) == (8 * numbers, pytest.approx(degree), 1)


def test_push_diging_is_diging_where_rows_sum_too():
    """The weights stay 1, and what is left is y = W y + g - g, x = W (x - gamma y)."""
    w = dense(EXPONENTIAL)
    path, _ = drive(methods.push_diging(SGD, EXPONENTIAL))
    y = slope(path[0], 0)
    for k in range(STEPS):
        assert (path[k + 1] - w @ (path[k] - 0.1 * y)).abs().max() <= 1e-12
        y = w @ y + slope(path[k + 1], k + 1) - slope(path[k], k)
    with pytest.raises(ValueError, match="weights must sum to 1 for each receiver"):
        methods.gradient_tracking(SGD, DIRECTED, order="awc")


def test_push_diging_has_no_bias_where_push_sum_has_one():
    curvatures = torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None]
    b = torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    optimum = (curvatures * b).sum() / curvatures.sum()
    slow = partial(torch.optim.SGD, lr=0.03)
    ends = [
        drive(method(slow, DIRECTED), steps=4000, d=1, slope=lambda x, k: curvatures * (x - b))[0][-1]
        for method in (methods.push_diging, methods.sgp)
    ]
    assert (ends[0] - optimum).abs().max() <= 1e-11
    assert (ends[1] - optimum).abs().max() > 1e-3


def test_push_sum_sends_one_number_more():
    communicator, x = Communicator(workers=N), torch.zeros(N, D, dtype=torch.float64)
    strategy = methods.sgp(SGD, RING)
    strategy.start(x, Layout.flat(D), communicator)
    strategy.step(x, x, communicator)
    assert communicator.ledger.payload_bytes == 8 * (D + 1)


# --- turns and shares ---


def test_post_local_sgd_is_parallel_until_it_begins():
    path, _ = drive(methods.post_local_sgd(HEAVY, period=4, begin=10))
    early, _ = drive(methods.local_sgd(HEAVY, period=1))
    assert torch.equal(path[:11], early[:11])
    spread = [float((x - x.mean(0)).abs().max()) for x in path]
    assert [k for k in range(11, STEPS + 1) if spread[k] < 1e-12] == [14, 18, 22, 26, 30], "every period has 4 steps"
    equal(methods.post_local_sgd(HEAVY, period=4, begin=0), methods.local_sgd(HEAVY, period=4))


def test_sparta_is_parallel_sgd_at_ratio_one_and_keeps_the_mean_at_any():
    equal(methods.sparta(SGD, ratio=1.0), methods.psgd(SGD))
    path, _ = drive(methods.sparta(SGD, ratio=0.3))
    for k in range(STEPS):
        moved = path[k] - 0.1 * slope(path[k], k)
        assert (path[k + 1] - moved).mean(0).abs().max() <= 1e-12
        shared = (path[k + 1] - path[k + 1].mean(0)).abs().amax(0) <= 1e-12
        assert int(shared.sum()) == 3
        assert (path[k + 1] - moved)[:, ~shared].abs().max() <= 1e-12


def test_sparse_loco_is_local_sgd_where_it_says_everything():
    equal(methods.sparse_loco(HEAVY, Dense(), period=4, decay=0.3), methods.local_sgd(HEAVY, period=4))
    e, anchor, period, decay = torch.zeros(N, D, dtype=torch.float64), None, 3, 0.6
    path, _ = drive(methods.sparse_loco(SGD, TopK(k=4), period, decay, partial(torch.optim.SGD, lr=0.8)))
    anchor = x = path[0]
    for k in range(STEPS):
        x = x - 0.1 * slope(x, k)
        if (k + 1) % period == 0:
            e = decay * e + anchor - x
            sent = torch.zeros_like(e).scatter(1, (top := e.abs().topk(4).indices), e.gather(1, top))
            e = e - sent
            anchor = x = anchor - 0.8 * mean(sent)
        assert (path[k + 1] - x).abs().max() <= 1e-12


LAYERS = Layout.of([("a", (4,)), ("b", (2,)), ("c", (3,)), ("d", (1,))])


def test_streaming_diloco_is_diloco_whose_fragments_take_turns():
    equal(methods.streaming_diloco(SGD, period=3, fragments=1), methods.diloco(SGD, period=3))
    strategy = methods.streaming_diloco(SGD, period=6, fragments=3)
    path, _ = drive(strategy, layout=LAYERS)
    assert strategy.parameters._spans == [(0, 4), (4, 6), (6, 10)]
    whole = methods.diloco(SGD, period=6)
    for k in range(STEPS):
        spread = (path[k + 1] - path[k + 1].mean(0)).abs().amax(0)
        due = {i for i, (a, b) in enumerate(strategy.parameters._spans) if spread[a:b].max() <= 1e-12}
        assert due == {i for i in range(3) if (k + 1 + 2 * i) % 6 == 0}
    a = drive(whole)[0]
    assert (path[:, :, :4] - a[:, :, :4]).abs().max() <= 1e-12, "coordinates of this problem do not feel each other"


def test_streaming_diloco_sends_as_much_as_diloco_but_less_at_once():
    def bill(strategy):
        communicator, x = Communicator(workers=N), torch.zeros(N, D, dtype=torch.float64)
        strategy.start(x, LAYERS, communicator)
        for communicator.step in range(12):
            x = strategy.step(x, slope(x, communicator.step), communicator)
        by_step = [0] * 12
        for row in communicator.ledger.rows:
            by_step[row.step] += row.payload_bytes
        return by_step

    one, parted = bill(methods.diloco(SGD, period=6)), bill(methods.streaming_diloco(SGD, period=6, fragments=3))
    assert sum(one) == sum(parted) == 2 * 8 * D
    assert max(parted) == 8 * 4 < max(one)


@pytest.mark.parametrize(("count", "cuts"), [(1, []), (2, [4]), (3, [4, 6]), (4, [4, 6, 9]), (5, [2, 4, 6, 8])])
def test_fragments_are_whole_tensors_where_there_are_enough(count, cuts):
    fragments = Fragments(Every(4, Outer(Local(SGD), Average())), count)
    Strategy(Local(SGD), parameters=fragments).start(
        torch.zeros(N, D, dtype=torch.float64), LAYERS, Communicator(workers=N)
    )
    assert list(fragments.cuts) == cuts


def test_momenta_and_periods_out_of_range_are_refused():
    for wrong in (
        lambda: methods.qg_dsgdm(SGD, RING, beta=1.0),
        lambda: methods.dmsgd(SGD, RING, beta=-0.1),
        lambda: methods.scaffold(SGD, period=0),
        lambda: methods.fedprox(SGD, mu=-1.0),
        lambda: methods.streaming_diloco(SGD, fragments=0),
        lambda: methods.post_local_sgd(SGD, begin=-1),
        lambda: methods.diana(SGD, QSGD(levels=3), alpha=1.5),
    ):
        with pytest.raises(ValueError, match=r"must|asked for"):
            wrong()
