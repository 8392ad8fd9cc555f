"""Ranks of a sequence that split the heads of attention, beside those of a ring."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster, FatTree, collectives
from commeff.cluster.groups import Groups
from commeff.planner import MEASURED, Model, Policies, Policy, estimate, predict, search
from commeff.planner.block import heads_seconds, layer_pass, ring_seconds
from commeff.planner.memory import PipelineStages, activations, key_bytes, layer_activations, query_bytes
from commeff.planner.policies import PolicySetting
from commeff.planner.search import Space

LONG = Model(8, 4096, 32, 65_536, 51_200, flash_attention=True)
SELENE = Cluster.named("a100_selene", gpus=64)


def setting(model: Model = LONG, cluster: Cluster = SELENE) -> PolicySetting:
    return PolicySetting(model, cluster, 64, replace(MEASURED, kernel_seconds=0.0))


def heads(**policy) -> Policies:
    return Policies.of([Policy(context_by="all_to_all", **policy)])


def ring(**policy) -> Policies:
    return Policies.of([Policy(**policy)])


def free(cluster: Cluster) -> Cluster:
    """Without latencies."""
    return replace(cluster, intra=replace(cluster.intra, latency=0.0), inter=replace(cluster.inter, latency=0.0))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("keys", [32, 8, 2])
def test_queries_keys_values_and_context_are_an_all_to_all_each_way_that_attention_does_not_hide(recompute, keys):
    """Keys and values of a head that several ranks need are sent to each of them."""
    model, link = replace(LONG, kv_heads=keys), SELENE.intra
    query = 2 * LONG.sequence / 4 * LONG.hidden / 2
    key = query * max(keys, 8) / 32
    once = 4 * 3 * link.latency + 2 * 3 / 4 * (query + key) / link.bandwidth
    policy = {"tensor": 2, "context": 4, "recompute": recompute}
    assert heads_seconds(heads(**policy), setting(model)) == pytest.approx(once)
    split, whole = (
        layer_pass(heads(overlap="data", **{**policy, "context": c}), setting(model if c > 1 else short(model)))
        for c in (4, 1)
    )
    passes = 2 + (recompute != "none")
    assert split.tensor == pytest.approx(whole.tensor + passes * once)
    assert split.tensor_forward == pytest.approx(whole.tensor_forward + once)


def short(model: Model) -> Model:
    return replace(model, sequence=model.sequence // 4)


def test_overlap_full_alone_hides_all_to_alls_behind_products():
    exposed, share, none = (
        layer_pass(heads(context=4, overlap=overlap), setting()) for overlap in ("none", "partial", "full")
    )
    assert exposed.tensor == share.tensor > none.tensor == 0
    assert none.hidden_forward == none.hidden_backward == exposed.tensor / 2


@pytest.mark.parametrize("cluster", [SELENE, replace(SELENE, network=FatTree((4,), (1,)))])
def test_between_nodes_and_thin_switches_they_cost_what_all_to_alls_cost(cluster):
    policies = heads(tensor=4, context=8, data=2)
    groups = Groups.strided(cluster, np.array([8]), np.array([4]))
    size = 2 * LONG.sequence / 8 * LONG.hidden / 4
    assert heads_seconds(policies, setting(cluster=cluster)) == 4 * collectives.all_to_all(groups, size)


def test_what_a_rank_sends_falls_with_more_ranks_where_heads_are_split_and_stays_in_a_ring():
    """Arxiv 2309.14509, section 3.2: as 1/c, but for the part of each rank's own."""
    where = setting(cluster=free(SELENE))
    for t in (1, 2):
        most = 8 // t
        degrees = [c for c in (2, 4, 8) if c <= most]
        left = [heads_seconds(heads(tensor=t, context=c), where)[0] / (1 - 1 / c) for c in degrees]
        assert np.multiply(left, degrees) == pytest.approx(np.full(len(degrees), left[0] * 2))
        passed = [ring_seconds(ring(tensor=t, context=c), where)[0] / (1 - 1 / c) for c in degrees]
        assert passed == pytest.approx(np.full(len(degrees), passed[0]))


def test_one_rank_has_nobody_to_send_to():
    plain, alone = (
        predict(LONG, Policy(tensor=8, data=8, context_by=by), SELENE, global_batch=64) for by in ("ring", "all_to_all")
    )
    assert plain == alone


def test_both_ways_at_once_cost_what_each_costs_alone():
    both = [Policy(context=8, data=8, context_by=by) for by in ("ring", "all_to_all")]
    costs = estimate(LONG, Policies.of(both), SELENE, 64)
    for i, policy in enumerate(both):
        alone = predict(LONG, policy, SELENE, global_batch=64)
        assert (alone.step_seconds, alone.memory_bytes) == pytest.approx(
            (costs.step_seconds[i], costs.memory_bytes[i]), rel=1e-12
        )


def test_one_layer_sends_and_gets_queries_where_a_ring_passes_keys_values_and_gradients():
    where, held = setting(replace(LONG, kv_heads=8)), []
    for of in (heads, ring):
        policies = of(context=8, recompute="selective")
        held.append(activations(policies, where, PipelineStages.even(policies, where))[0])
    assert held[0] - held[1] == pytest.approx(2 * query_bytes(policies, where) - 4 * key_bytes(policies, where))


@pytest.mark.parametrize("flash", [True, False])
def test_attention_is_as_much_work_as_in_a_ring(flash):
    where = setting(replace(LONG, flash_attention=flash, sequence=8192))
    whole, parts = (layer_pass(of(tensor=2, context=4), where) for of in (heads, ring))
    assert whole.forward == pytest.approx(parts.forward, rel=0 if flash else 0.05)
    assert whole.backward == pytest.approx(parts.backward, rel=0 if flash else 0.05)


def test_flash_attention_keeps_the_context_of_whole_sequences_too():
    context = 2 * LONG.sequence / 4 * LONG.hidden
    split, parts = (layer_activations(of(context=4), setting()) for of in (heads, ring))
    assert split == pytest.approx(parts + context)
    for also in ({"recompute": "selective"}, {"precision": "fp8"}):
        assert layer_activations(heads(context=4, **also), setting()) == layer_activations(
            ring(context=4, **also), setting()
        )
    few = replace(LONG, kv_heads=2)
    assert key_bytes(heads(context=8), setting(few)) == 4 * key_bytes(ring(context=8), setting(few))


@pytest.mark.parametrize(
    ("model", "ranks", "said"),
    [
        (replace(LONG, heads=8), {"tensor": 4, "context": 4}, "tensor x context must divide heads=8 .* got 4 x 4"),
        (replace(LONG, heads=24, hidden=3072, kv_heads=6), {"context": 4}, "multiple of kv_heads=6 .* got 1 x 4"),
        (replace(LONG, sequence=65_540), {"context": 4}, "must divide half of sequence=65540"),
    ],
)
def test_heads_that_do_not_divide_are_refused(model, ranks, said):
    policy = Policy(data=64 // ranks.get("tensor", 1) // ranks["context"], context_by="all_to_all", **ranks)
    with pytest.raises(ValueError, match=said):
        policy.check(model, SELENE, 64)


@pytest.mark.parametrize(("keys", "by"), [(32, "all_to_all"), (2, "ring")])
def test_a_search_splits_heads_where_links_are_slow_and_keys_many(keys, by):
    slow = replace(SELENE.with_gpus(16), intra=replace(SELENE.intra, bandwidth=2e10))
    model = replace(LONG, sequence=32_768, kv_heads=keys)
    best = search(model, slow, 2, top=1)[0]
    assert (best.policy.context, best.policy.context_by) == (4, by)
    other = replace(best.policy, context_by="ring" if by == "all_to_all" else "all_to_all")
    assert best.step_seconds < predict(model, other, slow, global_batch=2).step_seconds


def test_a_search_tries_only_splits_of_heads_that_there_are():
    few, brief = (
        Space(model, SELENE, 64).values["tensor"] for model in (replace(LONG, heads=2), short(short(short(LONG))))
    )
    split = [(value["tensor"], value["context"]) for value in few if value["context_by"] == "all_to_all"]
    assert split == [(1, 2)]
    assert {value["context_by"] for value in brief} == {"ring"}
