"""Layers with experts: what is counted, where experts lie, and what is sent for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster, collectives
from commeff.cluster.groups import Groups
from commeff.experiments.planning.models import named
from commeff.planner import MEASURED, Model, Policies, Policy, predict, search
from commeff.planner.block import layer_pass
from commeff.planner.experts import exchange_seconds
from commeff.planner.memory import layer_activations
from commeff.planner.model_part import ModelPart, part_numbers
from commeff.planner.policies import PolicySetting
from commeff.planner.search.chain import dynamic, every, integer
from commeff.planner.search.everything import chain
from commeff.planner.traffic import sharing_seconds
from tests.commeff.planner.ways import method

DENSE = Model(24, 2048, 16, 1024, 51200, kv_heads=4, gated=True)
MIXED = replace(DENSE, experts=16, active_experts=2, expert_hidden=1408, shared_experts=1)
EVERY = replace(MIXED, expert_every=3)
CLUSTER = Cluster.named("h100_400g", gpus=32)


def setting(model: Model) -> PolicySetting:
    return PolicySetting(model, CLUSTER, 64)


def test_published_models_have_their_published_parameters():
    """46.7B and 12.9B (arXiv 2401.04088), 30.5B and 3.3B (its model card)."""
    mixtral, qwen = named("mixtral-8x7b"), named("qwen3-30b-a3b")
    assert mixtral.parameters / 1e9 == pytest.approx(46.7, rel=0.005)
    assert mixtral.active_parameters / 1e9 == pytest.approx(12.9, rel=0.005)
    assert qwen.parameters / 1e9 == pytest.approx(30.5, rel=0.005)
    assert qwen.active_parameters / 1e9 == pytest.approx(3.3, rel=0.02)


@pytest.mark.parametrize("gated", [True, False])
def test_narrow_experts_that_are_all_active_are_the_dense_feed_forward_and_a_router(gated):
    dense = Model(24, 2048, 16, 1024, 51200, ffn_hidden=8192, gated=gated)
    split = replace(dense, experts=8, active_experts=8, expert_hidden=1024)
    assert split.flops == dense.flops
    router, biases = 8 * dense.hidden, 0 if gated else 7 * dense.hidden
    assert split.parameters - dense.parameters == dense.layers * (router + biases)
    assert split.active_parameters == split.parameters
    assert dense.active_parameters == dense.parameters


def test_only_active_experts_have_flops():
    more = replace(MIXED, experts=64)
    assert more.flops == MIXED.flops
    assert more.parameters > MIXED.parameters
    passed = (MIXED.active_experts + MIXED.shared_experts) * MIXED.expert_width / DENSE.ffn_width
    assert replace(DENSE, ffn_hidden=round(passed * DENSE.ffn_width)).flops == MIXED.flops


@pytest.mark.parametrize("model", [MIXED, EVERY, replace(EVERY, gated=False, shared_experts=0)])
def test_the_tensors_of_a_rank_are_the_parameters(model):
    whole = ModelPart(1, model.layers, 0).layout(model).d
    assert whole == model.layers * model.layer_parameters
    assert part_numbers(model, np.array([1, 1]), np.array([6, 12]), 0).tolist() == [whole / 4, whole / 2]


def test_a_mean_layer_is_the_mean_of_those_it_stands_for():
    policies = Policies.of([Policy(tensor=2, data=16, expert=4, recompute=r) for r in ("none", "selective", "full")])
    mean, last, dense = (vars(layer_pass(policies, setting(model))) for model in (EVERY, MIXED, DENSE))
    for name, seconds in mean.items():
        assert seconds == pytest.approx((last[name] + 2 * dense[name]) / 3), name


def test_experts_are_spread_and_zero_shares_them_over_the_ranks_that_hold_the_same():
    def held(**policy):
        return predict(EVERY, Policy(data=32, **policy), CLUSTER, global_batch=64).breakdown["bytes"]

    experts = EVERY.layers * EVERY.expert_parameters
    whole, spread = held(), held(expert=8)
    assert whole["weights"] - spread["weights"] == pytest.approx(2 * experts * 7 / 8)
    assert whole["optimizer"] - spread["optimizer"] == pytest.approx(12 * experts * 7 / 8)
    assert held(zero=1, expert=8)["optimizer"] == held(zero=1)["optimizer"] == pytest.approx(whole["optimizer"] / 32)
    moments = {"workers": 2, "method": method("diloco period=20")}
    remembered = held(**moments)["method"] / whole["weights"]
    assert held(expert=8, **moments)["method"] == pytest.approx(remembered * spread["weights"])


def test_gradients_of_experts_are_averaged_by_the_ranks_that_hold_the_same():
    parameters, experts = np.array([3e9]), np.array([2e9])
    for zero in range(4):
        alone, eight = (Policies.of([Policy(data=32, zero=zero, expert=e)]) for e in (32, 8))
        rest = sharing_seconds(alone, setting(DENSE), parameters - experts, 0 * experts)
        four = sharing_seconds(eight, setting(MIXED), parameters, experts)
        assert sharing_seconds(alone, setting(MIXED), parameters, experts)[:3] == rest[:3]
        assert four.gradients + four.backward > rest.gradients + rest.backward
        if zero == 0:
            own = collectives.all_reduce(Groups.strided(CLUSTER, np.array([4]), 8), 4 * experts)
            assert four.gradients - rest.gradients == pytest.approx(own)


def test_tokens_are_sent_k_times_but_for_those_that_stay():
    """Inside a node each rank sends 2 b s k h bytes, but for the part of its own experts, there and back, each way."""
    link, model = CLUSTER.intra, MIXED
    for ranks in (1, 2, 8):
        policies = Policies.of([Policy(data=32, expert=ranks)])
        sent = 2 * model.sequence * model.active_experts * model.hidden * (ranks - 1) / ranks
        expected = 2 * (sent / link.rate + (ranks - 1) * link.latency)
        assert exchange_seconds(policies, setting(model)) == pytest.approx(expected)
        padded = setting(replace(model, capacity=1.25))
        more = 2 * (1.25 * sent / link.rate + (ranks - 1) * link.latency)
        assert exchange_seconds(policies, padded) == pytest.approx(more)


def test_no_expert_gets_more_tokens_than_there_are():
    most = [setting(replace(MIXED, capacity=c)) for c in (8, 100)]
    policies = Policies.of([Policy(data=32, expert=4)])
    assert layer_pass(policies, most[0]).total == layer_pass(policies, most[1]).total
    assert layer_activations(policies, most[0], True) == layer_activations(policies, most[1], True)


def test_nodes_and_small_experts_cost_time():
    def step(model=MIXED, constants=MEASURED, **policy):
        return predict(model, Policy(data=32, **policy), CLUSTER, global_batch=64, constants=constants)

    inside, across = step(expert=8), step(expert=16)
    assert across.breakdown["seconds"]["tensor"] > 2 * inside.breakdown["seconds"]["tensor"]
    hidden = step(expert=16, overlap="full")
    assert hidden.breakdown["seconds"]["tensor"] < across.breakdown["seconds"]["tensor"]
    narrow = replace(MIXED, experts=128, active_experts=16, expert_hidden=176, shared_experts=8)
    assert narrow.flops == MIXED.flops
    launched = replace(MEASURED, kernel_seconds=1e-9)
    wide, small = (step(model, launched, expert=8).breakdown["seconds"]["compute"] for model in (MIXED, narrow))
    assert small > wide


@pytest.mark.parametrize("solve", [every, dynamic, integer])
def test_stages_hold_whole_groups_of_layers(solve):
    pieces = chain(replace(EVERY, vocab=256_000), Policy(pipeline=4, data=8, expert=4), CLUSTER, 64)
    cuts = solve(pieces)
    assert len(set(cuts)) > 1
    assert all(layers % 3 == 0 for layers in cuts)


def test_a_search_spreads_experts_where_that_is_faster():
    """Of 13 billion parameters most are experts, whose gradients no GPU has room for."""
    plans = search(replace(MIXED, experts=64), CLUSTER.with_gpus(8), 64, top=1)
    assert plans[0].policy.expert > 1


@pytest.mark.parametrize(
    ("model", "policy", "said"),
    [
        (MIXED, {"data": 32, "expert": 64}, "expert must divide the 32 ranks of a worker, .* got 64"),
        (replace(MIXED, experts=6), {"data": 32, "expert": 4}, "expert must divide experts=6, got 4"),
        (DENSE, {"data": 32, "expert": 2}, "expert must divide experts=1, got 2"),
        (MIXED, {"data": 32, "workers": 8, "expert": 8, "method": method("dsgd degree=1")}, "the 4 ranks of a worker"),
        (replace(MIXED, expert_hidden=1001), {"tensor": 4, "data": 8}, "tensor must divide expert_hidden=1001, got 4"),
        (replace(EVERY, expert_hidden=1001), {"tensor": 4, "data": 8}, "ffn_hidden=5632 and expert_hidden=1001"),
        (EVERY, {"pipeline": 16, "data": 2}, "layers=24 / expert_every=3, got 16 x 1"),
        (EVERY, {"pipeline": 2, "data": 16, "stages": (11, 13)}, "multiples of expert_every=3"),
    ],
)
def test_what_does_not_fit_experts_is_refused(model, policy, said):
    with pytest.raises(ValueError, match=said) as refusal:
        predict(model, Policy(**policy), CLUSTER, global_batch=64)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"experts": 0}, "experts must be .* got 0"),
        ({"experts": 4, "active_experts": 5}, "active_experts must be at most experts=4, got 5"),
        ({"expert_hidden": 512}, "experts must be above 1"),
        ({"shared_experts": 1}, "experts must be above 1"),
        ({"experts": 4, "shared_experts": -1}, "shared_experts must be .* got -1"),
        ({"experts": 4, "expert_hidden": 0}, "expert_hidden must be .* got 0"),
        ({"experts": 4, "expert_every": 5}, "expert_every must divide layers=24, got 5"),
        ({"experts": 4, "capacity": 0.5}, "capacity must be .* got 0.5"),
        ({"experts": 4, "capacity": float("nan")}, "capacity must be .* got nan"),
    ],
)
def test_experts_that_cannot_be_are_refused(what, said):
    with pytest.raises(ValueError, match=said):
        replace(DENSE, **what)
