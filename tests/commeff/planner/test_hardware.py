"""The pieces under a layer: products in tiles and waves, groups of ranks on shared links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from commeff.cluster import Cluster, FatTree, Rails, collectives
from commeff.cluster.groups import Groups
from commeff.experiments.planning.models import named
from commeff.planner import MEASURED, Model, Policies, Policy, predict
from commeff.planner.block import CAST, VECTOR, layer_pass
from commeff.planner.gemm import MULTIPROCESSORS, TILE, gemm_seconds, seconds_per_flop
from commeff.planner.model_part import ModelPart
from commeff.planner.policies import PolicySetting
from commeff.planner.traffic import (
    boundary_seconds,
    optimizer_seconds,
    sharing_seconds,
    tied_seconds,
)
from commeff.planner.worker_traffic import worker_traffic
from tests.commeff.planner.ways import method

SELENE = Cluster.named("a100_selene", gpus=64)
WAVE = MULTIPROCESSORS["A100"]
MODEL_8B = named("llama3-8b")
IDEAL = replace(MEASURED, gemm_ramp=0.0, kernel_seconds=0.0)


def product(rows: int, columns: int, inner: int, count: int = 1) -> float:
    return float(gemm_seconds(rows, columns, inner, count, SELENE.gpu, "fp16", IDEAL))


def test_large_products_run_at_the_rate_and_thin_ones_at_the_memory():
    full = 2.0 * (8 * TILE) * (WAVE * TILE) * 4096
    assert product(8 * TILE, WAVE * TILE, 4096) == pytest.approx(full * seconds_per_flop(SELENE.gpu, "fp16", IDEAL))
    moved = 2 * (2**14 * 8 + 8 * 2**14 + 2**28)
    assert product(2**14, 2**14, 8) == pytest.approx(moved / SELENE.gpu.memory_bandwidth / IDEAL.memory_efficiency)


def test_a_tile_more_costs_a_wave_and_edges_are_whole_tiles():
    one = product(9 * TILE, WAVE // 9 * TILE, 4096)
    assert product(9 * TILE, (WAVE // 9 + 1) * TILE, 4096) == 2 * one
    assert product(9 * TILE + 8, WAVE // 9 * TILE, 4096) == 2 * one
    assert product(9 * TILE, WAVE // 9 * TILE - 8, 4096) == one
    assert product(3 * TILE, 3 * TILE, 4096, count=WAVE // 9) == one
    assert product(90 * TILE, 10 * TILE + 8, 4096) == product(90 * TILE, 11 * TILE, 4096)


def test_every_product_has_its_two_gradients():
    """On whole waves and without element-wise work, backward is twice forward; a layer's FLOPs are the model's."""
    exact = replace(IDEAL, memory_efficiency=1e9)
    cluster = replace(SELENE, gpu=replace(SELENE.gpu, memory_bandwidth=1e30, name="any"))
    model = Model(2, 4096, 32, 2048, 1024)
    layer = layer_pass(Policies.of([Policy()]), PolicySetting(model, cluster, 1, exact))
    assert layer.forward[0] == pytest.approx(model.layer_flops * seconds_per_flop(cluster.gpu, "bf16", exact))
    assert layer.backward[0] == pytest.approx(2 * layer.forward[0])
    flash = layer_pass(Policies.of([Policy()]), PolicySetting(replace(model, flash_attention=True), cluster, 1, exact))
    saved = model.attention_flops / 2 * seconds_per_flop(cluster.gpu, "bf16", exact)
    vector = VECTOR * model.heads * model.sequence**2 / 2 / cluster.gpu.peak_flops["fp32"]
    assert layer.forward[0] - flash.forward[0] == pytest.approx(saved - vector)
    # four whole products, and of the half that a mask leaves those four and the scores once more
    assert layer.backward[0] - flash.backward[0] == pytest.approx(1.5 * saved - 2 * vector)


def attention(width: int, flash: bool) -> float:
    """Seconds of one layer forward, beside those of a layer with heads of 64."""
    model = Model(2, 4096, 32, 8192, 1024, flash_attention=flash)
    setting = PolicySetting(model, SELENE, 1, IDEAL)
    narrow, wide = (
        layer_pass(Policies.of([Policy()]), setting._replace(model=replace(model, head_dim=w))).forward[0]
        - sum(product(8192, columns, inner) for columns, inner in ((3 * 32 * w, 4096), (4096, 32 * w)))
        - 4 * 8192 * 32 * w / setting.memory_rate  # the context is laid out anew
        for w in (64, width)
    )
    return float(wide - narrow)


def test_heads_of_odd_widths_cost_what_misaligned_products_cost():
    assert attention(100, flash=True) == pytest.approx(attention(128, flash=True), rel=1e-6)
    assert 0 < attention(96, flash=True) < attention(128, flash=True)
    assert attention(100, flash=False) > 1.5 * attention(104, flash=False) > 0


def test_fp8_is_for_matrices_with_weights_which_pay_for_their_casts():
    cluster = Cluster.named("h100_400g", gpus=8)
    layers = [
        layer_pass(Policies.of([Policy(data=8, precision=precision)]), PolicySetting(MODEL_8B, cluster, 8))
        for precision in ("bf16", "fp8")
    ]
    wide, narrow = (float(layer.forward[0]) for layer in layers)
    linear = MODEL_8B.layer_flops - MODEL_8B.attention_flops
    rates = [seconds_per_flop(cluster.gpu, precision, MEASURED) for precision in ("bf16", "fp8")]
    assert 0 < wide - narrow < linear * (rates[0] - rates[1])
    reached = [
        predict(MODEL_8B, Policy(data=64, zero=3, precision=precision), cluster.with_gpus(64), global_batch=64)
        for precision in ("bf16", "fp8")
    ]
    assert 1 < reached[1].tflops_per_gpu / reached[0].tflops_per_gpu < 1.6
    assert reached[1].tflops_per_gpu < 800


def test_casts_to_fp8_are_of_inputs_and_weights_forward_and_of_gradients_of_outputs_backward():
    """On a GPU whose products are no faster in fp8."""
    gpu = Cluster.named("h100_400g").gpu
    gpu = replace(gpu, peak_flops={**gpu.peak_flops, "fp8": gpu.peak_flops["bf16"]})
    cluster, equal = replace(Cluster.named("h100_400g", gpus=8), gpu=gpu), replace(IDEAL, operand_ratio=1e12)
    setting = PolicySetting(MODEL_8B, cluster, 8, equal)
    wide, narrow = (
        layer_pass(Policies.of([Policy(data=8, precision=precision)]), setting) for precision in ("bf16", "fp8")
    )
    h, s, keys, inner = MODEL_8B.hidden, MODEL_8B.sequence, MODEL_8B.key_width, MODEL_8B.ffn_width
    read, written, weights = (
        3 * h + inner,
        3 * h + 2 * (keys + inner),
        MODEL_8B.attention_weights + MODEL_8B.ffn_weights,
    )
    assert narrow.forward[0] - wide.forward[0] == pytest.approx(CAST * (s * read + weights) / setting.memory_rate)
    assert narrow.backward[0] - wide.backward[0] == pytest.approx(CAST * s * written / setting.memory_rate)


@pytest.mark.parametrize("sequence", [2048, 65536, 2**20])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_no_gpu_does_more_than_its_peak(sequence, recompute):
    ideal = replace(IDEAL, gemm_efficiency=1.0, operand_ratio=1e9)
    model = replace(MODEL_8B, sequence=sequence)
    for precision in ("bf16", "fp8"):
        policy = Policy(tensor=8, recompute=recompute, precision=precision, overlap="full")
        found = predict(model, policy, Cluster.named("h100_400g", gpus=8), global_batch=1, constants=ideal)
        assert found.mfu <= found.hfu < 1


def test_recomputation_repeats_the_forward_pass_with_its_collectives():
    model = Model(32, 8192, 64, 2048, 51200)
    policies = [Policy(tensor=8, recompute=recompute, overlap="none") for recompute in ("none", "selective", "full")]
    layer = layer_pass(Policies.of(policies), PolicySetting(model, SELENE, 1))
    none, selective, full = layer.recomputed
    assert none == 0 < selective < full == layer.forward[0]
    assert layer.tensor.tolist() == pytest.approx([layer.tensor[0], layer.tensor[0], 1.5 * layer.tensor[0]])


def test_a_group_rings_through_all_the_cards_of_its_nodes():
    sizes, strides = np.array([8, 16, 8]), np.array([1, 1, 8])
    groups = Groups.strided(SELENE, sizes, strides)
    assert groups.inside.tolist() == [8, 8, 1]
    moved = collectives.reduce_scatter(groups, 1e9, "ring")
    rates = [SELENE.intra.rate, 8 * SELENE.inter.rate, SELENE.inter.rate]
    latencies = [SELENE.intra.latency, SELENE.inter.latency, SELENE.inter.latency]
    expected = [(n - 1) * (1e9 / n / b + alpha) for n, b, alpha in zip(sizes, rates, latencies, strict=True)]
    assert moved.tolist() == pytest.approx(expected)
    assert collectives.all_reduce(groups, 1e9, "ring").tolist() == pytest.approx((2 * moved).tolist())


@pytest.mark.parametrize(
    ("gpus", "size", "stride"),
    [(24, 3, 1), (24, 3, 8), (24, 6, 1), (24, 2, 3), (48, 8, 6), (64, 16, 2), (64, 4, 2), (6, 3, 2), (120, 5, 24)],
)
def test_the_group_with_fewest_members_in_a_node_is_the_slowest(gpus, size, stride):
    cluster = Cluster.named("a100_selene", gpus=gpus)
    blocks = np.arange(gpus).reshape(-1, size, stride).transpose(0, 2, 1).reshape(-1, size)
    together = [np.unique(group // cluster.per_node, return_counts=True)[1] for group in blocks]
    groups = Groups.strided(cluster, np.array([size]), np.array([stride]))
    assert (groups.inside[0] < size) == any(len(counts) > 1 for counts in together)
    assert groups.inside[0] == max(1, min(counts.min() for counts in together))


def test_tied_embeddings_meet_inside_a_node_if_all_stages_are_in_it():
    model = Model(32, 4096, 32, 2048, 51200)
    inside, across = (
        tied_seconds(
            Policies.of([Policy(pipeline=4, data=gpus // 4)]),
            PolicySetting(model, Cluster.named("a100_selene", gpus=gpus), 8),
        )
        for gpus in (8, 16)
    )
    size = 4.0 * model.embedding_parameters
    assert inside == pytest.approx(size / SELENE.intra.rate + 2 * SELENE.intra.latency)
    assert across == pytest.approx(size / SELENE.inter.rate + 2 * SELENE.inter.latency)


@pytest.mark.parametrize(("nodes", "slower"), [(2, 2), (4, 1), (6, 1)])
def test_tied_embeddings_cross_a_switch_unless_all_is_under_it(nodes, slower):
    model, cluster = Model(32, 4096, 32, 2048, 51200), SELENE.with_gpus(32)
    cluster = replace(cluster, network=Rails(FatTree((nodes,), (1,))))
    policies = Policies.of([Policy(pipeline=4, data=8)])
    expected = slower * 4.0 * model.embedding_parameters / SELENE.inter.rate + 2 * SELENE.inter.latency
    assert tied_seconds(policies, PolicySetting(model, cluster, 8)) == pytest.approx(expected)


def test_alone_nobody_talks():
    one = Groups.strided(SELENE, np.array([1]), np.array([1]))
    operations = (collectives.all_reduce, collectives.all_gather, collectives.reduce_scatter, collectives.neighbours)
    assert [float(operation(one, 1e9)[0]) for operation in operations] == [0.0] * 4


def test_a_stage_sends_its_tensor_in_parts_that_are_gathered_unless_sequences_stay_split():
    model = Model(32, 4096, 32, 2048, 51200)
    policies = Policies.of(
        [
            Policy(tensor=8, pipeline=8),
            Policy(tensor=8, pipeline=8, sequence_parallel=True),
            Policy(tensor=1, pipeline=8, data=8),
        ]
    )
    plain, split, whole = boundary_seconds(policies, PolicySetting(model, SELENE, 64))
    size = 2 * model.sequence * model.hidden
    assert split == pytest.approx(size / 8 / SELENE.inter.bandwidth + SELENE.inter.latency)
    assert whole == pytest.approx(size / SELENE.inter.bandwidth + SELENE.inter.latency)
    gather = 7 / 8 * size / SELENE.intra.bandwidth + 7 * SELENE.intra.latency
    assert plain == pytest.approx(split + gather)


def test_zero_shards_what_the_optimizer_reads_and_who_sends_which_gradients():
    """ZeRO-1 steps on its own share of the parameters; its gradients are scattered, its weights gathered."""
    parameters, shards = np.array([1e9]), 8
    setting = PolicySetting(Model(32, 4096, 32, 2048, 51200), SELENE, 4 * shards)
    plain, sharded = (Policies.of([Policy(data=shards, zero=zero)]) for zero in (0, 1))
    whole, part = (optimizer_seconds(policies, setting, parameters, np.zeros(1))[0] for policies in (plain, sharded))
    assert part == pytest.approx(whole / shards)
    groups = Groups.strided(SELENE, np.array([shards]), 1)
    dense, scattered = (sharing_seconds(p, setting, parameters, 0 * parameters).gradients[0] for p in (plain, sharded))
    assert dense == pytest.approx(collectives.all_reduce(groups, 4e9)[0])
    gradients, weights = (collectives.reduce_scatter(groups, size * 1e9)[0] for size in (4, 2))
    assert scattered == pytest.approx(gradients + weights)


@pytest.mark.parametrize(("degree", "receivers"), [(1, 1), (2, 2)])
def test_gossip_sends_to_each_of_its_neighbours(degree, receivers):
    policies = Policies.of([Policy(data=8, workers=8, method=method(f"dsgd degree={degree}"), zero=1)])
    model, cluster = Model(8, 1024, 8, 512, 51200), Cluster.named("a100_selene", gpus=8)
    layers, embeddings = np.array([8]), np.array([1])
    found = worker_traffic(policies, PolicySetting(model, cluster, 8), layers, embeddings, np.array([0.0]))
    size = 2.0 * ModelPart(1, 8, 1).layout(model).d
    assert found.exposed[0] == pytest.approx(receivers * size / cluster.intra.rate + cluster.intra.latency)
