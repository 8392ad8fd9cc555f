"""Inputs of layers that wait on the host: what copying them takes, and what it lies beside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster
from commeff.planner import Model, Policies, Policy, predict
from commeff.planner.block import layer_pass
from commeff.planner.estimate import estimate
from commeff.planner.memory import checkpoint_bytes
from commeff.planner.policies import SCHEDULES, PolicySetting

MODEL = Model(layers=16, hidden=1024, heads=16, sequence=2048, vocab=51200)
EIGHT = Cluster.named("a100_selene", gpus=8)
AWAY = Policy(tensor=4, pipeline=2, recompute="full", offload_checkpoints=True, micro_batch=4)
KEPT = replace(AWAY, offload_checkpoints=False)


def linked(rate: float | None) -> Cluster:
    return replace(EIGHT, gpu=replace(EIGHT.gpu, host_bandwidth=rate))


def price(policy: Policy, rate: float, batch: int = 32):
    return predict(MODEL, policy, linked(rate), global_batch=batch)


@pytest.mark.parametrize("rate", [1e7, 5e8, 1e9, 2e9, 5e9, 1e15])
def test_a_pass_of_a_layer_lasts_as_long_as_its_copy_at_least(rate):
    setting = PolicySetting(MODEL, linked(rate), 32)
    away, kept = (layer_pass(Policies.of([policy]), setting) for policy in (AWAY, KEPT))
    copy = 2 * 4 * MODEL.sequence * MODEL.hidden / rate
    assert away.forward_total == pytest.approx(np.maximum(copy, kept.forward_total))
    assert away.backward_total == pytest.approx(np.maximum(copy, kept.backward_total))
    assert away.backward_total - away.weights == pytest.approx(np.maximum(copy, kept.backward_total - kept.weights))


def test_a_fast_link_costs_nothing_and_a_slow_one_what_it_carries_both_ways_in_each_micro_batch():
    kept = price(KEPT, 1e15)
    assert price(AWAY, 1e15).step_seconds == pytest.approx(kept.step_seconds, rel=1e-12)
    parts = price(AWAY, 1e6).breakdown["seconds"]
    copies = 2 * (MODEL.layers // 2) * (32 // 4) * 2 * 4 * MODEL.sequence * MODEL.hidden / 1e6
    assert parts["offload"] == pytest.approx(copies, rel=2e-3)  # less what the layers compute meanwhile
    assert parts["bubble"] == pytest.approx(copies / 8, rel=2e-3)  # the pipeline waits for the copies of the other
    assert price(AWAY, 1e6).memory_bytes < kept.memory_bytes


@pytest.mark.parametrize(
    ("changes", "factor"),
    [({"partition_checkpoints": True}, 4), ({"sequence_parallel": True}, 4), ({"recompute_every": 2}, 2)],
)
def test_fewer_bytes_take_less_time(changes, factor):
    fewer, all_bytes = (price(replace(AWAY, **more), 1e6).breakdown["seconds"]["offload"] for more in (changes, {}))
    assert fewer == pytest.approx(all_bytes / factor, rel=1e-2)


def test_of_the_inputs_that_are_away_one_has_come_back():
    here, away = (price(policy, 1e15).breakdown["bytes"]["activations"] for policy in (KEPT, AWAY))
    one = checkpoint_bytes(Policies.of([AWAY]), PolicySetting(MODEL, EIGHT, 32))[0]
    assert here - away == pytest.approx((MODEL.layers // 2 - 1) * one)  # of the last stage, the fullest


def test_policies_that_move_and_that_do_not_are_priced_together_as_alone():
    together = estimate(MODEL, Policies.of([AWAY, KEPT, AWAY]), linked(1e8), 32).step_seconds
    assert together == pytest.approx([price(policy, 1e8).step_seconds for policy in (AWAY, KEPT, AWAY)])


def test_only_what_is_recomputed_in_full_is_moved():
    for kind in ("none", "selective"):
        assert price(replace(AWAY, recompute=kind), 1e6).breakdown["seconds"]["offload"] == 0
    one = Policies.of([replace(AWAY, partition_checkpoints=True)])
    assert checkpoint_bytes(one, PolicySetting(MODEL, EIGHT, 32))[0] == 4 * MODEL.sequence * MODEL.hidden * 2 / 4


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rate", [5e8, 2e9])
def test_stages_that_are_named_wait_as_long_as_equal_ones(schedule, rate):
    policy = replace(AWAY, schedule=schedule, chunks=2 if schedule == "interleaved" else 1)
    pieces = policy.pipeline * policy.chunks
    even, named = price(policy, rate), price(replace(policy, stages=(16 // pieces,) * pieces), rate)
    assert even.breakdown["seconds"]["offload"] > 0
    assert named.breakdown["seconds"]["offload"] == pytest.approx(even.breakdown["seconds"]["offload"])
    assert named.step_seconds == pytest.approx(even.step_seconds, rel=0.02 if schedule == "interleaved" else 1e-9)


def test_gradients_pass_while_a_layer_waits_for_the_host():
    """A step that waits for copies is no longer with slow gradients, as long as they are through before it ends."""
    one = replace(AWAY, tensor=1, pipeline=1, data=8, overlap="full")
    quick, slow = (
        predict(MODEL, one, linked(1e8).with_inter(bandwidth=rate), global_batch=32) for rate in (1e11, 1e10)
    )
    assert quick.breakdown["seconds"]["offload"] > 0.5 * quick.step_seconds
    assert slow.step_seconds == pytest.approx(quick.step_seconds)


def test_a_gpu_that_is_described_without_a_link_to_its_host_moves_nothing():
    with pytest.raises(ValueError, match="offload_checkpoints must be false on A100-SXM4-80GB, got true") as refusal:
        predict(MODEL, AWAY, linked(None), global_batch=32)
    assert "\n" not in str(refusal.value)
    predict(MODEL, KEPT, linked(None), global_batch=32)
    with pytest.raises(ValueError, match="host bandwidth of A100-SXM4-80GB must be above 0"):
        linked(0)
