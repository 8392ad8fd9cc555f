"""`commeff.profile` against ledgers and live tensors: every compressor, every topology, plug-ins, and what it refuses.

That it is right for every method is a law of `commeff.laws`, run by tests/laws/test_methods.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from commeff import Communicator, Layout, Strategy, Transform, compressors, methods, profile, topologies
from commeff.compressors import Compressor, Dense
from commeff.compressors.laws import concrete
from commeff.core import Chain, Keep, Local, Stateful, Timetable
from commeff.experiments.config.loading import load
from commeff.laws.problem import LAYOUT, run, slope, start
from commeff.topologies import Topology
from commeff.transforms import (
    After,
    Average,
    Delayed,
    Doubling,
    ErrorFeedback,
    Every,
    Thinning,
    ThroughServer,
    Warmup,
    bucketed,
)

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
PLUGINS = Path(__file__).parents[1] / "plugins"
STEPS = 24
SAMPLES = [
    sample for kind in concrete() if kind.__module__.startswith("commeff.compressors.") for sample in kind.samples()
]
N = 8
GRAPHS: dict[str, Callable[[], Topology]] = {
    "complete": lambda: topologies.complete(N),
    "ring": lambda: topologies.ring(N),
    "torus": lambda: topologies.torus(2, 4),
    "grid": lambda: topologies.grid(2, 4),
    "star": lambda: topologies.star(N),
    "hypercube": lambda: topologies.hypercube(N),
    "exponential": lambda: topologies.exponential(N),
    "one_peer_exponential": lambda: topologies.one_peer_exponential(N),
    "base_graph": lambda: topologies.base_graph(6, 1),
    "d_equistatic": lambda: topologies.d_equistatic(N, 3, 0),
    "od_equidyn": lambda: topologies.od_equidyn(N, 0.5, 0),
    "u_equistatic": lambda: topologies.u_equistatic(N, 2, 0),
    "ou_equidyn": lambda: topologies.ou_equidyn(N, 0.5, 0),
    "symmetric_exponential": lambda: topologies.symmetric_exponential(N),
    "random_matching": lambda: topologies.random_matching(N, 0),
    "random_pairs": lambda: topologies.random_pairs(topologies.ring(N), 0),
    "erdos_renyi": lambda: topologies.erdos_renyi(N, 0.4, 0),
    "random_regular": lambda: topologies.random_regular(N, 3, 0),
    "hierarchical": lambda: topologies.hierarchical(2, topologies.complete(4), topologies.ring(2)),
    "inner_outer": lambda: topologies.inner_outer(2, topologies.complete(4), topologies.ring(2), 2),
    "lazy": lambda: topologies.lazy(topologies.ring(N)),
    "failing_links": lambda: topologies.failing_links(topologies.ring(N), 0.3, 0),
}


def billed(strategy: Strategy, n: int, steps: int = STEPS) -> list[tuple[object, ...]]:
    return [tuple(row) for row in run(strategy, steps, n)[1].ledger.rows]


def played(strategy: Strategy, n: int, steps: int = STEPS) -> list[tuple[object, ...]]:
    found = profile(strategy, LAYOUT, n, seed=3, dtype=torch.float64)
    return [operation[:7] for step in range(steps) for operation in found.operations(step)]


def refusal(build: Callable[[], Strategy]) -> str | None:
    try:
        build().start(start(), LAYOUT, Communicator(4))
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("sample", SAMPLES, ids=repr)
@pytest.mark.parametrize("method", ["compressed_sgd", "choco", "diana"])
def test_every_compressor_is_played_as_it_sends(method: str, sample: Compressor) -> None:
    def build() -> Strategy:
        if method == "choco":
            return methods.choco(SGD, topologies.ring(4), sample)
        return {"compressed_sgd": methods.compressed_sgd, "diana": methods.diana}[method](SGD, sample)

    reason = refusal(build)
    if reason is not None:
        with pytest.raises(ValueError, match=re.escape(reason)):
            profile(build(), LAYOUT, 4, dtype=torch.float64)
    else:
        expected, found = played(build(), 4), billed(build(), 4)
        if not sample.data_dependent:
            assert found == expected
        for one, most in zip(found, expected, strict=True):  # what values decide is bounded
            assert one[:3] == most[:3]
            assert all(a <= b for a, b in zip(one[3:], most[3:], strict=True))


def test_every_topology_is_listed() -> None:
    assert set(GRAPHS) | {"from_graph", "from_matrices", "MixingMatrix", "Topology"} >= set(topologies.__all__)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_topology_is_played_as_it_mixes(name: str) -> None:
    graph = GRAPHS[name]()
    if not graph.at(0).row_stochastic:
        pytest.skip("for push-sum")
    strategy = methods.dsgd(SGD, graph)
    assert played(strategy, graph.n) == billed(strategy, graph.n)
    found = profile(strategy, LAYOUT, graph.n)
    (operation,) = found.operations(5)
    assert operation.matrix is not None
    assert (operation.matrix.dense() == graph.at(5).dense()).all()
    assert found.exact == (graph.period is not None)


def test_a_plug_in_is_played_like_what_is_built_in() -> None:
    method = load(str(PLUGINS / "random_share.py")).random_share
    assert played(method(SGD), 4) == billed(method(SGD), 4)
    assert profile(method(SGD), LAYOUT, 4).exact


def test_where_values_decide_the_profile_is_a_bound_and_says_so() -> None:
    compressor = load(str(PLUGINS / "threshold.py")).UpToThreshold(8.0)
    found = profile(methods.compressed_sgd(SGD, compressor), LAYOUT, 4, dtype=torch.float64)
    sent = [row[3] for row in billed(methods.compressed_sgd(SGD, compressor), 4)]
    assert max(sent) <= found.payload_bytes == 8 * LAYOUT.d
    assert min(sent) < found.payload_bytes
    assert not found.exact
    assert "UpToThreshold depend on values: the profile is an upper bound" in found.note


class Nosy(Transform):
    """Looks at values."""

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        if not float(vectors.abs().sum()):
            return vectors
        return communicator.average(Dense().compress(vectors, communicator.random("up")))


def test_code_that_reads_values_is_played_on_numbers_or_refused_in_words() -> None:
    strategy = Strategy(Local(SGD), gradients=Nosy())
    found = profile(strategy, Layout.flat(1000), 4)
    assert (found.payload_bytes, found.exact) == (4000, False)
    assert found.note == "played on random numbers, since a part of it reads values"
    with pytest.raises(ValueError, match=r"70,000,000,000 coordinates .* reads values \(.*\); where x.is_meta"):
        profile(strategy, Layout.flat(70_000_000_000), 4)


def test_a_strategy_in_use_goes_on_as_if_nothing_had_happened() -> None:
    whole, _ = run(methods.mem_sgd(SGD, compressors.TopK(k=3)), 6)
    strategy, communicator, x = methods.mem_sgd(SGD, compressors.TopK(k=3)), Communicator(4, seed=3), start()
    strategy.start(x, LAYOUT, communicator)
    for communicator.step in range(6):
        profile(strategy, Layout.flat(50), 16)
        x = strategy.step(x, slope(x, communicator.step), communicator)
        assert torch.equal(x, whole[communicator.step])


class Diary(Transform):
    """Appends to a list that `start` does not make anew."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.steps.append(communicator.step)
        return vectors


def warming(steps: int) -> Average:
    return Average(Warmup(Dense(), steps, compressors.TopK(k=3)))


def test_what_a_strategy_counts_and_lists_stays_as_it_was() -> None:
    def counts(part: Stateful) -> list[int]:
        own = [part.sent] if isinstance(part, Warmup) else []
        return own + [count for _, inner in part.parts() for count in counts(inner)]

    for nested in range(6):
        diary, gradients = Diary(), After(9, Chain(*(warming(2) for _ in range(nested))), warming(9))
        strategy = Strategy(Local(SGD), gradients, diary)
        run(strategy, 5)
        before, steps = counts(strategy), list(diary.steps)
        profile(strategy, LAYOUT, 4, dtype=torch.float64)
        assert counts(strategy) == before
        assert diary.steps == steps == [0, 1, 2, 3, 4]


def test_a_warm_up_within_a_warm_up_and_one_that_never_ends() -> None:
    twice = Warmup(Dense(), 3, Warmup(compressors.TopK(k=4), 4, compressors.TopK(k=2)))
    assert played(Strategy(Local(SGD), Average(twice)), 4) == billed(Strategy(Local(SGD), Average(twice)), 4)
    cut_off = Strategy(Local(SGD), After(5, Average(), warming(9)))
    assert played(cut_off, 4) == billed(cut_off, 4)
    assert "first messages do not end within 2048 steps" in profile(cut_off, LAYOUT, 4).note


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_what_goes_on_late_counts_for_the_step_in_which_it_began(delay: int) -> None:
    def build() -> Strategy:
        through = ThroughServer(ErrorFeedback(compressors.TopK(k=1)), ErrorFeedback(compressors.ScaledSign()))
        return Strategy(Local(SGD), gradients=Delayed(Every(2, through), delay))

    late = STEPS - 2 * delay  # what is under way at the end of the run is not billed yet
    rows = sorted((row for row in billed(build(), 4) if row[0] < late), key=lambda row: row[0])
    assert rows == [row for row in played(build(), 4) if row[0] < late]
    assert {row[2] for row in rows} == {"to_server", "from_server"}


def test_memory_that_fills_up_after_a_turn_is_found() -> None:
    found = profile(Strategy(Local(SGD), Delayed(After(5, Average(), Keep()), 7)), LAYOUT, 4)
    assert found.memory_bytes["gradients"] == 7 * found.memory_bytes["local"]  # corrections, and momentum


def test_first_messages_and_turns_are_apart_from_what_repeats() -> None:
    first = profile(methods.ef21(SGD, compressors.TopK(k=3)), LAYOUT, 4)
    assert (first.first, first.period) == (1, 1)
    assert [op.kind for op in (*first.operations(0), *first.operations(9))] == ["all_reduce", "all_gather"]
    late = profile(methods.post_local_sgd(SGD, period=8, begin=100_000), LAYOUT, 4)
    assert (late.first, late.period, len(late.steps)) == (100_000, 8, 32)
    silent = [step for step in (7, 99_998, 99_999, 100_006, 100_007) if not late.operations(step)]
    assert silent == [100_006]
    assert late.payload_bytes == 4 * LAYOUT.d / 8


def test_what_never_repeats_but_has_a_period_is_sampled_for_whole_periods() -> None:
    pairs = topologies.random_matching(4, 0)
    found = profile(methods.noloco(SGD, pairs, period=50), LAYOUT, 4)
    assert (found.payload_bytes, found.period, found.exact) == (2 * 4 * LAYOUT.d / 50, 100, False)
    assert profile(methods.noloco(SGD, pairs, period=500), LAYOUT, 4).payload_bytes == 2 * 4 * LAYOUT.d / 500
    coins = profile(methods.scaffnew(SGD, 0.125), LAYOUT, 4)
    assert coins.payload_bytes == pytest.approx(4 * LAYOUT.d / 8, rel=0.3)
    assert coins.period == 512


def test_what_hides_communication_is_said() -> None:
    dense = profile(methods.psgd(SGD), LAYOUT, 4).operations(0)[0]
    assert (dense.slot, dense.early, dense.bucketed, dense.waited) == ("gradients", False, False, 0)
    buckets = profile(bucketed(methods.psgd(SGD), 1e-5), LAYOUT, 4).operations(3)
    assert [(op.bucketed, op.early) for op in buckets] == [(True, False)] * 2
    (ahead,) = profile(methods.dsgd(SGD, topologies.ring(4), order="awc"), LAYOUT, 4).operations(3)
    assert (ahead.slot, ahead.early, ahead.bucketed) == ("parameters", True, False)
    (delayed,) = profile(methods.dasgd(SGD, period=4, delay=3), LAYOUT, 4).operations(7)
    assert (delayed.step, delayed.waited) == (7, 10)


def test_a_model_of_seventy_billion_numbers_costs_no_memory() -> None:
    big = Layout.of([(f"layer{i}", (8192, 106_496)) for i in range(80)])
    for strategy in (
        methods.psgd(SGD),
        methods.mem_sgd(SGD, compressors.TopK(ratio=0.01)),
        methods.choco(SGD, topologies.ring(16), compressors.QSGD(levels=4)),
        methods.diloco(SGD, period=500),
        methods.power_sgd(SGD, rank=4),
    ):
        found = profile(strategy, big, 16)
        assert found.exact
        assert found.memory_bytes["local"] == 4 * big.d


def test_two_rules_of_the_clock_repeat_when_both_do() -> None:
    """The variance came every 8th step in the end, and workers meet every 3rd: the mean is over a multiple of both."""
    found = profile(
        methods.zero_one_adam(partial(SGD, momentum=0), updates=Thinning(8, 1), meetings=Doubling(1, 3)), LAYOUT, 4
    )
    sizes = [sum(operation.payload_bytes for operation in found.operations(k)) for k in range(10, 34)]
    assert [size > 0 for size in sizes] == [k % 3 == 0 for k in range(24)]
    assert (found.exact, found.payload_bytes) == (True, sum(sizes) / 24)


class Fourth(Transform):
    """Averages every fourth step, by the clock, and does not say so."""

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        if communicator.step % 4 != 3:
            return vectors
        return communicator.average(Dense().compress(vectors, communicator.random("up")))


class SaidFourth(Fourth):
    """And says so."""

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(period=4))


def test_a_clock_rule_without_a_timetable_is_played_for_longer_and_said() -> None:
    found = profile(Strategy(Local(SGD), parameters=Fourth()), LAYOUT, 4)
    assert (found.exact, found.payload_bytes) == (False, LAYOUT.d)
    assert "no period in `timetable` of Fourth" in found.note
    said = profile(Strategy(Local(SGD), parameters=SaidFourth()), LAYOUT, 4)
    assert (said.exact, said.note, said.period, said.payload_bytes) == (True, "", 4, LAYOUT.d)


class Counter(Transform):
    """Counts and draws in place, in memory that `start` does not make anew."""

    def __init__(self) -> None:
        self.count, self.same, self.draws = torch.zeros(2), [torch.zeros(1)], torch.Generator().manual_seed(3)
        self.half = self.count[:1]

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.count += 1
        self.same[0] += 1
        torch.rand(1, generator=self.draws)
        return vectors


def test_what_is_changed_in_place_stays_as_it_was() -> None:
    counter = Counter()
    found = profile(Strategy(Local(SGD), parameters=counter), LAYOUT, 4)
    assert found.memory_bytes["parameters"] == 12
    assert [*counter.count.tolist(), counter.same[0].item()] == [0, 0, 0]
    assert counter.draws.get_state().equal(torch.Generator().manual_seed(3).get_state())
    assert counter.half.data_ptr() == counter.count.data_ptr()
