"""`commeff plan --emit`: flags that give the policy back, and no flags for what a framework does not do."""

from __future__ import annotations

import math

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.planning.emit import FRAMEWORKS
from commeff.experiments.planning.question import read_question
from tests.experiments.planning.test_plan import plan

LLAMA = ["model=llama3-8b", "gpus=64", "global_batch=128"]
POLICIES = [
    ["tensor=8", "pipeline=4", "sequence_parallel=true", "zero=2"],
    ["zero=3", "recompute=full", "workers=8"],
    ["zero=2", "context=4", "tensor=2", "sequence_parallel=true"],
    ["tensor=2", "pipeline=4", "schedule=interleaved", "chunks=2", "zero=2", "sequence_parallel=true", "micro_batch=2"],
]


def emitted(framework: str, *words: str) -> dict[str, str]:
    """What flags say, by name; "" of a switch."""
    question = read_question([*LLAMA, *words])
    flags = FRAMEWORKS[framework](question, question.one())
    pairs = [flag.removeprefix("--").replace(" ", "=", 1).partition("=") for flag in flags]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("words", POLICIES)
def test_flags_give_the_ranks_and_the_batches_back(words):
    policy = read_question([*LLAMA, *words]).one()
    titan, megatron = (emitted(framework, *words) for framework in ("torchtitan", "megatron"))
    kinds = [name for name in titan if name.startswith("parallelism.") and name.endswith("_degree")]
    ranks = {name: int(titan[name]) for name in kinds}
    assert policy.gpus == 64
    product = 1
    for degree in ranks.values():
        product *= degree
    assert product == 64
    passes = 128 // int(titan["training.local_batch_size"]) // policy.data
    assert passes == (1 if policy.pipeline > 1 else 128 // policy.data // policy.micro_batch)
    splits = [int(megatron.get(f"{name}-parallel-size", 1)) for name in ("tensor-model", "context", "pipeline-model")]
    assert math.prod(splits) * policy.data == 64
    assert ("use-distributed-optimizer" in megatron) == (policy.zero > 0)
    if policy.context > 1:
        return
    ours = emitted("commeff", *words)
    config = compose([f"{name}={value}" for name, value in ours.items()])
    assert config["nproc"] == 64
    assert config["micro_batches"] * policy.micro_batch * policy.data == 128
    assert config["zero"] == policy.zero
    assert config["precision"] == ("bf16_reduce_fp32" if policy.data > policy.workers else "bf16")
    assert emitted("commeff", *words, "precision=fp16")["precision"] == "fp16"


def test_megatron_is_told_who_splits_the_heads_of_attention():
    assert "cp-comm-type" not in emitted("megatron", "context=4")
    assert "cp-comm-type" not in emitted("megatron", "context_by=all_to_all")
    assert emitted("megatron", "context=4", "context_by=all_to_all", "tensor=2")["cp-comm-type"] == "a2a"


@pytest.mark.parametrize(
    ("framework", "words", "said"),
    [
        ("torchtitan", ["tensor=2", "zero=2"], "sequence_parallel of torchtitan must be"),
        ("torchtitan", ["zero=1"], "zero of torchtitan must be 0 or 2 or 3"),
        ("torchtitan", ["pipeline=4"], "zero of torchtitan must be 2 or 3"),
        ("megatron", ["recompute=full", "offload_checkpoints=true"], "offload_checkpoints of megatron must be False"),
        ("torchtitan", ["method=diloco"], "method must be psgd with torchtitan"),
        ("megatron", ["pipeline=4", "schedule=gpipe"], "schedule of megatron must be"),
        ("torchtitan", ["pipeline=4", "zero=2", "stages=9,9,9,5"], "stages must be equal with torchtitan"),
        ("commeff", ["pipeline=4", "stages=9,9,9,5"], "stages must be equal with commeff"),
        ("torchtitan", ["zero=3", "unit=4"], "unit of torchtitan must be 1, got 4"),
        ("megatron", ["zero=3", "reshard=false"], "reshard of megatron must be True"),
        ("megatron", ["zero=3", "fp32_parameters=true"], "fp32_parameters of megatron must be False"),
        ("megatron", ["recompute=full", "recompute_every=2"], "recompute_every of megatron must be 1"),
        (
            "megatron",
            ["recompute=full", "pipeline=4", "recompute_stages=2"],
            "recompute_stages of megatron must be 0, got 2",
        ),
        (
            "commeff",
            ["recompute=full", "offload_checkpoints=true", "partition_checkpoints=true"],
            "partition_checkpoints of commeff must be False",
        ),
        (
            "commeff",
            ["recompute=full", "tensor=2", "sequence_parallel=true", "partition_checkpoints=true"],
            "partition_checkpoints of commeff must be False",
        ),
        ("torchtitan", ["zero=3", "loss_chunks=8"], "loss_chunks of torchtitan must be 1"),
        ("commeff", ["context=2", "context_by=all_to_all"], "context of commeff must be 1, got 2"),
        ("torchtitan", ["zero=2", "context=2", "context_by=all_to_all"], "context_by of torchtitan must be ring"),
        ("megatron", ["context=16", "context_by=all_to_all"], "must divide kv_heads=8, got 1 x 16"),
        ("torchtitan", ["zero=3", "prefetch=2"], "prefetch of torchtitan must be 1, got 2"),
        ("torchtitan", ["context=2"], "zero of torchtitan must be 2 or 3"),
        ("commeff", ["pipeline=4", "schedule=zero_bubble"], "schedule of commeff must be"),
        ("commeff", ["hidden=8192", "ffn_hidden=14336"], "a preset of `commeff train`"),
    ],
)
def test_what_a_framework_has_no_flags_for_is_refused(framework, words, said):
    assert said in plan(*LLAMA, *words, "--emit", framework, code=2).stderr


MIXTRAL = ["model=mixtral-8x7b", "cluster=h100_400g", "gpus=64", "global_batch=128"]


def test_experts_are_flags_of_megatron_alone():
    flags = plan(*MIXTRAL, "tensor=2", "sequence_parallel=true", "expert=8", "zero=1", "--emit", "megatron").stdout
    for flag in ("num-experts 8", "moe-router-topk 2", "moe-ffn-hidden-size 14336", "expert-model-parallel-size 8"):
        assert f"--{flag}\n" in flags
    assert "shared" not in flags
    assert "sequence_parallel must be true" in plan(*MIXTRAL, "tensor=2", "--emit", "megatron", code=2).stderr
    for framework in ("torchtitan", "commeff"):
        assert f"experts must be 1 with {framework}" in plan(*MIXTRAL, "--emit", framework, code=2).stderr
    assert "expert" not in plan(*LLAMA, "--emit", "megatron").stdout


def test_torchtitan_keeps_weights_where_the_policy_does_and_names_a_model_of_its_own_shape_alone():
    kept = [emitted("torchtitan", *words) for words in (["zero=3"], ["zero=3", "reshard=false"], ["zero=2"])]
    assert [each["parallelism.fsdp_reshard_after_forward"] for each in kept] == ["always", "never", "never"]
    assert "model.flavor" in emitted("torchtitan", "zero=3", "sequence=4096")
    assert "model.flavor" not in emitted("torchtitan", "zero=3", "layers=16")


def test_a_method_is_emitted_as_commeff_trains_it():
    flags = plan(*LLAMA, "workers=8", "method=diloco", "period=20", "--emit", "commeff").stdout.split()
    config = compose(flags)
    assert config["workers"] == 8
    assert config["method"]["period"] == 20


def test_unequal_stages_are_a_layout_of_megatron_and_equal_ones_need_no_flag():
    cut = {"pipeline=4": [9, 9, 9, 5], "pipeline=2 schedule=interleaved chunks=2": [8, 9, 10, 5]}
    for words, layers in cut.items():
        flags = emitted("megatron", *words.split(), f"stages={','.join(map(str, layers))}")
        pieces = flags["pipeline-model-parallel-layout"].strip('"').split("|")
        assert (pieces[0][0], pieces[-1][-1]) == ("E", "L")
        assert [int(piece.strip("EL").removeprefix("t*")) for piece in pieces] == layers
        assert "num-layers-per-virtual-pipeline-stage" not in flags
    equal = ["pipeline=4", "zero=2", "sequence_parallel=true"]
    for framework in FRAMEWORKS:
        assert emitted(framework, *equal, "stages=8,8,8,8") == emitted(framework, *equal)
