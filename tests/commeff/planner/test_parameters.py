"""What is counted: parameters, FLOPs, bytes of states and activations."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from commeff.cluster import Cluster
from commeff.experiments.planning.models import named
from commeff.planner import MEASURED, Model, Policy, predict
from commeff.planner.memory import COMMUNICATOR, layer_activations
from commeff.planner.policies import BUCKET, Policies, PolicySetting
from tests.commeff.planner.ways import method

GPT = Model(layers=24, hidden=2048, heads=16, sequence=1024, vocab=51200)
GIB = 2**30


def held(model: Model, batch: int = 64, gpus: int = 8, **policy) -> dict[str, float]:
    p = predict(model, Policy(**policy), Cluster.named("a100_selene", gpus=gpus), global_batch=batch)
    assert sum(p.breakdown["bytes"].values()) == pytest.approx(p.memory_bytes)
    return p.breakdown["bytes"]


def test_published_models_have_their_published_parameters():
    llama = [(32, 4096, 11008, 6_738_415_616), (40, 5120, 13824, 13_015_864_320), (80, 8192, 22016, 65_285_660_672)]
    for layers, hidden, ffn, count in llama:
        model = Model(layers, hidden, hidden // 128, 2048, 32000, ffn_hidden=ffn, gated=True, tied_embeddings=False)
        assert model.parameters == count
    llama2_70b = Model(80, 8192, 64, 4096, 32000, kv_heads=8, ffn_hidden=28672, gated=True, tied_embeddings=False)
    assert llama2_70b.parameters == 68_976_648_192
    assert Model(12, 768, 12, 1024, 50257).parameters == 124_439_808  # GPT-2 small


def test_flops_are_the_formulas_of_megatron():
    layers, h, s, vocab = 80, 12288, 2048, 51200
    model = Model(layers, h, 96, s, vocab)
    hardware = model.flops + model.recomputed_flops("full")
    assert hardware == pytest.approx(96 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (16 * layers * h)))
    selective = model.flops + model.recomputed_flops("selective")
    core = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocab / (12 * layers * h)) + 4 * layers * s**2 * h
    assert selective == pytest.approx(core)


@pytest.mark.parametrize(("t", "split"), [(1, False), (4, False), (4, True), (8, True)])
def test_activations_are_table_2_of_korthikanti(t, split):
    model, b = Model(24, 4096, 32, 2048, 51200), 2
    s, h, a = model.sequence, model.hidden, model.heads
    setting = PolicySetting(model, Cluster.named("a100_selene"), 64)
    policies = Policies.of([Policy(tensor=t, micro_batch=b, sequence_parallel=split)])
    expected = s * b * h * ((34 + 5 * a * s / h) / t if split else 10 + 24 / t + 5 * a * s / (h * t))
    assert layer_activations(policies, setting) == pytest.approx(expected)
    without = Policies.of([Policy(tensor=t, micro_batch=b, sequence_parallel=split, recompute="selective")])
    assert layer_activations(without, setting) == pytest.approx(expected - 5 * a * s * s * b / t)
    flash = setting._replace(model=replace(model, flash_attention=True))
    assert layer_activations(policies, flash) == layer_activations(without, setting)


def test_states_are_18_bytes_a_parameter_and_zero_divides_them():
    states = {zero: held(GPT, data=8, zero=zero) for zero in (0, 1, 2, 3)}
    plain, bucket = states[0], 4 * BUCKET
    own = plain["gradients"] - bucket
    assert plain["weights"] * 9 == pytest.approx(plain["weights"] + own + plain["optimizer"])
    assert plain["weights"] == pytest.approx(2 * GPT.parameters, rel=1e-5)  # the last norm is not placed
    assert states[1] == {**plain, "optimizer": plain["optimizer"] / 8}
    ends = GPT.embedding_parameters + GPT.sequence * GPT.hidden
    assert states[2] == pytest.approx({**states[1], "gradients": own / 8 + bucket})
    scattered = {**states[1], "gradients": own / 8 + 7 / 8 * 4 * max(GPT.layer_parameters, ends)}
    gathered = 2 * (2 * GPT.layer_parameters + ends)
    assert states[3] == pytest.approx({**scattered, "weights": plain["weights"] / 8 + gathered})


@pytest.mark.parametrize("unit", [0, 1, 3, 24])
@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("pipeline", [1, 4, 24])
def test_zero_3_exceeds_zero_2_by_its_own_shards_at_most(unit, reshard, pipeline):
    """It gathers no more layers than a stage has."""
    shape = {"gpus": 4 * pipeline, "pipeline": pipeline, "data": 4}
    two, three = held(GPT, zero=2, **shape), held(GPT, zero=3, unit=unit, reshard=reshard, **shape)
    shards = held(GPT, zero=0, **shape)["weights"] / 4
    assert three["weights"] <= (two["weights"] + shards) * (1 + 1e-12)
    if unit <= 1:
        assert sum(three.values()) <= (sum(two.values()) + shards) * (1 + 1e-12)
    if not reshard:
        assert three["weights"] == pytest.approx(two["weights"] + shards)


@pytest.mark.parametrize("unit", [0, 1, 3])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_each_unit_that_is_prefetched_lies_in_memory_up_to_the_layers_of_a_stage(unit, pipeline):
    shape = {"gpus": 4 * pipeline, "pipeline": pipeline, "data": 4, "zero": 3, "unit": unit}
    weights = [held(GPT, prefetch=depth, **shape)["weights"] for depth in range(30)]
    layers, at_once = GPT.layers // pipeline, max(unit, 1)
    gathered = [2 * GPT.layer_parameters * min((1 + depth) * at_once, layers) for depth in range(30)]
    assert np.diff(weights) == pytest.approx(np.diff(gathered))
    assert weights[-1] == held(GPT, reshard=False, **shape)["weights"]


def test_fp32_shards_are_their_own_masters():
    """16 bytes a parameter: 70B takes 140, 70 and 35 GB on 8, 16 and 32 GPUs, without what is gathered."""
    narrow, wide = (held(GPT, data=8, zero=3, fp32_parameters=wide) for wide in (False, True))
    count = narrow["optimizer"] * 8 / 12
    assert wide["optimizer"] == pytest.approx(8 * count / 8)
    assert wide["weights"] - narrow["weights"] == pytest.approx((4 - 2) * count / 8)
    assert wide["gradients"] == narrow["gradients"]
    model = named("llama2-70b")
    for gpus, gigabytes in ((8, 140), (16, 70), (32, 35)):
        policy = Policy(data=gpus, zero=3, precision="fp32")
        parts = predict(model, policy, Cluster.named("a100_selene", gpus=gpus), global_batch=gpus).breakdown["bytes"]
        gathered = 4 * (2 * model.layer_parameters + 2 * model.embedding_parameters)
        unit = 4 * max(model.layer_parameters, 2 * model.embedding_parameters) * (1 - 1 / gpus)
        states = parts["weights"] + parts["gradients"] + parts["optimizer"] - gathered - unit
        assert states / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_llama_2_70b_under_zero_3_needs_more_than_16_gpus_of_80_gb():
    """Its states alone are 1.1 TB; all layers are recomputed."""
    for gpus, gib in ((16, 89.5), (32, 53.4)):
        cluster, policy = Cluster.named("a100_selene", gpus=gpus), Policy(data=gpus, zero=3, recompute="full")
        price = predict(named("llama2-70b"), policy, cluster, global_batch=gpus)
        assert price.fits == (gpus == 32)
        assert price.memory_bytes / 2**30 == pytest.approx(gib, abs=0.1)


def test_llama_2_7b_fits_eight_gpus_under_fsdp():
    for options in ({}, {"fp32_parameters": True}, {"reshard": False}):
        policy = Policy(data=8, zero=3, **options)
        assert predict(named("llama2-7b"), policy, Cluster.named("a100_selene", gpus=8), global_batch=8).fits


def test_zero_shares_within_a_worker_only():
    apart = held(GPT, data=8, workers=4, method=method("local_sgd period=8"), zero=1)
    assert apart["optimizer"] == pytest.approx(4 * held(GPT, data=8, zero=1)["optimizer"])


def test_methods_remember_what_they_say():
    weights = held(GPT, data=8)["weights"]
    expected = {"psgd": 0, "local_sgd": 0, "dsgd": 0, "diloco": 4, "mem_sgd compressor=top_k": 2}
    for words, factor in expected.items():
        workers = 1 if words == "psgd" else 8
        remembered = held(GPT, data=8, workers=workers, method=method(words))["method"]
        assert remembered == pytest.approx(factor * weights, rel=2e-3)  # of all but positions


def test_memory_falls_with_recomputation_splits_and_offloading():
    choices = [
        {"recompute": "none"},
        {"recompute": "selective"},
        {"recompute": "full"},
        {"recompute": "full", "partition_checkpoints": True},
        {"recompute": "full", "offload_checkpoints": True},
    ]
    sizes = [held(GPT, tensor=8, micro_batch=8, **choice)["activations"] for choice in choices]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_one_layer_at_a_time_is_whole_while_it_goes_backward():
    """Selective recomputation has the scores of that layer again, 5 bytes each, and full recomputation all of it."""
    one = replace(GPT, layers=1)
    none, selective, full = (held(one, tensor=8, recompute=r)["activations"] for r in ("none", "selective", "full"))
    assert selective == pytest.approx(none)
    inputs = 2 * GPT.sequence * GPT.hidden
    written = GPT.heads * GPT.sequence**2 / 8
    gradients = max(4 * written, 4 * GPT.ffn_width * GPT.sequence / 8) + 2 * inputs + 2 * written
    masks = GPT.sequence * GPT.hidden
    setting = PolicySetting(one, Cluster.named("a100_selene", gpus=8), 64)
    assert none == pytest.approx(layer_activations(Policies.of([Policy(tensor=8)]), setting)[0] + gradients + masks)
    assert full == pytest.approx(none + inputs)


def test_split_sequences_are_whole_once_gathered_and_once_before_they_are_scattered():
    """The gradients of b s h numbers, 4 bytes, are split too; scores, which a flash kernel has not, need no buffer."""
    model = replace(GPT, layers=1, flash_attention=True)
    whole, split = (held(model, tensor=8, sequence_parallel=on)["activations"] for on in (False, True))
    hidden, ranks = GPT.sequence * GPT.hidden, 8
    kept = 10 + 4 + 1  # of a layer, gradients, and a mask of the embedding
    assert split - whole == pytest.approx((4 - kept * (1 - 1 / ranks)) * hidden)
    alone = [held(model, data=8, sequence_parallel=on)["activations"] for on in (False, True)]
    assert alone[0] == alone[1]


@pytest.mark.parametrize("flash", [False, True])
def test_fp8_keeps_the_inputs_of_matrices_in_one_byte_and_copies_of_weights_on_demand(flash):
    model = replace(GPT, flash_attention=flash)
    cluster, shape = Cluster.named("h100_400g", gpus=8), {"tensor": 2, "data": 4}

    def parts(**policy) -> dict[str, float]:
        return predict(model, Policy(**shape, **policy), cluster, global_batch=64).breakdown["bytes"]

    wide, narrow, copied = parts(), parts(precision="fp8"), parts(precision="fp8", fp8_copies=True)
    inputs = GPT.layers * GPT.sequence * (2 * GPT.hidden + GPT.query_width / 2 + GPT.ffn_width / 2)
    contexts = GPT.layers * GPT.sequence * GPT.query_width  # 2 bytes, and half of the heads
    assert wide["activations"] - narrow["activations"] == pytest.approx(inputs - flash * contexts)
    assert narrow["weights"] == wide["weights"]
    layers = 2 * GPT.layers * GPT.layer_parameters / 2
    assert copied["weights"] - narrow["weights"] == pytest.approx(layers, rel=1e-3)
    units = [parts(precision="fp8", fp8_copies=on, zero=3)["weights"] for on in (False, True)]
    assert units[1] - units[0] == pytest.approx(2 * layers / GPT.layers, rel=1e-3)


def test_each_micro_batch_in_flight_has_its_mask_of_the_embedding():
    """Where logits are few, the first stage is the fullest; GPipe keeps the output of all micro-batches, in 16 bits."""
    model = replace(GPT, vocab=128)
    few, many = (held(model, gpus=2, batch=m, pipeline=2, schedule="gpipe")["activations"] for m in (4, 8))
    setting = PolicySetting(model, Cluster.named("a100_selene", gpus=2), 8)
    layers = model.layers / 2 * layer_activations(Policies.of([Policy(pipeline=2)]), setting)[0]
    assert many - few == pytest.approx(4 * (layers + (1 + 2) * model.sequence * model.hidden))


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_every_kth_layer_recomputed_lies_between_all_and_none(recompute):
    none, *some = (
        predict(GPT, Policy(tensor=8, micro_batch=4, **choice), Cluster.named("a100_selene"), global_batch=64)
        for choice in ({}, *({"recompute": recompute, "recompute_every": k} for k in (1, 2, 4)))
    )
    kept = [p.breakdown["bytes"]["activations"] for p in some]
    again = [p.breakdown["seconds"]["recompute"] for p in some]
    assert kept == sorted(kept)
    assert again == pytest.approx([again[0], again[0] / 2, again[0] / 4])
    flops = [p.hfu * p.step_seconds - p.mfu * p.step_seconds for p in some]
    assert flops == pytest.approx([flops[0], flops[0] / 2, flops[0] / 4])
    whole = GPT.layers * (kept[1] - kept[0]) * 2 / GPT.layers
    assert kept[2] - kept[1] == pytest.approx(whole / 4)
    assert some[-1].step_seconds > none.step_seconds


def test_the_first_stages_alone_recompute_and_the_fullest_stage_is_the_first_that_does_not():
    """LLaMA-2 13B in eight stages: where nothing is recomputed it does not fit, and recomputed everywhere it does. One
    stage is enough, and faster.
    """
    model, cluster, some = named("llama2-13b"), Cluster.named("a100_selene", gpus=8), {"pipeline": 8, "micro_batch": 2}
    policies = [Policy(**some, recompute="full", recompute_stages=k) for k in (1, 2, 3, 7, 0)]
    none, *few, every = (predict(model, policy, cluster, global_batch=64) for policy in (Policy(**some), *policies))
    assert (none.fits, every.fits) == (False, True)
    assert few[0].fits
    assert few[0].step_seconds < 0.9 * every.step_seconds
    assert [p.step_seconds for p in (*few, every)] == sorted(p.step_seconds for p in (*few, every))
    kept = layer_activations(Policies.of([Policy(**some)]), PolicySetting(model, cluster, 64))[0] * 5  # of a stage
    output = 2 * 2 * model.sequence * model.hidden
    masks = 8 * output / 2  # of the embedding, on the first stage alone
    held = [p.breakdown["bytes"]["activations"] for p in (none, *few[:3])]
    assert held[0] - masks - held[1] == pytest.approx(kept + output)  # of one micro-batch less in flight
    assert [left - more for left, more in pairwise(held[1:])] == pytest.approx([kept + output] * 2)
    flops = [p.hfu * p.step_seconds - p.mfu * p.step_seconds for p in (*few, every)]
    assert flops == pytest.approx([flops[-1] * k / 8 for k in (1, 2, 3, 7, 8)])


def test_every_chunk_of_a_recomputing_stage_is_computed_again():
    policy = Policy(pipeline=2, chunks=2, schedule="interleaved", stages=(9, 6, 5, 4), recompute="full")
    some, every = (
        predict(GPT, replace(policy, recompute_stages=k), Cluster.named("a100_selene", gpus=2), global_batch=8)
        for k in (1, 0)
    )
    again = [p.step_seconds * (p.hfu - p.mfu) for p in (some, every)]
    assert again[0] == pytest.approx(again[1] * 14 / 24)


def test_logits_are_kept_in_16_bits_in_32_and_as_their_softmax_in_as_many_pieces_as_said():
    whole, pieces = (held(GPT, data=8, micro_batch=2, loss_chunks=n)["logits"] for n in (1, 4))
    tokens = 2 * GPT.sequence
    assert whole == tokens * (10 * GPT.vocab + 4 * GPT.hidden)
    assert pieces == tokens * (10 * GPT.vocab / 4 + 4 * GPT.hidden)


def test_no_fragments_are_counted_unless_a_share_is_given():
    none, some = (held(GPT, data=8, **choice) for choice in ({}, {"fragmentation": 0.1}))
    assert sum(some.values()) == pytest.approx(1.1 * sum(none.values()))
    assert {**some, "reserve": none["reserve"]} == none


def test_every_axis_of_ranks_has_a_communicator():
    choices = ({"gpus": 1}, {"data": 8}, {"tensor": 4, "data": 2}, {"tensor": 2, "pipeline": 2, "data": 2})
    sizes = [held(GPT, **choice)["reserve"] for choice in choices]
    assert sizes == [MEASURED.reserve_bytes + COMMUNICATOR * count for count in (0, 1, 4, 5)]


@pytest.mark.parametrize("schedule", ["naive", "gpipe", "1f1b", "interleaved", "zero_bubble"])
def test_memory_never_falls_with_more_micro_batches_in_flight(schedule):
    chunks = 2 if schedule == "interleaved" else 1
    sizes = [
        held(GPT, batch=batch, gpus=4, pipeline=4, schedule=schedule, chunks=chunks)["activations"]
        for batch in (4, 8, 16, 64)
    ]
    assert sizes == sorted(sizes)
    assert (sizes[-1] > 4 * sizes[1]) == (schedule == "gpipe")


def test_a_tensor_group_above_the_heads_of_keys_replicates_them():
    model = Model(8, 4096, 32, 2048, 32000, kv_heads=4, gated=True)
    four, eight = (held(model, tensor=t, data=8 // t)["weights"] / 2 for t in (4, 8))
    keys = 2 * model.layers * model.hidden * model.key_width
    assert four - eight == pytest.approx((four * 4 - keys) / 8)  # all but keys and values halve


def test_gpt3_sizes_are_within_3_percent_and_llama_estimates_exact():
    from commeff.experiments.studies.planner import lectures

    assert lectures.gpt3().error_pct.abs().max() < 3
    llama = lectures.llama()
    assert (llama.estimate == llama.estimate_printed).all()
    memory = lectures.memory()
    rounded = memory.case.str.contains("rounds")
    assert (memory.ours / memory.printed - 1)[~rounded].abs().max() < 0.005
    assert memory.ours[rounded].tolist() == pytest.approx([64], rel=0.025)
