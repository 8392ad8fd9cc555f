"""A policy as the flags of a framework that trains it. What a framework has no flags for is refused, so that what runs
is what was priced.

Megatron-LM's are those of its core 0.14 and 0.15, torchtitan's those of 0.2.2, read in their sources.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from commeff import require
from commeff.experiments.planning.models import named
from commeff.experiments.planning.question import Question
from commeff.experiments.planning.worker_words import method_words
from commeff.planner import Model, Policy
from commeff.planner.policies import CONTEXTS

FLAVORS = {"llama3-8b": "8B", "llama3-70b": "70B", "llama3-405b": "405B"}
BEHIND = ("data", "partial", "full")  # kinds of overlap that hide gradients
STAGES = {2: "optim_grads", 3: "optim_grads_params"}
PIPELINES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B"}
WIDTHS = {"bf16": "bfloat16", "fp32": "float32"}
COMMON = {
    **{"unit": (1,), "prefetch": (1,), "reshard": (True,), "recompute_every": (1,), "recompute_stages": (0,)},
    **{"loss_chunks": (1,), "context_by": ("ring",)},
}
EXPERTS = "experts must be 1 with {}, got {}: flags of models with experts are those of Megatron-LM; take megatron"


def torchtitan(question: Question, policy: Policy) -> list[str]:
    """The flags of its training job. FSDP2 shares what ZeRO 2 shares if weights stay gathered after the forward pass,
    and else what ZeRO 3 does. Shapes are flavors, of which it has those of Llama 3; others are the user's to add.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy that is to run.
    """
    _dense("torchtitan", question.model)
    replicated = policy.tensor == policy.pipeline == policy.context == 1  # else it has no DDP
    has_ddp = replicated or policy.data == policy.context == 1
    _allow(
        "torchtitan",
        policy,
        schedule=PIPELINES,
        precision=WIDTHS,
        recompute=("none", "full"),
        zero=(0, 2, 3) if has_ddp else (2, 3),
        sequence_parallel=(True,) if policy.tensor > 1 else (False, True),  # always over tensor ranks
        partition_checkpoints=(False,),
        offload_checkpoints=(False,),
        reshard=(True, False),
        half_gradients=(False,),
    )
    shard = policy.data // policy.workers if policy.zero else 1
    pipelined = policy.pipeline > 1
    flags: dict[str, Any] = {
        **({"model.name": "llama3", "model.flavor": FLAVORS[question.name]} if _known(question) else {}),
        "training.seq_len": question.model.sequence,
        "training.local_batch_size": question.global_batch // policy.data if pipelined else policy.micro_batch,
        "training.global_batch_size": question.global_batch,
        "training.mixed_precision_param": WIDTHS[policy.precision],
        "parallelism.data_parallel_replicate_degree": policy.data // shard,
        "parallelism.data_parallel_shard_degree": shard,
        "parallelism.tensor_parallel_degree": policy.tensor,
        **({"parallelism.context_parallel_degree": policy.context} if policy.context > 1 else {}),
        "parallelism.pipeline_parallel_degree": policy.pipeline,
        "activation_checkpoint.mode": policy.recompute,
    }
    if policy.zero:
        flags["parallelism.fsdp_reshard_after_forward"] = "always" if policy.zero == 3 and policy.reshard else "never"
    if pipelined:
        flags["parallelism.pipeline_parallel_schedule"] = PIPELINES[policy.schedule]
        flags["parallelism.pipeline_parallel_microbatch_size"] = policy.micro_batch
        flags["parallelism.pipeline_parallel_layers_per_stage"] = policy.layers_of(question.model)[0]
        flags["parallelism.pipeline_parallel_first_stage_less_layers"] = 0
        flags["parallelism.pipeline_parallel_last_stage_less_layers"] = 0
    return [f"--{name}={value}" for name, value in flags.items()]


def _known(question: Question) -> bool:
    """Whether the model is one of torchtitan's, of any sequence."""
    name, model = question.name, question.model
    return name in FLAVORS and replace(named(name), sequence=model.sequence) == model


def megatron(question: Question, policy: Policy) -> list[str]:
    """The flags of pretrain_gpt.py.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy that is to run.
    """
    precisions, model = ("bf16", "fp16", "fp32", "fp8"), question.model
    if model.experts > 1 and policy.tensor > 1 and not policy.sequence_parallel:
        raise ValueError("sequence_parallel must be true with tensor ranks, experts and megatron, got false")
    by_heads = policy.context > 1 and policy.context_by == "all_to_all"
    if by_heads and model.key_heads % (policy.tensor * policy.context):
        ranks = f"{policy.tensor} x {policy.context}: it replicates no heads between ranks of a sequence"
        raise ValueError(f"tensor x context of megatron must divide kv_heads={model.key_heads}, got {ranks}")
    never = {"offload_checkpoints": (False,), "fp32_parameters": (False,), "context_by": CONTEXTS}
    if policy.precision == "fp8" and policy.zero == 0:
        never["fp8_copies"] = (True,)  # only its distributed optimizer has weights in fp8 alone
    _allow("megatron", policy, schedule=("1f1b", "interleaved"), precision=precisions, **never)
    flags: dict[str, Any] = {
        **_shape(model),
        **(_experts(model) | {"expert-model-parallel-size": policy.expert} if model.experts > 1 else {}),
        "tensor-model-parallel-size": policy.tensor,
        "context-parallel-size": policy.context if policy.context > 1 else False,
        "cp-comm-type": "a2a" if by_heads else False,
        "pipeline-model-parallel-size": policy.pipeline,
        "micro-batch-size": policy.micro_batch,
        "global-batch-size": question.global_batch,
        "sequence-parallel": policy.sequence_parallel,
        "distribute-saved-activations": policy.partition_checkpoints,
        "use-distributed-optimizer": policy.zero > 0,
        "overlap-grad-reduce": policy.overlap in BEHIND,
        "overlap-param-gather": policy.overlap in BEHIND and policy.zero > 0,
        "grad-reduce-in-bf16": policy.half_gradients and policy.precision != "fp16",
        "bf16": policy.precision in ("bf16", "fp8"),
        "fp16": policy.precision == "fp16",
        "fp8-format": "hybrid" if policy.precision == "fp8" else False,
        "fp8-param-gather": policy.precision == "fp8" and not policy.fp8_copies and policy.zero > 0,
        "recompute-granularity": policy.recompute if policy.recompute != "none" else False,
    }
    if policy.recompute == "full":
        flags |= {"recompute-method": "uniform", "recompute-num-layers": 1}
    layers = policy.layers_of(model)
    if len(set(layers)) > 1:
        flags["pipeline-model-parallel-layout"] = f'"E{"|".join(f"t*{count}" for count in layers)}L"'
    elif policy.chunks > 1:
        flags["num-layers-per-virtual-pipeline-stage"] = layers[0]
    if policy.zero in STAGES:
        flags |= {"use-megatron-fsdp": True, "data-parallel-sharding-strategy": STAGES[policy.zero]}
        flags |= {"no-gradient-accumulation-fusion": True, "ckpt-format": "fsdp_dtensor"}
    if policy.zero and policy.workers > 1:
        flags["num-distributed-optimizer-instances"] = policy.workers
    return [
        f"--{name}" if value is True else f"--{name} {value}" for name, value in flags.items() if value is not False
    ]


def _shape(model: Model) -> dict[str, Any]:
    return {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "num-attention-heads": model.heads,
        "kv-channels": model.head_width,
        "group-query-attention": model.key_heads < model.heads,
        "num-query-groups": model.key_heads if model.key_heads < model.heads else False,
        "ffn-hidden-size": model.ffn_width,
        "seq-length": model.sequence,
        "max-position-embeddings": model.sequence,
        "vocab-size": model.vocab,
        "position-embedding-type": "rope" if model.gated else "learned_absolute",
        "swiglu": model.gated,
        "normalization": "RMSNorm" if model.gated else "LayerNorm",
        "disable-bias-linear": model.gated,
        "untie-embeddings-and-output-weights": not model.tied_embeddings,
        "use-flash-attn": model.flash_attention,
    }


def _experts(model: Model) -> dict[str, Any]:
    return {
        "num-experts": model.experts,
        "moe-router-topk": model.active_experts,
        "moe-ffn-hidden-size": model.expert_width,
        "moe-shared-expert-intermediate-size": model.shared_experts * model.expert_width or False,
        "moe-layer-freq": model.expert_every,
        "moe-grouped-gemm": model.gated,  # it has no biases
        "moe-token-dispatcher-type": "alltoall",
    }


def commeff(question: Question, policy: Policy) -> list[str]:
    """Settings of `commeff train`, whose interleaved schedule has two chunks.

    Parameters
    ----------
    question : what `commeff plan` was called with.
    policy : the policy that is to run.
    """
    from commeff.experiments.config.policies import CHUNKS, settings_of  # with torch

    _dense("commeff", question.model)
    whole = policy.offload_checkpoints or policy.sequence_parallel  # inputs wait on the host, or are divided already
    never = {"context": (1,), "context_by": CONTEXTS, "partition_checkpoints": (False,) if whole else (False, True)}
    may = {"schedule": CHUNKS, "chunks": (CHUNKS.get(policy.schedule),), "loss_chunks": (policy.loss_chunks,)}
    _allow("commeff", policy, True, precision=("fp32", "bf16", "fp16"), **may, **never)
    values: dict[str, Any] = {"task": "language", **_decoder(question.model), "task.context": question.model.sequence}
    values |= settings_of(policy, question.global_batch)
    words = (f"{name}={str(value).lower()}" for name, value in values.items())
    return [*words, *method_words(policy.worker_method)]


def _decoder(model: Model) -> dict[str, Any]:
    """The preset of the same shape, or a GPT of these sizes, whose vocabulary is that of its text."""
    from commeff.experiments.config.policies import shape
    from commeff.experiments.tasks.language import PRESETS
    from commeff.experiments.tasks.shapes import shapes_only

    for name, preset in PRESETS.items():
        with shapes_only():
            known = shape(preset(), model.sequence)
        if _sizes(known) == _sizes(model):
            return {"model": name}
    plain = Model(model.layers, model.hidden, model.heads, model.sequence, model.vocab)
    if _sizes(model) != _sizes(plain):
        raise ValueError(f"model must be a preset of `commeff train` or a plain GPT with commeff, got {model}")
    return {"model": "gpt", "task.layers": model.layers, "task.heads": model.heads, "task.width": model.hidden}


def _sizes(model: Model) -> tuple[Any, ...]:
    widths = model.head_width, model.key_heads, model.ffn_width, model.vocab
    return model.layers, model.hidden, model.heads, *widths, model.gated, model.tied_embeddings


def _dense(framework: str, model: Model) -> None:
    if model.experts > 1:
        raise ValueError(EXPERTS.format(framework, model.experts))


def _allow(framework: str, policy: Policy, any_method: bool = False, /, **choices: Any) -> None:
    """Refuse what a framework has no flags for, and what none of them has, unless it is one of the choices."""
    for name, allowed in (COMMON | choices).items():
        if getattr(policy, name) not in allowed:
            must = f"be {' or '.join(map(str, allowed))}"
            raise require.refusal(f"{name} of {framework}", must, getattr(policy, name))
    if framework != "megatron" and len(set(policy.stages or ())) > 1:
        raise ValueError(f"stages must be equal with {framework}, got {policy.stages}: no flag says otherwise")
    if not any_method and not policy.worker_method.is_plain:
        raise ValueError(
            f"method must be psgd with {framework}, got {policy.worker_method.name}: it averages gradients"
        )


FRAMEWORKS = {write.__name__: write for write in (torchtitan, megatron, commeff)}
