"""Robust rules and the lies they stand: closed forms, breakdown points, and what a mean does beside them."""

from __future__ import annotations

from functools import partial
from typing import get_args

import pytest
import torch

from commeff import Communicator, Layout, methods
from commeff.communicator import view
from commeff.compressors import TopK
from commeff.core.properties import scope_of
from commeff.methods.robust import RuleName
from commeff.optimizers import SophiaH
from commeff.optimizers.curvature import Flat
from commeff.profiling import profile
from commeff.transforms import Attack, Robust, attacked, bucketed, clipped
from commeff.transforms.robust import CentredClipping, GeometricMedian, Krum, Median, TrimmedMean

N, D, F = 11, 6, 3
SGD = partial(torch.optim.SGD, lr=0.1)
RULES = {
    "median": Median,
    "trimmed mean": partial(TrimmedMean, F),
    "krum": partial(Krum, F),
    "multi-krum": partial(Krum, F, multiple=True),
    "geometric median": partial(GeometricMedian, iterations=300),
    "a few steps to the geometric median": GeometricMedian,
    "centred clipping": partial(CentredClipping, tau=3.0, iterations=40),
}
SIZES = (1e2, 1e5, 1e8)


def honest(seed=0):
    return 1 + 0.1 * torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def result(rule, rows, n=N):
    rule.start(rows, n)
    return rule(rows)[0]


def moved(rule, liars):
    """How far the rule's result is from the mean of the honest, for lies of growing size."""
    found = []
    for size in SIZES:
        rows = honest()
        rows[:liars] = size
        found.append(float((result(rule(), rows) - rows[liars:].mean(0)).norm()))
    return found


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_liars_below_the_breakdown_point_move_a_rule_no_farther_than_the_honest_are_apart(rule):
    rows = honest()[F:]
    radius = float((rows - rows.mean(0)).norm(dim=1).max())
    reach = radius if not isinstance(rule(), CentredClipping) else 3.0 * N
    assert max(moved(rule, F)) <= 2 * reach
    assert moved(rule, F)[1] == pytest.approx(moved(rule, F)[2], abs=1e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rule", get_args(RuleName))
def test_no_lie_is_past_a_rule(rule, dtype):
    """Of any size, and such as are no numbers, in any precision."""
    for lie in (1e4, 1e30, torch.inf, -torch.inf, torch.nan):
        rows, x, communicator = honest().to(dtype), torch.zeros(N, D, dtype=dtype), Communicator(workers=N)
        rows[:F] = torch.tensor(lie, dtype=torch.float64).to(dtype)
        strategy = methods.robust_sgd(partial(torch.optim.SGD, lr=1.0), rule=rule)
        strategy.start(x, Layout.flat(D), communicator)
        found = -strategy.step(x, rows, communicator)[0]
        assert found.dtype == dtype
        assert (found - 1).abs().max() <= 0.5, lie


def test_centred_clipping_goes_on_from_its_last_result():
    one, two = CentredClipping(tau=0.1, iterations=1), CentredClipping(tau=0.1, iterations=2)
    first = result(one, honest())
    assert not torch.allclose(first, result(two, honest()))
    assert torch.equal(one(honest())[0], result(two, honest()))


def test_rules_say_what_they_need_to_see():
    whole = {name for name, rule in RULES.items() if scope_of(Robust(rule())) == "whole"}
    assert whole == set(RULES) - {"median", "trimmed mean"}


def test_momentum_is_an_average_of_a_workers_gradients():
    strategy, communicator, x = (
        methods.robust_sgd(SGD, "trimmed_mean", f=0, beta=0.75),
        Communicator(workers=N),
        honest(),
    )
    strategy.start(x, Layout.flat(D), communicator)
    expected, momentum = x, honest(1)
    for communicator.step in range(3):
        gradient = honest(communicator.step + 1)
        momentum = 0.75 * momentum + 0.25 * gradient
        expected = expected - 0.1 * momentum.mean(0)
        x = strategy.step(x, gradient, communicator)
    assert torch.allclose(x, expected, atol=1e-12)


def test_a_mean_goes_wherever_one_liar_wants():
    assert moved(partial(TrimmedMean, 0), 1)[2] > 1e6


@pytest.mark.parametrize("rule", [Median, partial(TrimmedMean, F), partial(Krum, F)], ids=["median", "trimmed", "krum"])
def test_beyond_the_breakdown_point_a_rule_is_led_away(rule):
    assert moved(rule, N // 2 + 1)[2] > 1e6


def test_rules_are_their_equations():
    rows = honest()
    assert torch.equal(result(Median(), rows), rows.median(0).values)
    middle = rows.sort(0).values[:4]
    assert torch.allclose(result(Median(), middle, 4), (middle[1] + middle[2]) / 2)
    assert torch.allclose(result(TrimmedMean(0), rows), rows.mean(0), atol=1e-15)
    assert torch.allclose(result(TrimmedMean(2), rows), rows.sort(0).values[2:-2].mean(0))
    for n in (N, N - 1):
        assert torch.allclose(result(TrimmedMean(), rows[:n], n), result(Median(), rows[:n], n)), "what is left"
    scores = [sum(sorted(float((a - b).square().sum()) for b in rows)[1 : N - F - 1]) for a in rows]
    best = sorted(range(N), key=scores.__getitem__)
    assert torch.equal(result(Krum(F), rows), rows[best[0]])
    assert torch.allclose(result(Krum(F, multiple=True), rows), rows[best[: N - F - 2]].mean(0))
    centre = result(GeometricMedian(iterations=1000), rows)
    pulls = (rows - centre) / (rows - centre).norm(dim=1, keepdim=True)
    assert pulls.sum(0).norm() <= 1e-8, "at the geometric median unit pulls cancel"
    assert torch.allclose(result(CentredClipping(tau=1e6, iterations=1), rows), rows.mean(0))


def test_buckets_are_dealt_anew_and_their_mean_is_the_mean():
    rows, communicator = honest()[:10], Communicator(workers=10, seed=3)
    mean = Robust(TrimmedMean(0), bucketing=5)
    halves = Robust(TrimmedMean(), bucketing=2)
    for transform in (mean, halves):
        transform.start(rows, Layout.flat(D), communicator)
    assert torch.allclose(mean(rows, communicator)[0], rows.mean(0))
    found = []
    for communicator.step in range(3):
        found.append(halves(rows, communicator)[0])
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Robust(Krum(F), bucketing=2), "bucketing must divide the 11 workers"),
        (lambda: Robust(Krum(5)), "f must be at most 4 for a Krum of 11 vectors, got 5"),
        (lambda: Robust(TrimmedMean(6)), "f must be at most 5"),
        (lambda: result(TrimmedMean(2), honest()[:4], 4), "f must be at most 1 for a TrimmedMean of 4 vectors, got 2"),
        (lambda: TrimmedMean(-1), "f must be at least 0"),
        (lambda: CentredClipping(0.0), "tau must be above 0"),
        (lambda: Robust(Median(), bucketing=0), "bucketing must be a whole number of at least 1"),
        (lambda: GeometricMedian(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: CentredClipping(iterations=0), "iterations must be at least 1, got 0"),
        (lambda: GeometricMedian(smoothing=0.0), "smoothing must be above 0"),
        (lambda: Attack("noise", N), "attackers must be fewer than the 11 workers, got 11"),
        (lambda: Attack("bribe", 1), "attack must be one of sign_flip, noise, a_little, inner_product"),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make().start(honest(), Layout.flat(D), Communicator(workers=N))


def lies(name, strength=None):
    rows, communicator = honest(), Communicator(workers=N, seed=5)
    return rows, Attack(name, F, strength)(rows, communicator)


def test_lies_are_their_equations():
    rows, found = lies("sign_flip", 2.0)
    others = rows[F:]
    assert torch.equal(found[F:], others)
    assert torch.equal(found[:F], -2.0 * rows[:F])
    assert torch.allclose(lies("inner_product")[1][:F], -0.5 * others.mean(0).expand(F, D))
    expected = others.mean(0) - 1.5 * others.std(0, correction=0)
    assert torch.allclose(lies("a_little", 1.5)[1][:F], expected.expand(F, D))
    noise = lies("noise", 1.0)[1][:F] - rows[:F]
    assert 0.3 < float(noise.std()) < 2
    assert not torch.equal(noise[0], noise[1])


def test_liars_may_be_absent_and_so_may_all_others():
    rows, communicator = honest(), Communicator(workers=N, seed=5)
    attack = Attack("inner_product", F)
    for there in ([0, 4, 5], [4, 5], [0, 1]):
        communicator.begin(communicator.step, present=torch.tensor([worker in there for worker in range(N)]))
        found = attack(rows[there], view(communicator, among=communicator.context.present))
        others = rows[[worker for worker in there if worker >= F]]
        for worker, vector in zip(there, found, strict=True):
            lies = worker < F and len(others)
            assert torch.allclose(vector, -0.5 * others.mean(0) if lies else rows[worker])


def test_an_attack_changes_gradients_and_nothing_else():
    """Nor what curvature costs: workers who keep their gradients keep its estimates."""
    assert attacked(methods.neolithic(SGD, TopK(k=2), rounds=3), "noise", 1).accumulate == 3
    bills = []
    for method in (methods.local_sgd, methods.psgd):
        strategy = method(partial(SophiaH, lr=0.1))
        for each in (
            strategy,
            attacked(strategy, "noise", 1),
            clipped(bucketed(attacked(strategy, "noise", 1), 1e-6), 1.0),
        ):
            communicator, x = Communicator(workers=N), honest()
            each.start(x, Layout.flat(D), communicator)
            each.step(x, x, communicator, Flat())
            bills.append(communicator.ledger.payload_bytes)
    assert bills == [0, 0, 0, 2 * D * 8, 2 * D * 8, 2 * D * 8]
    known = [
        profile(each, Layout.flat(D), N) for each in (methods.psgd(SGD), attacked(methods.psgd(SGD), "a_little", F))
    ]
    assert known[0].payload_bytes == known[1].payload_bytes, "an attack is played without numbers, as on a mesh"


def ends(strategy, name, steps=40, liars=2):
    """The distance of an honest worker from the optimum of the honest ones' mean function."""
    n = 8
    targets = torch.arange(n, dtype=torch.float64)[:, None] / n + torch.zeros(n, D, dtype=torch.float64)
    strategy = attacked(strategy, name, liars) if name else strategy
    communicator, x = Communicator(workers=n, seed=2), torch.zeros(n, D, dtype=torch.float64)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(steps):
        x = strategy.step(x, 3 * (x - targets), communicator)
    return float((x[-1] - targets[liars:].mean(0)).abs().max())


@pytest.mark.parametrize("name", ["sign_flip", "noise", "a_little", "inner_product"])
def test_under_attack_robust_sgd_stays_near_the_honest_optimum(name):
    for rule in ("median", "trimmed_mean", "multi_krum", "geometric_median"):
        f = 2 if rule in ("trimmed_mean", "krum", "multi_krum") else None
        assert ends(methods.robust_sgd(SGD, rule=rule, f=f), name) <= 0.5, rule
    if name in ("noise", "sign_flip"):
        assert ends(methods.psgd(SGD), name) > ends(methods.robust_sgd(SGD), name)


@pytest.mark.parametrize("rule", ["median", "geometric_median", "centred_clipping"])
def test_a_rule_that_counts_no_liars_is_given_no_number_of_them(rule):
    with pytest.raises(ValueError, match=f"f must be left out for rule={rule}, got 2"):
        methods.robust_sgd(partial(torch.optim.SGD, lr=0.1), rule=rule, f=2)
