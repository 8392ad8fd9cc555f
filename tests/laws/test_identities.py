"""The identities of algorithms.md, section 8: what each method must reduce to, at 1e-12 in float64.

The left side is always the library's method, the right side a recursion written out here from the paper's equation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
import torch

from commeff import Communicator, Layout, Local, Strategy, methods, topologies
from commeff.compressors import QSGD, Compressor, Dense, Message, RandomK, ScaledSign, TopK
from commeff.core import scheduled
from commeff.laws import start
from commeff.transforms import EF21, Average, ErrorControl, ErrorFeedback, ThroughServer, Warmup
from tests.laws.paths import (
    APART,
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
    follows,
    mean,
    slope,
)


@dataclass(frozen=True)
class Shrink(Compressor):
    """C(v) = a v, for which error feedback and EF21 have closed forms."""

    a: float
    scope = "coordinate"

    def compress(self, vectors, random) -> Message:
        return Dense().compress(self.a * vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 1 - (1 - self.a) ** 2

    @classmethod
    def samples(cls):
        return [cls(0.3)]


# --- parallel SGD ---


def test_psgd_is_sgd_on_the_mean_gradient():
    path, _ = drive(methods.psgd(SGD))
    follows(path, lambda k, x: x[k] - 0.1 * mean(slope(x[k], k)))


@pytest.mark.parametrize(
    "average",
    [Average(TopK(ratio=1.0)), ThroughServer(Dense(), Dense()), ThroughServer(TopK(ratio=1.0), TopK(ratio=1.0))],
)
def test_every_way_to_average_gives_parallel_sgd(average):
    equal(Strategy(Local(HEAVY), gradients=average), methods.psgd(HEAVY))


def test_ema_momentum_is_torch_momentum_at_the_damped_rate():
    a, b = 0.2, 0.9
    ema, m = start(), torch.zeros_like(start())
    right = Local(partial(torch.optim.SGD, lr=a * (1 - b), momentum=b))
    wrong = Local(partial(torch.optim.SGD, lr=a, momentum=b, dampening=b))
    x, y = start(), start()
    right.start(x, Layout.flat(12)), wrong.start(y, Layout.flat(12))
    for k in range(STEPS):
        m = b * m + (1 - b) * slope(ema, k)
        ema = ema - a * m
        x, y = right(x, slope(x, k)), wrong(y, slope(y, k))
        assert (x - ema).abs().max() <= 1e-12
        if k == 0:
            assert (y - ema).abs().max() > 1e-3, "torch does not damp its first step"


# --- gossip ---


@pytest.mark.parametrize("topology", [RING, EXPONENTIAL, topologies.one_peer_exponential(N), topologies.star(N)])
def test_gossip_moves_the_mean_by_the_mean_gradient(topology):
    for order in ("atc", "awc"):
        path, _ = drive(methods.dsgd(SGD, topology, order=order))
        for k in range(STEPS):
            assert (path[k + 1].mean(0) - (path[k] - 0.1 * slope(path[k], k)).mean(0)).abs().max() <= 1e-12


@pytest.mark.parametrize("topology", [RING, EXPONENTIAL])
def test_dsgd_follows_its_equations(topology):
    w = dense(topology)
    follows(drive(methods.dsgd(SGD, topology))[0], lambda k, x: w @ (x[k] - 0.1 * slope(x[k], k)))
    follows(drive(methods.dsgd(SGD, topology, order="awc"))[0], lambda k, x: w @ x[k] - 0.1 * slope(x[k], k))


def test_dsgd_over_everybody_is_psgd_and_over_nobody_is_sgd_alone():
    equal(methods.dsgd(SGD, MEAN), methods.psgd(SGD))
    equal(methods.dsgd(HEAVY, APART), Strategy(Local(HEAVY)))
    awc, psgd = drive(methods.dsgd(SGD, MEAN, order="awc"))[0], drive(methods.psgd(SGD))[0]
    assert (awc - psgd).abs().max() > 1e-3, "adapt-while-communicate keeps the replicas apart even for W = J"


def test_dsgd_with_equal_curvatures_ends_at_the_closed_form():
    a, gamma, b = 0.7, 0.2, torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    values, vectors = torch.linalg.eigh(dense(RING))
    modes = vectors.T @ b
    ends = {
        "atc": gamma * a * values / (1 - (1 - gamma * a) * values),
        "awc": gamma * a / (1 - values + gamma * a),
    }
    for order, factor in ends.items():
        optimizer = partial(torch.optim.SGD, lr=gamma)
        path, _ = drive(methods.dsgd(optimizer, RING, order=order), steps=400, d=1, slope=lambda x, k: a * (x - b))
        assert (path[-1] - vectors @ (factor[:, None] * modes)).abs().max() <= 1e-12


def test_dsgd_with_unequal_curvatures_ends_at_the_closed_form_and_momentum_amplifies_its_bias():
    gamma, beta, eye = 0.1, 0.5, torch.eye(N, dtype=torch.float64)
    curvatures, b = (
        torch.diag(torch.linspace(0.5, 2, N, dtype=torch.float64)),
        torch.linspace(-2, 3, N, dtype=torch.float64)[:, None],
    )
    w = dense(RING)

    def end(gamma):
        atc = torch.linalg.solve(eye - w @ (eye - gamma * curvatures), w @ (gamma * curvatures @ b))
        return {"atc": atc, "awc": torch.linalg.solve(eye - w + gamma * curvatures, gamma * curvatures @ b)}

    for order in ("atc", "awc"):
        for momentum, rate in ((0.0, gamma), (beta, gamma / (1 - beta))):
            optimizer = partial(torch.optim.SGD, lr=gamma, momentum=momentum)
            path, _ = drive(
                methods.dsgd(optimizer, RING, order=order), steps=1500, d=1, slope=lambda x, k: curvatures @ (x - b)
            )
            assert (path[-1] - end(rate)[order]).abs().max() <= 1e-11


def test_d2_follows_its_equation_through_a_learning_rate_drop():
    topology = topologies.lazy(RING)
    w = dense(topology)

    def update(k, x):
        fresh = x[k] - RATES[k] * slope(x[k], k)
        return w @ (fresh if k == 0 else fresh + x[k] - x[k - 1] + RATES[k - 1] * slope(x[k - 1], k - 1))

    follows(drive(methods.d2(DROP, topology))[0], update)
    equal(methods.d2(DROP, MEAN), methods.psgd(DROP))


def test_d2_and_gradient_tracking_reach_the_optimum_of_heterogeneous_quadratics_also_after_a_drop():
    curvatures, b = (
        torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None],
        torch.linspace(-2, 3, N, dtype=torch.float64)[:, None],
    )
    optimum = (curvatures * b).sum() / curvatures.sum()
    optimizer = scheduled(SGD, partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[60], gamma=0.2))
    for method in (methods.d2, methods.gradient_tracking):
        path, _ = drive(
            method(optimizer, topologies.lazy(RING)), steps=2500, d=1, slope=lambda x, k: curvatures * (x - b)
        )
        assert (path[-1] - optimum).abs().max() <= 1e-11
    path, _ = drive(
        methods.dsgd(optimizer, topologies.lazy(RING)), steps=2500, d=1, slope=lambda x, k: curvatures * (x - b)
    )
    assert (path[-1] - optimum).abs().max() > 1e-3, "plain gossip is biased here, so the test can fail"


def test_gradient_tracking_follows_the_mean_gradient():
    path, tracked = drive(methods.gradient_tracking(SGD, RING), watch=lambda s: s.gradients.tracked.clone())
    for k in range(STEPS):
        assert (tracked[k].sum(0) - slope(path[k], k).sum(0)).abs().max() <= 1e-12
    equal(methods.gradient_tracking(SGD, MEAN), methods.psgd(SGD))
    w = dense(RING)
    assert (path[1] - w @ (path[0] - 0.1 * w @ slope(path[0], 0))).abs().max() <= 1e-12, "it starts at y = W g"


def test_gossip_pga_lies_between_gossip_and_averaging():
    equal(methods.gossip_pga(HEAVY, RING, period=10**9), methods.dsgd(HEAVY, RING))
    equal(methods.gossip_pga(SGD, RING, period=1), methods.psgd(SGD))
    equal(methods.gossip_pga(HEAVY, APART, period=4), methods.local_sgd(HEAVY, period=4))
    for period in (2, 5):
        equal(methods.gossip_pga(SGD, MEAN, period=period), methods.psgd(SGD))


def test_gossip_pga_disagrees_by_the_closed_form():
    a, gamma, period, b = 0.7, 0.2, 5, torch.linspace(-2, 3, N, dtype=torch.float64)[:, None]
    values, vectors = torch.linalg.eigh(dense(RING))
    optimizer = partial(torch.optim.SGD, lr=gamma)
    path, _ = drive(
        methods.gossip_pga(optimizer, RING, period=period), steps=4 * period, d=1, slope=lambda x, k: a * (x - b)
    )
    q = (1 - gamma * a) * values
    for t in range(1, period):
        modes = (vectors.T @ path[3 * period + t])[:-1, 0]
        expected = (gamma * a * values * (vectors.T @ b)[:, 0] * (1 - q**t) / (1 - q))[:-1]
        assert (modes - expected).abs().max() <= 1e-12


# --- local methods ---


def test_local_sgd_takes_period_steps_then_averages():
    period = 4

    def update(k, x):
        moved = x[k] - 0.1 * slope(x[k], k)
        return mean(moved) if (k + 1) % period == 0 else moved

    follows(drive(methods.local_sgd(SGD, period=period))[0], update)
    equal(methods.local_sgd(SGD, period=1), methods.psgd(SGD))


def test_local_sgd_ends_at_its_own_fixed_point():
    gamma, period = 0.2, 5
    a, b = (
        torch.linspace(0.5, 2, N, dtype=torch.float64)[:, None],
        torch.linspace(-2, 3, N, dtype=torch.float64)[:, None],
    )
    weight = 1 - (1 - gamma * a) ** period
    path, _ = drive(
        methods.local_sgd(partial(torch.optim.SGD, lr=gamma), period=period),
        steps=500,
        d=1,
        slope=lambda x, k: a * (x - b),
    )
    assert (path[-1] - (weight * b).sum() / weight.sum()).abs().max() <= 1e-12


def test_slowmo_reduces_to_local_sgd_and_to_heavy_ball():
    equal(methods.slowmo(HEAVY, period=4, beta=0.0, alpha=1.0), methods.local_sgd(HEAVY, period=4))
    equal(
        methods.slowmo(SGD, period=1, beta=0.6, alpha=0.5),
        methods.psgd(partial(torch.optim.SGD, lr=0.05, momentum=0.6)),
    )


def test_slowmo_keeps_its_momentum_in_units_of_the_gradient_under_a_schedule():
    beta, alpha, period = 0.6, 0.8, 3
    path, _ = drive(methods.slowmo(DROP, period=period, beta=beta, alpha=alpha))
    u, anchor, x = torch.zeros(N, D, dtype=torch.float64), start(N, D), start(N, D)
    for k in range(STEPS):
        x = x - RATES[k] * slope(x, k)
        if (k + 1) % period == 0:
            u = beta * u + (anchor - mean(x)) / RATES[k]
            anchor = anchor - alpha * RATES[k] * u
            x = anchor
        assert (path[k + 1] - x).abs().max() <= 1e-12


def test_slowmo_averages_where_the_schedule_has_come_to_nothing():
    ending = scheduled(SGD, partial(torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda k: float(k < 3)))
    equal(methods.slowmo(ending, period=4, beta=0.5), methods.local_sgd(ending, period=4), steps=4)


def test_diloco_reduces_to_local_sgd_and_to_slowmo():
    equal(methods.diloco(HEAVY, period=4, outer=partial(torch.optim.SGD, lr=1.0)), methods.local_sgd(HEAVY, period=4))
    outer = partial(torch.optim.SGD, lr=0.7, momentum=0.9)
    equal(methods.diloco(SGD, period=4, outer=outer), methods.slowmo(SGD, period=4, beta=0.9, alpha=0.7))


def test_diloco_takes_nesterov_steps_on_the_mean_move():
    path, _ = drive(methods.diloco(SGD, period=3))
    anchor, buffer, x = start(N, D), None, start(N, D)
    for k in range(STEPS):
        x = x - 0.1 * slope(x, k)
        if (k + 1) % 3 == 0:
            move = anchor - mean(x)
            buffer = move if buffer is None else 0.9 * buffer + move
            anchor = anchor - 0.7 * (move + 0.9 * buffer)
            x = anchor
        assert (path[k + 1] - x).abs().max() <= 1e-12


# --- compression ---


def test_error_feedback_without_loss_is_psgd():
    for method in (methods.mem_sgd, methods.double_squeeze, methods.neolithic, methods.ef21, methods.compressed_sgd):
        equal(method(HEAVY, Dense()), methods.psgd(HEAVY))
    equal(methods.ef21_sgdm(HEAVY, Dense(), eta=1.0), methods.psgd(HEAVY))


@pytest.mark.parametrize("compressor", [TopK(ratio=0.2), ScaledSign(), RandomK(ratio=0.3), QSGD(levels=3)], ids=str)
@pytest.mark.parametrize("optimizer", [SGD, DROP], ids=["constant", "drop"])
def test_the_virtual_iterate_of_error_feedback_is_sgd_under_any_schedule(compressor, optimizer):
    rates = RATES if optimizer is DROP else [0.1] * STEPS
    strategy = methods.mem_sgd(optimizer, compressor)
    path, errors = drive(strategy, watch=lambda s: s.gradients.inner.encoder.error.mean(0))
    virtual = [path[0].mean(0), *(x.mean(0) - e for x, e in zip(path[1:], errors, strict=True))]
    for k in range(STEPS):
        assert (virtual[k + 1] - (virtual[k] - rates[k] * slope(path[k], k).mean(0))).abs().max() <= 1e-12
    server = methods.double_squeeze(optimizer, compressor)
    path, errors = drive(server, watch=lambda s: s.gradients.inner.up.error.mean(0) + s.gradients.inner.down.error[0])
    virtual = [path[0].mean(0), *(x.mean(0) - e for x, e in zip(path[1:], errors, strict=True))]
    for k in range(STEPS):
        assert (virtual[k + 1] - (virtual[k] - rates[k] * slope(path[k], k).mean(0))).abs().max() <= 1e-12


def test_econtrol_hides_plain_sgd_behind_its_errors_and_follows_its_recursion():
    """h += C(eta e + g - h), e += g - h, x -= lr mean h: arXiv 2311.05645, from h = g."""
    path, errors = drive(methods.econtrol(SGD, TopK(k=2), 0.3), watch=lambda s: s.gradients.changes.then.error.clone())
    virtual = [path[0].mean(0), *(x.mean(0) - 0.1 * e.mean(0) for x, e in zip(path[1:], errors, strict=True))]
    for k in range(STEPS):
        assert (virtual[k + 1] - (virtual[k] - 0.1 * slope(path[k], k).mean(0))).abs().max() <= 1e-12
    h = slope(path[0], 0)
    e = torch.zeros_like(h)
    for k in range(1, STEPS):
        sent = 0.3 * e + slope(path[k], k) - h
        largest = sent.abs().argsort(1, descending=True)[:, :2]
        h = h + torch.zeros_like(h).scatter(1, largest, sent.gather(1, largest))
        e = e + slope(path[k], k) - h
        assert (errors[k] - e).abs().max() <= 1e-12
        assert (path[k + 1] - (path[k] - 0.1 * mean(h))).abs().max() <= 1e-12


def test_econtrol_lies_between_ef21_and_error_feedback_of_differences():
    equal(methods.econtrol(SGD, TopK(k=2), 0.0), methods.ef21(SGD, TopK(k=2)))
    feedback = Warmup(Dense(), 1, ErrorFeedback(TopK(k=2)))
    equal(methods.econtrol(SGD, TopK(k=2), 1.0), Strategy(Local(SGD), gradients=EF21(feedback)))
    with pytest.raises(ValueError, match=r"eta must lie in \[0, 1\], got 2"):
        ErrorControl(TopK(k=2), 2)


def test_error_feedback_of_a_shrinking_compressor_is_momentum():
    a = 0.3
    equal(methods.mem_sgd(SGD, Shrink(a)), methods.psgd(partial(torch.optim.SGD, lr=0.1 * a, momentum=1 - a)))


def test_ef21_of_a_shrinking_compressor_is_ema_momentum_from_the_first_gradient():
    a = 0.3
    path, _ = drive(methods.ef21(SGD, Shrink(a)))
    x, m = start(N, D), None
    for k in range(STEPS):
        g = mean(slope(x, k))
        m = g if m is None else (1 - a) * m + a * g
        x = x - 0.1 * m
        assert (path[k + 1] - x).abs().max() <= 1e-12


@pytest.mark.parametrize("compressor", [TopK(ratio=0.2), RandomK(ratio=0.3), ScaledSign()], ids=str)
def test_ef21_knows_the_mean_of_what_is_public(compressor):
    for first in ("dense", "compressed"):
        _, seen = drive(
            methods.ef21(SGD, compressor, first=first),
            watch=lambda s: (s.gradients.mean[0].clone(), s.gradients.public.mean(0)),
        )
        assert max((m - p).abs().max() for m, p in seen) <= 1e-12
    _, seen = drive(methods.ef21(SGD, compressor), steps=1, watch=lambda s: s.gradients.public.clone())
    assert torch.equal(seen[0], slope(start(N, D), 0)), "the dense first message makes every gradient known exactly"


def test_ef21_sgdm_with_full_weight_is_ef21():
    equal(methods.ef21_sgdm(SGD, TopK(ratio=0.2), eta=1.0), methods.ef21(SGD, TopK(ratio=0.2)))


def test_neolithic_of_one_round_is_double_squeeze_and_of_all_rounds_psgd():
    equal(methods.neolithic(SGD, TopK(k=2), rounds=1), methods.double_squeeze(SGD, TopK(k=2)))
    equal(methods.neolithic(SGD, TopK(k=2), rounds=3), methods.double_squeeze(SGD, TopK(k=6)))
    equal(methods.neolithic(SGD, TopK(k=2), rounds=D // 2), methods.psgd(SGD))
    assert methods.neolithic(SGD, TopK(k=2), rounds=3).accumulate == 3


def test_neolithic_without_error_feedback_forgets_what_it_did_not_say():
    path, _ = drive(methods.neolithic(SGD, TopK(k=3), rounds=1, ef=False))

    def say(v):
        return TopK(k=3).compress(v, Communicator(workers=len(v)).random("")).decode()

    follows(path, lambda k, x: x[k] - say(say(0.1 * slope(x[k], k)).mean(0, keepdim=True)))
    equal(methods.neolithic(SGD, TopK(k=3), rounds=4, ef=False), methods.psgd(SGD))


@pytest.mark.parametrize("topology", [RING, topologies.lazy(RING)], ids=["ring", "lazy"])
def test_choco_without_loss_is_dsgd_in_both_orders(topology):
    equal(methods.choco(SGD, topology, Dense(), gamma=1.0, order="A"), methods.dsgd(SGD, topology, order="atc"))
    equal(methods.choco(SGD, topology, Dense(), gamma=1.0, order="B"), methods.dsgd(SGD, topology, order="awc"))


@pytest.mark.parametrize("compressor", [TopK(ratio=0.2), RandomK(ratio=0.3), ScaledSign(), QSGD(levels=2)], ids=str)
@pytest.mark.parametrize("order", ["A", "B"])
def test_choco_moves_the_mean_by_the_mean_gradient_for_every_compressor(compressor, order):
    path, _ = drive(methods.choco(SGD, RING, compressor, gamma=0.3, order=order))
    for k in range(STEPS):
        assert (path[k + 1].mean(0) - (path[k] - 0.1 * slope(path[k], k)).mean(0)).abs().max() <= 1e-12


def test_choco_follows_its_equations():
    w, gamma, compressor = dense(RING), 0.4, TopK(k=3)
    path, _ = drive(methods.choco(SGD, RING, compressor, gamma=gamma, order="A"))
    x, public = start(N, D), torch.zeros(N, D, dtype=torch.float64)
    for k in range(STEPS):
        h = x - 0.1 * slope(x, k)
        public = public + compressor.compress(h - public, Communicator(workers=N).random("")).decode()
        x = h + gamma * (w @ public - public)
        assert (path[k + 1] - x).abs().max() <= 1e-12


# --- PowerSGD ---

MATRICES = Layout.of([("first", (8, 6)), ("bias", (8,)), ("second", (6, 5)), ("third", (8, 6))])


def low_rank(rank):
    """Gradients whose mean over workers has the given rank in each matrix, though no worker's has."""

    def slope(x, step):
        random = torch.Generator().manual_seed(step)
        draw = partial(torch.randn, generator=random, dtype=torch.float64)
        parts = []
        for field in MATRICES.fields:
            noise = draw(N, *field.shape)
            common = (
                draw(field.shape[0], rank) @ draw(rank, field.shape[1]) if len(field.shape) == 2 else draw(*field.shape)
            )
            parts.append((noise - noise.mean(0) + common).reshape(N, -1))
        return torch.cat(parts, dim=1)

    return slope


def test_powersgd_is_exact_where_the_mean_has_low_rank():
    options = {"d": MATRICES.d, "layout": MATRICES, "slope": low_rank(2)}
    left, _ = drive(methods.power_sgd(SGD, rank=2), steps=3, **options)
    right, _ = drive(methods.psgd(SGD), steps=3, **options)
    assert (left - right)[1].abs().max() <= 1e-12, "one subspace step finds a mean of rank 2 with rank 2"


def test_powersgd_of_full_rank_is_psgd():
    equal(
        methods.power_sgd(HEAVY, rank=6), methods.psgd(HEAVY), d=MATRICES.d, layout=MATRICES, slope=low_rank(4), steps=8
    )


def test_powersgd_remembers_what_the_common_answer_left_out():
    seen_errors = []
    strategy = methods.power_sgd(SGD, rank=1)
    slope = low_rank(4)
    path, errors = drive(
        strategy, d=MATRICES.d, layout=MATRICES, slope=slope, watch=lambda s: s.gradients.error.mean(0), steps=10
    )
    before = torch.zeros(MATRICES.d, dtype=torch.float64)
    for k in range(10):
        out = (path[k] - path[k + 1])[0] / 0.1
        assert (errors[k] - (before + slope(path[k], k).mean(0) - out)).abs().max() <= 1e-11
        before = errors[k]
        seen_errors.append(before.abs().max())
    assert max(seen_errors) > 0.1, "rank 1 must leave something out here"
