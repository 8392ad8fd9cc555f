"""All cuts, dynamic programming and integer programming find equally good cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster
from commeff.planner import Model, Policy, predict, timeline
from commeff.planner.search.chain import CutChain, dynamic, every, integer
from commeff.planner.search.everything import chain

CLUSTER = Cluster.named("a100_selene", gpus=8)
HEAVY = Model(layers=10, hidden=2048, heads=16, sequence=1024, vocab=256_000)


def chains(seed: int) -> CutChain:
    """PipelineStages with times that grow with their layers, or that are anything at all."""
    random = np.random.default_rng(seed)
    stages, layers = int(random.integers(1, 6)), int(random.integers(5, 11))
    seconds = random.random((stages, layers)) + 0.01
    if seed % 2:
        seconds = np.cumsum(random.random(layers) + 0.1) + 3 * random.random((stages, 1))
    return CutChain(seconds, random.random((stages, layers)) < 0.85, int(random.integers(1, 30)))


@pytest.mark.parametrize("solve", [dynamic, integer])
def test_programming_is_as_good_as_all_cuts(solve):
    found = 0
    for seed in range(80 if solve is dynamic else 25):
        one = chains(seed)
        truth, cuts = every(one), solve(one)
        assert (truth is None) == (cuts is None)
        if cuts is None:
            continue
        found += 1
        assert len(cuts) == one.stages
        assert sum(cuts) == one.layers
        assert one.possible[np.arange(one.stages), np.array(cuts) - 1].all()
        assert one.cost(cuts) == pytest.approx(one.cost(truth), rel=1e-4)
    assert found > 10


def test_equal_layers_without_ends_are_cut_evenly():
    for solve in (every, dynamic, integer):
        assert solve(CutChain(np.arange(1.0, 13) * np.ones((4, 1)), np.ones((4, 12), dtype=bool), 16)) == (3, 3, 3, 3)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_event_loop_agrees_with_the_chain(schedule):
    policy = Policy(pipeline=4, data=2, schedule=schedule)
    pieces = chain(HEAVY, policy, CLUSTER, 128)
    for cuts in ((3, 3, 3, 1), (1, 3, 3, 3), (2, 3, 3, 2), (4, 2, 2, 2)):
        looped = timeline(HEAVY, replace(policy, stages=cuts), CLUSTER, global_batch=128).seconds
        assert looped == pytest.approx(pieces.cost(cuts), rel=0.02)


@pytest.mark.parametrize("some", [{}, {"recompute": "full", "recompute_stages": 2}])
def test_memory_of_a_stage_is_what_the_prediction_says_of_the_fullest(some):
    policy, cuts = Policy(pipeline=4, data=2, micro_batch=4, **some), (2, 3, 3, 2)
    held = predict(HEAVY, replace(policy, stages=cuts), CLUSTER, global_batch=128).memory_bytes
    for room, fits in ((1.001, True), (0.999, False)):
        small = Cluster(
            CLUSTER.name,
            8,
            type(CLUSTER.gpu)("A100-small", held * room, CLUSTER.gpu.memory_bandwidth, CLUSTER.gpu.peak_flops),
            CLUSTER.per_node,
            CLUSTER.intra,
            CLUSTER.inter,
        )
        possible = chain(HEAVY, policy, small, 128).possible[np.arange(4), np.array(cuts) - 1]
        assert possible.all() == fits


def test_stages_that_recompute_are_chained_as_they_are_predicted():
    policy = Policy(pipeline=4, data=2, recompute="full", recompute_stages=2)
    pieces, cuts = chain(HEAVY, policy, CLUSTER, 128), (2, 2, 4, 2)
    looped = timeline(HEAVY, replace(policy, stages=cuts), CLUSTER, global_batch=128).seconds
    assert looped == pytest.approx(pieces.cost(cuts), rel=0.02)
    assert pieces.seconds[1, 2] / pieces.seconds[2, 2] == pytest.approx(4 / 3, rel=0.02)
    every = chain(HEAVY, replace(policy, recompute_stages=0), CLUSTER, 128)
    assert (every.seconds[:2] == pieces.seconds[:2]).all()


def test_a_heavy_head_gets_fewer_layers_and_the_step_is_faster():
    policy = Policy(pipeline=2, data=4)
    cuts = dynamic(chain(HEAVY, policy, CLUSTER, 128))
    assert cuts[-1] < 5 < cuts[0]
    both = policy, replace(policy, stages=cuts)
    even, cut = (predict(HEAVY, each, CLUSTER, global_batch=128).step_seconds for each in both)
    assert cut < even
