"""Pipelines: the event loop against closed forms, and against what no schedule can beat."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.typing import NDArray

from commeff.cluster import Cluster
from commeff.planner import Model, Policy, predict, stage_memory, timeline
from commeff.planner.memory import micro_batches_in_flight
from commeff.planner.passes import StageSeconds, bubble_seconds
from commeff.planner.policies import SCHEDULES, Policies, PolicySetting
from commeff.planner.timeline import Timeline, order, pipeline_seconds, play

SHAPES = [
    (schedule, p, m, v)
    for schedule, p, m, v in product(SCHEDULES, (2, 3, 4, 8), (1, 2, 6, 8, 24), (1, 2, 3))
    if (schedule == "interleaved" and m % p == 0) or v == 1
]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SHAPES)
def test_the_closed_form_is_the_event_loop_on_equal_stages(schedule, p, m, v):
    random = np.random.default_rng(p * m * v)
    forward, backward = random.uniform(0.3, 2, size=2)
    weights = random.uniform(0, backward)
    pieces = p * v
    run = play(schedule, m, [forward / v] * pieces, [backward / v] * pieces, [weights / v] * pieces, v)
    arrays = [np.array(x) for x in (SCHEDULES.index(schedule), p, v, m)]
    stage = StageSeconds(np.array(forward), np.array(backward), np.array(weights))
    bubble = bubble_seconds(*arrays, stage, StageSeconds(*(p * seconds for seconds in stage)))
    assert run.seconds == pytest.approx(m * (forward + backward) + float(bubble), rel=1e-12)
    longer = play(schedule, m, [forward / v] * pieces, [backward / v] * pieces, [weights / v] * pieces, v, [0.7] * p)
    assert longer.seconds == pytest.approx(run.seconds + 0.7, rel=1e-12)


def draw(random: np.random.Generator, pieces: int) -> NDArray[np.float64]:
    """Seconds that are far apart, nearly equal, often zero, or equal."""
    kinds = [random.exponential(size=pieces) ** 3, 1 + 1e-4 * random.random(pieces), random.integers(0, 3, pieces)]
    return np.asarray([*kinds, np.ones(pieces)][random.integers(4)], dtype=float)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("most", [20, 300])
def test_the_seconds_of_a_pipeline_are_those_of_the_event_loop(schedule, most):
    random = np.random.default_rng(most)
    for trial in range(60):
        p = int(random.integers(1, 17))
        v = trial % 3 + 1 if schedule == "interleaved" else 1
        m = p * int(random.integers(1, most // 16 + 1)) if v > 1 else int(random.integers(1, most + 1))
        forward, backward = draw(random, p * v), draw(random, p * v)
        weights = backward * random.random(p * v)
        once = random.random(p) * random.integers(4)
        run = play(schedule, m, forward.tolist(), backward.tolist(), weights.tolist(), v, once.tolist())
        seconds = pipeline_seconds(schedule, m, forward, backward, weights, v, once)
        assert seconds == pytest.approx(run.seconds, rel=1e-9, abs=1e-12), (p, m, v)


def test_rounds_of_which_only_some_stages_have_found_their_pace_are_played():
    """The first stage is the slowest by a little, and the last waits for it after many micro-batches only."""
    forward, backward = np.array([0.5, 0.01, 0.5]), np.array([0.5, 0.01, 0.49])
    for m in (10, 50, 90, 110, 300, 5_000):
        run = play("1f1b", m, forward.tolist(), backward.tolist())
        assert pipeline_seconds("1f1b", m, forward, backward, backward) == pytest.approx(run.seconds, rel=1e-12)


def peaks(run: Timeline, frees: str) -> NDArray[np.float64]:
    """The most micro-batches at once of each stage, each chunk of one added up."""
    changes = [[(e.task.what == "F") * 1 - (e.task.what == frees) for e in events] for events in run.events]
    return np.array([np.cumsum(stage).max() for stage in changes])


@pytest.mark.parametrize(("schedule", "p", "m", "v"), SHAPES)
def test_memory_counts_the_micro_batches_that_the_event_loop_holds(schedule, p, m, v):
    run = play(schedule, m, [1.0] * p * v, [2.0] * p * v, [1.0] * p * v, v)
    policies = Policies.of([Policy(pipeline=p, schedule=schedule, chunks=v)])
    setting = PolicySetting(Model(16, 2048, 16, 1024, 128_000), Cluster.named("a100_selene"), m)
    held = peaks(run, "W" if schedule == "zero_bubble" else "B")
    assert held / v == pytest.approx(micro_batches_in_flight(policies, setting, np.arange(p)))
    assert max(held) == held[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_nothing_runs_before_what_it_needs_and_everything_runs_once(schedule):
    v, p, m = (2 if schedule == "interleaved" else 1), 4, 8
    random = np.random.default_rng(0)
    forward, backward = random.uniform(1, 2, size=(2, p * v))
    run = play(schedule, m, forward, backward, backward / 3, v)
    ends = {(e.task.what, e.task.micro_batch, e.task.chunk * p + e.stage): e for tasks in run.events for e in tasks}
    assert len(ends) == (3 if schedule == "zero_bubble" else 2) * m * p * v
    for (what, i, piece), event in ends.items():
        before = {"F": ("F", i, piece - 1), "B": ("B", i, piece + 1), "W": ("B", i, piece)}[what]
        if before in ends:
            assert event.start >= ends[before].end
        if what == "B":
            assert event.start >= ends["F", i, piece].end
    for tasks in run.events:
        assert all(a.end <= b.start for a, b in pairwise(tasks))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_uneven_stages_take_at_least_the_slowest_stages_work_and_the_first_passage(schedule):
    random = np.random.default_rng(1)
    forward = random.uniform(1, 3, size=4)
    backward = 2 * forward
    run = play(schedule, 8, forward, backward, forward)
    bound = 8 * max(forward + backward)
    even = play(schedule, 8, [forward.mean()] * 4, [backward.mean()] * 4, [forward.mean()] * 4)
    assert run.seconds > bound
    assert run.seconds > even.seconds or schedule == "naive"  # one at a time: only the sum matters


def test_a_schedule_that_waits_for_itself_is_refused():
    with pytest.raises(ValueError, match="waits for itself"):
        play("interleaved", 3, [1.0] * 4, [1.0] * 4, chunks=2)


def test_interleaved_with_one_chunk_is_1f1b():
    assert order("interleaved", 4, 8) == order("1f1b", 4, 8)


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 32])
def test_zero_bubble_is_the_event_loop_beside_a_heavy_head(batch):
    model, cluster = Model(16, 2048, 16, 1024, 128_000), Cluster.named("a100_selene", gpus=8)
    policy = Policy(pipeline=8, schedule="zero_bubble")
    p = predict(model, policy, cluster, global_batch=batch)
    run = timeline(model, policy, cluster, global_batch=batch)
    inside = sum(p.breakdown["seconds"][part] for part in ("compute", "recompute", "tensor", "pipeline", "bubble"))
    assert inside == pytest.approx(run.seconds, rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_predict_is_the_event_loop_with_embedding_and_head_at_the_ends(schedule):
    model, cluster = Model(32, 4096, 32, 2048, 51200), Cluster.named("a100_selene", gpus=8)
    policy = Policy(tensor=2, pipeline=4, schedule=schedule, chunks=2 if schedule == "interleaved" else 1)
    p = predict(model, policy, cluster, global_batch=64)
    run = timeline(model, policy, cluster, global_batch=64)
    inside = sum(p.breakdown["seconds"][part] for part in ("compute", "recompute", "tensor", "pipeline", "bubble"))
    assert inside == pytest.approx(run.seconds, rel=0.02 if schedule == "interleaved" else 1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"zero": 3, "recompute": "full", "sequence_parallel": True},
        {"recompute": "full", "recompute_stages": 1, "stages": True},
    ],
)
def test_the_fullest_stage_at_its_peak_has_the_memory_that_is_predicted(schedule, more):
    model, cluster = Model(32, 4096, 32, 2048, 51200), Cluster.named("a100_selene", gpus=16)
    chunks = 2 if schedule == "interleaved" else 1
    if "stages" in more:
        more = {**more, "stages": (4, 3, 5, 4, 4, 3, 5, 4) if chunks == 2 else (7, 9, 8, 8)}
    policy = Policy(tensor=2, pipeline=4, data=2, schedule=schedule, chunks=chunks, **more)
    held = peaks(timeline(model, policy, cluster, global_batch=64), "W" if schedule == "zero_bubble" else "B")
    none, one = (np.array(stage_memory(model, policy, cluster, kept, global_batch=64)) for kept in (0, 1))
    fullest = (none + (one - none) * held / chunks).max()
    assert fullest == pytest.approx(predict(model, policy, cluster, global_batch=64).memory_bytes, rel=1e-12)


def test_equal_stages_may_be_named_and_uneven_ones_cost_more():
    model, cluster = Model(32, 4096, 32, 2048, 51200), Cluster.named("a100_selene", gpus=8)
    even, named, uneven = (
        predict(model, Policy(tensor=2, pipeline=4, stages=stages), cluster, global_batch=64)
        for stages in (None, (8, 8, 8, 8), (5, 11, 8, 8))
    )
    assert named.step_seconds == pytest.approx(even.step_seconds)
    assert named.memory_bytes == pytest.approx(even.memory_bytes)
    assert uneven.step_seconds > 1.2 * even.step_seconds
    assert sum(uneven.breakdown["seconds"].values()) == pytest.approx(uneven.step_seconds)


def test_fewer_layers_beside_the_head_pay():
    model, cluster = Model(32, 4096, 32, 2048, 256000), Cluster.named("a100_selene", gpus=8)
    policies = [Policy(tensor=2, pipeline=4, stages=stages) for stages in ((8, 8, 8, 8), (9, 9, 9, 5))]
    even, shifted = (predict(model, policy, cluster, global_batch=64).step_seconds for policy in policies)
    assert shifted < even


@pytest.mark.parametrize("stages", [None, (8, 8, 8, 8), (9, 7, 8, 8)])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero_bubble"])
@pytest.mark.parametrize("passes", [1, 2, 16])
def test_three_stages_wait_for_what_a_pass_sends_and_zero_2_sends_the_last_gradients_once(schedule, stages, passes):
    """Where nothing hides. With one micro-batch ZeRO-2 sends what ZeRO-1 does, when it does."""
    model = Model(32, 4096, 32, 2048, 51200, tied_embeddings=False)
    policy = Policy(pipeline=4, data=4, schedule=schedule, stages=stages, overlap="none")
    cluster = Cluster.named("a100_selene", gpus=16)
    one, two, three = (
        predict(model, replace(policy, zero=zero), cluster, global_batch=4 * passes).breakdown["seconds"]
        for zero in (1, 2, 3)
    )
    reduced = (two["data"] - one["data"]) / max(passes - 1, 1)
    assert two["bubble"] - one["bubble"] == pytest.approx(3 * reduced, rel=1e-6)
    assert three["bubble"] - one["bubble"] == pytest.approx(3 * three["data"] / passes, rel=1e-6)
    assert (reduced > 0) == (passes > 1)


@pytest.mark.parametrize("stages", [None, (8, 8, 8, 8)])
def test_gradients_of_weights_that_messages_hide_behind_are_not_put_off(stages):
    model, cluster = Model(32, 4096, 32, 2048, 128, tied_embeddings=False), Cluster.named("a100_selene", gpus=16)
    slow = replace(cluster, **{name: replace(getattr(cluster, name), bandwidth=2e9) for name in ("intra", "inter")})
    policy = Policy(pipeline=4, data=4, stages=stages, overlap="full")

    def saved(zero):
        plain, late = (
            predict(model, replace(policy, zero=zero, schedule=schedule), slow, global_batch=64).step_seconds
            for schedule in ("1f1b", "zero_bubble")
        )
        return plain - late

    assert 0 <= saved(3) < 0.01 * saved(1)
