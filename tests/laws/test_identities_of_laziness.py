"""What MARINA, lazy workers and decoupled momentum must do: the recursions of their papers, at 1e-12 in float64."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from scipy.fft import dctn, idctn

from commeff import Communicator, Layout, Local, Strategy, methods, profile
from commeff.compressors import Dense, Natural, RandomK, TopK, WorkerRandom
from commeff.laws import start
from commeff.transforms import LazyMean, ThroughServer
from tests.laws.messages import natural
from tests.laws.paths import (
    DROP,
    HEAVY,
    RATES,
    SGD,
    STEPS,
    D,
    N,
    drive,
    equal,
    follows,
    mean,
    slope,
)

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
        communicator.begin(communicator.step, present=None if communicator.step % 3 == 0 else there)
        here = communicator.context.present
        g = slope(x, communicator.step)
        old = slope(before, communicator.step)
        h = g[here].mean(0) if coins(0.3)[communicator.step] else h + (g - old)[here].mean(0)
        expected = torch.where(here[:, None], x - 0.1 * h, x)
        after = strategy.step(x, g, communicator, partial(slope, step=communicator.step))
        assert (after - expected).abs().max() <= 1e-12
        before, x = torch.where(here[:, None], x, before), after


def test_marina_begins_with_whole_gradients_of_those_who_come_first():
    strategy, communicator, x = methods.marina(SGD, Dense(), 1e-9), Communicator(workers=N, seed=1), start(N, D)
    strategy.start(x, Layout.flat(D), communicator)
    for communicator.step in range(2):
        communicator.begin(communicator.step, present=torch.full((N,), communicator.step > 0))
        before, x = x, strategy.step(x, slope(x, 0), communicator, partial(slope, step=0))
    assert (x - (before - 0.1 * mean(slope(before, 0)))).abs().max() <= 1e-12


# --- lazily aggregated gradients ---


def test_lag_is_silent_where_a_plain_loop_is():
    """LAG-WK: the condition of arXiv 1805.09965, (15a), for the mean of the f_i; momentum moves x too."""
    xi, memory = 0.02, 4
    path, seen = drive(methods.lag(DROP, threshold=xi, memory=memory), watch=lambda s: s.comparison.sends.clone())
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
    path, seen = drive(strategy, watch=lambda s: s.comparison.sends.clone())
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
            uploads.append(int(strategy.comparison.sends.sum()) if strategy.comparison else N)
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
    assert "LazyMean depend on values: the profile is an upper bound" in said.note


def test_a_row_of_zeros_is_silence_and_no_other_row_is():
    rows = torch.tensor([[0.0, 4.0], [0.0, 0.0], [torch.nan, 0.0], [0.0, 0.0]])
    communicator, mean = Communicator(workers=4), LazyMean()
    mean.start(rows, Layout.flat(2), communicator)
    assert mean(rows[[0, 1, 1, 1]], communicator).tolist() == [[0.0, 1.0]] * 4
    assert sum(row.payload_bytes for row in communicator.ledger.rows if row.kind == "to_server") * 4 == 2 * 4
    assert mean(rows, communicator).isnan().any(), "what is no number is not kept from anybody"


@pytest.mark.parametrize("build", LAZIES.values(), ids=LAZIES)
def test_who_has_nothing_new_to_say_is_silent(build):
    """Where neither gradients nor x move the condition holds with equality; LASG sends every `longest` = 5 steps."""
    _, seen = drive(
        build(threshold=0.0), slope=lambda x, k: torch.zeros_like(x), watch=lambda s: s.comparison.sends.clone()
    )
    assert [bool(sends.any()) for sends in seen] == [
        k % 5 == 0 if "longest" in build.keywords else k == 0 for k in range(STEPS)
    ]


@pytest.mark.parametrize("build", LAZIES.values(), ids=LAZIES)
def test_who_is_never_silent_is_psgd(build):
    equal(build(threshold=0.0), methods.psgd(SGD))
    if build is LAZIES["batch"]:
        equal(methods.lasg(SGD, threshold=1e9, longest=1), methods.psgd(SGD))


def test_what_lazy_methods_need_is_said():
    for bad, words in {
        r"threshold must lie in \[0, inf\], got -1": {"threshold": -1},
        "memory must be at least 1, got 0": {"memory": 0},
        "smoothness must be above 0, got 0": {"rule": "server", "smoothness": 0},
        "rule must be one of worker, server, got 'both'": {"rule": "both"},
    }.items():
        with pytest.raises(ValueError, match=bad):
            methods.lag(SGD, **words)
    with pytest.raises(ValueError, match="longest must be at least 1, got 0"):
        methods.lasg(SGD, longest=0)


# --- decoupled momentum ---

TENSORS = Layout.of([("matrix", (6, 4)), ("vector", (5,)), ("filter", (2, 3, 2))])
CHUNKS = {"matrix": ((6, 4), (3, 2)), "vector": ((1, 5), (1, 1)), "filter": ((2, 6), (2, 3))}  # sides of at most 3


def by_chunks(rows, change):
    """change(chunk) for every chunk of every tensor of (w, d) rows, by scipy's matrices and loops."""
    out = rows.clone()
    for field in TENSORS.fields:
        (height, width), (a, b) = CHUNKS[field.name]
        for i in range(len(rows)):
            tensor = out[i, field.start : field.stop].view(height, width)
            for top_, left in itertools.product(range(0, height, a), range(0, width, b)):
                chunk = tensor[top_ : top_ + a, left : left + b]
                chunk.copy_(torch.from_numpy(change(chunk.numpy())))
    return out


def transform(rows):
    return by_chunks(rows, lambda chunk: dctn(chunk, norm="ortho"))


def largest(rows, k):
    def keep(chunk):
        order = abs(chunk).ravel().argsort()[::-1][:k]
        kept = 0 * chunk
        kept.ravel()[order] = chunk.ravel()[order]
        return kept

    return by_chunks(rows, keep)


def test_demo_averages_what_the_chunks_of_tensors_send_most_of():
    k, beta = 2, 0.9
    demo = methods.demo(DROP, k=k, chunk=3, beta=beta)
    path, kept = drive(demo, d=TENSORS.d, layout=TENSORS, watch=lambda s: s.gradients.inner.inner.momentum.clone())
    m = torch.zeros(N, TENSORS.d, dtype=torch.float64)
    for step in range(STEPS):
        m = beta * m + RATES[step] * transform(slope(path[step], step))
        sent = largest(m, k)
        m = m - sent
        mean = sent.sum(0, keepdim=True) / (sent != 0).sum(0, keepdim=True).clamp(min=1)
        moved = by_chunks(mean, lambda chunk: idctn(chunk, norm="ortho")).sign()
        assert (path[step + 1] - (path[step] - RATES[step] * moved)).abs().max() <= 1e-12
        assert kept[step].norm() == pytest.approx(float(m.norm()), rel=1e-9)


@pytest.mark.parametrize("sign", [True, False])
def test_demo_by_strides_takes_every_coordinate_in_turn(sign):
    stride, beta = 4, 0.9
    path, _ = drive(methods.demo(SGD, "striding", ratio=1 / stride, beta=beta, sign=sign))
    m, columns = torch.zeros(N, D, dtype=torch.float64), torch.arange(D)
    for step in range(STEPS):
        m = beta * m + 0.1 * slope(path[step], step)
        now = (columns + step) % stride == 0
        fast = torch.where(now, m.mean(0), 0.0)
        m = torch.where(now, 0.0, m)
        assert (path[step + 1] - (path[step] - (0.1 * fast.sign() if sign else fast))).abs().max() <= 1e-12


def test_demo_at_random_is_error_feedback_of_a_common_choice():
    rest = RandomK(ratio=0.3, scaled=False, shared=True)
    path, errors = drive(methods.demo(SGD, "random", ratio=0.3, beta=0.7, sign=False), watch=choice_error)
    m = torch.zeros(N, D, dtype=torch.float64)
    for step in range(STEPS):
        m = 0.7 * m + 0.1 * slope(path[step], step)
        now = (errors[step] == 0).all(0)
        assert now.sum() == rest.count(D)
        assert (path[step + 1] - (path[step] - torch.where(now, m.mean(0), 0.0))).abs().max() <= 1e-12
        m = torch.where(now, 0.0, m)


def choice_error(strategy):
    return strategy.gradients.inner.encoder.error.clone()


def test_demo_that_sends_everything_has_no_momentum_left():
    every = {"dct": {"k": 9, "chunk": 3}, "striding": {"ratio": 1.0}, "random": {"ratio": 1.0}}
    for name, words in every.items():
        for beta in (0.0, 0.9):
            plain = methods.demo(DROP, name, beta=beta, sign=False, **words)
            equal(plain, methods.psgd(DROP), d=TENSORS.d, layout=TENSORS)
            path, _ = drive(methods.demo(SGD, name, beta=beta, **words), d=TENSORS.d, layout=TENSORS)
            follows(path, lambda k, x: x[k] - 0.1 * mean(slope(x[k], k)).sign())


def test_what_demo_needs_is_said():
    for bad, words in {
        r"ratio must lie in \(0, 1\], got 0": {"ratio": 0},
        r"beta must lie in \[0, 1\], got 2": {"beta": 2},
        "k must be at least 1, got 0": {"k": 0},
        "replicator must be one of dct, striding, random, got 'fft'": {"replicator": "fft"},
    }.items():
        with pytest.raises(ValueError, match=bad):
            methods.demo(SGD, **words)
