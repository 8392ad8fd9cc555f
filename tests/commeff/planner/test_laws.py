"""Physics: what happens to every part of a prediction when one thing changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster
from commeff.planner import MEASURED, Model, Policies, Policy, estimate, predict
from commeff.planner.block import ring_seconds, tensor_seconds
from commeff.planner.estimate import StepParts
from commeff.planner.memory import layer_activations, scores
from commeff.planner.policies import PolicySetting
from tests.commeff.planner.ways import method
from tests.counting import calls

MODEL = Model(layers=32, hidden=4096, heads=32, sequence=2048, vocab=51200)
SELENE = Cluster.named("a100_selene", gpus=64)
PARTS = ("compute", "recompute", "tensor", "pipeline", "offload", "bubble", "data", "workers", "optimizer")


def seconds(model=MODEL, cluster=SELENE, batch=512, constants=MEASURED, **policy) -> dict[str, float]:
    p = predict(model, Policy(**policy), cluster, global_batch=batch, constants=constants)
    parts = p.breakdown["seconds"]
    assert tuple(sorted(parts)) == tuple(sorted(PARTS))
    assert sum(parts.values()) == pytest.approx(p.step_seconds)
    assert min(parts.values()) >= 0
    return parts


def test_one_formula_prices_one_policy_and_many():
    choices = [
        Policy(tensor=t, pipeline=p, data=64 // t // p, micro_batch=b, recompute=r, zero=z, overlap=o)
        for t, p, b, r, z, o in [
            (1, 1, 1, "none", 0, "none"),
            (2, 4, 2, "full", 1, "partial"),
            (8, 1, 8, "selective", 3, "full"),
            (4, 16, 1, "none", 0, "partial"),
        ]
    ] + [
        Policy(data=64, workers=8, method=method("mem_sgd compressor=qsgd compressor.levels=7")),
        Policy(data=64, workers=64, method=method("diloco")),
    ]
    together = estimate(MODEL, Policies.of(choices), SELENE, 512)
    alone = [predict(MODEL, policy, SELENE, global_batch=512) for policy in choices]
    assert together.step_seconds.tolist() == pytest.approx([p.step_seconds for p in alone], rel=1e-12)
    assert together.memory_bytes.tolist() == pytest.approx([p.memory_bytes for p in alone], rel=1e-12)


def test_doubling_all_bandwidths_halves_exposed_communication():
    quick = replace(
        SELENE,
        intra=replace(SELENE.intra, bandwidth=2 * SELENE.intra.bandwidth, latency=SELENE.intra.latency / 2),
        inter=replace(SELENE.inter, bandwidth=2 * SELENE.inter.bandwidth, latency=SELENE.inter.latency / 2),
    )
    policy = {"tensor": 4, "pipeline": 4, "data": 4, "overlap": "none", "recompute": "full"}
    slow, fast = seconds(**policy), seconds(cluster=quick, **policy)
    for part in ("tensor", "pipeline", "data"):
        assert fast[part] == pytest.approx(slow[part] / 2)
    for part in ("compute", "recompute", "optimizer"):
        assert fast[part] == slow[part]


def test_doubling_layers_doubles_all_but_head_embedding_and_boundaries():
    twice = replace(MODEL, layers=2 * MODEL.layers)
    policy = {"tensor": 4, "pipeline": 4, "data": 4, "recompute": "full", "overlap": "none"}
    one, two, three = (seconds(model=replace(MODEL, layers=n * MODEL.layers), **policy) for n in (1, 2, 3))
    assert two["recompute"] == pytest.approx(2 * one["recompute"])
    assert two["pipeline"] == one["pipeline"]
    for part in PARTS:
        assert three[part] - two[part] == pytest.approx(two[part] - one[part]), part
    assert twice.flops > MODEL.flops


def test_doubling_the_batch_doubles_passes_and_leaves_once_a_step_alone():
    policy = {"tensor": 4, "pipeline": 4, "data": 4, "recompute": "full"}
    one, two = seconds(**policy), seconds(batch=1024, **policy)
    for part in ("compute", "recompute", "tensor", "pipeline"):
        assert two[part] == pytest.approx(2 * one[part])
    for part in ("bubble", "data", "optimizer"):
        assert two[part] == pytest.approx(one[part])


def test_doubling_hidden_and_heads_quadruples_products_and_doubles_tensor_traffic():
    large = Model(layers=32, hidden=16384, heads=128, sequence=2048, vocab=8)
    larger = replace(large, hidden=32768, heads=256)
    policy = {"tensor": 8, "data": 8, "overlap": "none"}
    no_latency = replace(SELENE, intra=replace(SELENE.intra, latency=0.0))
    one, two = (seconds(model=model, cluster=no_latency, **policy) for model in (large, larger))
    assert 3.5 < two["compute"] / one["compute"] < 4
    assert two["tensor"] == pytest.approx(2 * one["tensor"], rel=1e-3)
    assert two["optimizer"] == pytest.approx(4 * one["optimizer"], rel=1e-3)


def test_compute_is_bounded_by_the_peak():
    for hidden in (1024, 4096, 16384):
        model = replace(MODEL, hidden=hidden)
        p = predict(model, Policy(data=64, micro_batch=8), SELENE, global_batch=512)
        assert p.mfu < MEASURED.gemm_efficiency
        assert p.mfu == p.hfu
    full = predict(MODEL, Policy(data=64, recompute="full"), SELENE, global_batch=512)
    assert 1.2 < full.hfu / full.mfu < 4 / 3
    assert full.tflops_per_gpu == pytest.approx(312 * full.hfu)


def test_overlap_hides_and_hides_more():
    none, partial, full = (
        sum(seconds(tensor=4, pipeline=4, data=4, overlap=overlap).values()) for overlap in ("none", "partial", "full")
    )
    assert full < partial < none


def test_even_full_overlap_hides_a_boundary_only_behind_computing():
    slow = SELENE.with_inter(bandwidth=1e6)
    assert seconds(pipeline=8, data=8, overlap="full")["pipeline"] == 0
    policy = {"cluster": slow, "pipeline": 8, "data": 8}
    none, full = (seconds(overlap=overlap, **policy) for overlap in ("none", "full"))
    assert 0 < none["pipeline"] - full["pipeline"] < none["compute"]


@pytest.mark.parametrize("workers", [{}, {"workers": 8, "method": method("dsgd method.order=awc")}])
def test_no_second_of_computing_hides_two_messages(workers):
    """Of gradients, models sent ahead and weights that ZeRO-3 gathers, as much hides as there is to compute: these only
    behind layers, not behind the head and the embedding.
    """
    policy = {"cluster": SELENE.with_inter(bandwidth=1e8), "data": 64, "zero": 3, "micro_batch": 2} | workers
    none, full = (seconds(overlap=overlap, **policy) for overlap in ("none", "full"))
    hidden = {part: none[part] - full[part] for part in ("data", "workers")}
    assert 0.95 < sum(hidden.values()) / none["compute"] <= 1 + 1e-9
    assert (hidden["workers"] > 0) == bool(workers)


def test_local_models_are_whole_again_in_their_worker():
    """Ranks average pieces; without ZeRO nobody else gathers them."""
    policy = {"data": 64, "workers": 8, "method": method("local_sgd period=1"), "overlap": "none"}
    plain, sharded = (seconds(zero=zero, **policy)["workers"] for zero in (0, 1))
    weights = 2 * MODEL.parameters
    assert plain - sharded == pytest.approx(7 / 8 * weights / SELENE.intra.bandwidth, rel=0.01)


def test_fewer_cards_in_a_node_are_shared():
    four = replace(SELENE, nics=4)
    data = [seconds(cluster=c, data=64, overlap="none", tensor=1)["data"] for c in (SELENE, four)]
    assert 1.5 < data[1] / data[0] <= 2


def test_zero_3_moves_three_psi_where_others_move_two():
    latencies = replace(SELENE, intra=replace(SELENE.intra, latency=0.0), inter=replace(SELENE.inter, latency=0.0))
    model = replace(MODEL, tied_embeddings=False)
    policy = {"data": 64, "batch": 64, "overlap": "none", "precision": "fp16", "cluster": latencies, "model": model}
    moved = [seconds(zero=zero, **policy)["data"] for zero in (0, 1, 2, 3)]
    assert moved == pytest.approx([moved[0], moved[0], moved[0], 1.5 * moved[0]])


@pytest.mark.parametrize(
    ("options", "collectives"),
    [
        ({}, 3 * (32 + 1)),
        ({"unit": 4}, 3 * (8 + 1)),
        ({"unit": 5}, 3 * (7 + 1)),
        ({"unit": 1000}, 3 * (1 + 1)),
        ({"unit": 0}, 3 * (6 * 32 + 1)),
        ({"reshard": False}, 2 * (32 + 1)),
        ({"micro_batch": 2}, 3 * (32 + 1)),
        ({"batch": 128}, 2 * 3 * (32 + 1)),
    ],
)
def test_each_unit_of_zero_3_is_a_collective_and_a_ring_has_a_latency_for_every_other_rank(options, collectives):
    latencies = SELENE.with_inter(bandwidth=1e18, latency=1e-5)
    latencies = replace(latencies, intra=replace(latencies.intra, bandwidth=1e18))
    model = replace(MODEL, tied_embeddings=False)
    policy = {"batch": 64 * options.get("micro_batch", 1), "data": 64, "zero": 3, "overlap": "none"} | options
    found = seconds(model=model, cluster=latencies, **policy)["data"]
    assert found == pytest.approx(collectives * 63 * 1e-5, rel=1e-3)


def test_matrices_that_are_gathered_one_by_one_leave_a_node_by_one_card():
    quick = replace(SELENE, inter=replace(SELENE.inter, latency=0.0))
    policy = {"cluster": quick, "batch": 64, "data": 64, "zero": 3, "overlap": "none"}
    units, matrices = (seconds(unit=unit, **policy)["data"] for unit in (1, 0))
    assert matrices == pytest.approx(8 * units, rel=0.01)


def test_weights_are_fetched_one_unit_ahead_so_one_unit_alone_hides_nothing():
    policy = {"batch": 64, "data": 64, "zero": 3}
    whole, units = ([seconds(unit=u, overlap=o, **policy)["data"] for o in ("none", "full")] for u in (32, 1))
    assert whole[0] - whole[1] <= whole[0] / 2  # of two units, layers and embeddings, one is hidden
    assert units[0] - units[1] > 0.9 * units[0]


def test_periods_divide_what_workers_send():
    every, tenth = (
        seconds(data=64, workers=8, zero=1, method=method(f"local_sgd period={period}"), overlap="none")["workers"]
        for period in (1, 10)
    )
    assert tenth == pytest.approx(every / 10)


def test_gossip_does_not_grow_with_workers_and_gathered_messages_do():
    def workers(gpus: int, **policy) -> float:
        cluster = Cluster.named("a100_selene", gpus=gpus).with_inter(latency=0.0)
        return seconds(cluster=cluster, batch=gpus, data=gpus, workers=gpus // 8, overlap="none", **policy)["workers"]

    gossip, gathered = (
        [workers(g, **p) for g in (64, 256)]
        for p in (
            {"method": method("dsgd degree=1")},
            {"method": method("compressed_sgd compressor=top_k compressor.ratio=0.1")},
        )
    )
    assert gossip[0] == pytest.approx(gossip[1])
    assert gathered[1] > 3 * gathered[0]


SPARSE = "compressor=random_k compressor.ratio=0.01 compressor.shared=true"


@pytest.mark.parametrize("words", [f"compressed_sgd {SPARSE}", f"mem_sgd {SPARSE}", "power_sgd"])
def test_compression_pays_on_slow_links(words):
    slow = SELENE.with_inter(bandwidth=1.25e8)
    policy = {"cluster": slow, "data": 64, "workers": 8, "overlap": "none"}
    dense, sparse = seconds(**policy), seconds(method=method(words), **policy)
    assert sparse["workers"] < dense["workers"] / 10


LONG = replace(MODEL, sequence=65_536, flash_attention=True)
ISSUED = replace(MEASURED, kernel_seconds=0.0)


def split(context, model=LONG, cluster=SELENE, **policy) -> tuple[StepParts, Policies, PolicySetting]:
    """A micro-batch whose sequences are split over ranks."""
    one = Policies.of([Policy(context=context, **policy)])
    setting = PolicySetting(model, cluster, 64, ISSUED)
    return StepParts.of(one, setting), one, setting


@pytest.mark.parametrize("flash", [True, False])
def test_ranks_that_split_a_sequence_keep_as_much_as_for_a_short_one(flash):
    """But every part still sees the keys of all others: attention and its scores are c times those of the part."""
    model = replace(LONG, flash_attention=flash)
    short = replace(model, sequence=model.sequence // 4)
    (_, part, setting), (_, alone, whole) = split(4, model), split(1, short)
    plain = Policies.of([Policy(context=4, recompute="selective")]), Policies.of([Policy(recompute="selective")])
    assert layer_activations(plain[0], setting) == layer_activations(plain[1], whole)
    assert scores(part, setting) == 4 * scores(alone, whole)
    assert part.tokens(setting) == alone.tokens(whole)


def test_ranks_that_split_a_sequence_share_its_attention_and_pass_keys_and_values_round():
    """c - 1 messages of keys and values forward, twice as much backward; nothing is hidden."""
    (one, *_), (four, policies, setting) = split(1, tensor=2, overlap="none"), split(4, tensor=2, overlap="none")
    link, key = SELENE.intra, 2 * LONG.sequence / 4 * LONG.key_width / 2
    ring = 3 * (link.latency + 2 * key / link.bandwidth)
    assert ring_seconds(policies, setting) == pytest.approx(ring)
    tokens = replace(LONG, sequence=LONG.sequence // 4)
    between = tensor_seconds(Policies.of([Policy(tensor=2)]), PolicySetting(tokens, SELENE, 64, ISSUED))
    assert four.layer.tensor == pytest.approx(2 * between + 3 * ring)
    assert 4 * four.layer.forward == pytest.approx(one.layer.forward, rel=0.01)
    assert 4 * four.layer.backward == pytest.approx(one.layer.backward, rel=0.01)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_attention_hides_keys_and_values_on_their_way_unless_links_are_slow(recompute):
    slow = replace(SELENE, intra=replace(SELENE.intra, bandwidth=1e8))
    hidden, exposed = (split(4, cluster=on, overlap="full", recompute=recompute)[0].layer for on in (SELENE, slow))
    assert hidden.tensor == 0 < exposed.tensor
    passes = 1 + 2 + (recompute != "none")
    ring = ring_seconds(*split(4, cluster=slow)[1:])
    assert exposed.tensor + exposed.hidden_forward + exposed.hidden_backward == pytest.approx(passes * ring)


def test_states_are_shared_by_ranks_of_a_sequence_as_by_those_of_other_sequences():
    for zero in range(4):
        (split_, whole) = (
            predict(MODEL, Policy(tensor=4, zero=zero, **ranks), SELENE, global_batch=64).breakdown
            for ranks in ({"context": 4, "data": 4}, {"data": 16})
        )
        for part in ("weights", "gradients", "optimizer"):
            assert split_["bytes"][part] == whole["bytes"][part]
        assert split_["seconds"]["optimizer"] == whole["seconds"]["optimizer"]
    zero_0 = [seconds(tensor=4, overlap="none", **ranks)["data"] for ranks in ({"context": 4, "data": 4}, {"data": 16})]
    assert zero_0[0] == zero_0[1]


@pytest.mark.parametrize("reshard", [True, False])
def test_without_prefetch_weights_wait_and_more_units_ahead_hide_no_more(reshard):
    policy = {"batch": 128, "data": 64, "zero": 3, "overlap": "full", "reshard": reshard}
    none, one, four = (seconds(prefetch=depth, **policy) for depth in (0, 1, 4))
    assert one == four
    assert {part for part in one if one[part] != none[part]} == {"data"}
    roomy = replace(SELENE.with_latency(0, 0), gpu=replace(SELENE.gpu, peak_flops={"bf16": 1e9}))
    waiting, hidden = (seconds(prefetch=depth, cluster=roomy, **policy)["data"] for depth in (0, 1))
    exposed = seconds(cluster=roomy, **{**policy, "overlap": "none"})["data"]
    gathers = 2 * (1 + reshard) / (2 * (1 + reshard) + 4)  # weights are 16 bits, gradients fp32
    assert waiting - hidden == pytest.approx(gathers * (exposed - hidden))


def test_odd_vocabularies_are_slow():
    padded, odd = (seconds(model=replace(MODEL, vocab=vocab), data=64)["compute"] for vocab in (50304, 50257))
    assert odd > padded


def test_many_policies_take_the_calls_of_a_few():
    random = np.random.default_rng(0)
    some = [
        Policy(tensor=int(t), pipeline=int(p), data=int(64 // t // p), recompute=str(r))
        for t, p, r in zip(
            random.choice([1, 2, 4, 8], 100),
            random.choice([1, 2, 4, 8], 100),
            random.choice(["none", "selective", "full"], 100),
            strict=True,
        )
    ]
    few, many = (Policies.of(some)[np.arange(count) % 100] for count in (200, 10_000))
    estimate(MODEL, few, SELENE, 512)  # the first one imports
    _, least = calls(lambda: estimate(MODEL, few, SELENE, 512))
    found, count = calls(lambda: estimate(MODEL, many, SELENE, 512))
    assert len(many) == found.step_seconds.size == 10_000
    assert count < 2 * least  # not one for each policy
