"""A run of `commeff train` over a mesh as a policy of the planner, and a policy as settings of such a run.

One table has the names of both: `commeff plan --emit commeff` reads it one way, `commeff report --cluster` the other.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from torch import nn

from commeff.experiments.config import build
from commeff.experiments.config.meshes import degrees
from commeff.experiments.config.schema import node
from commeff.experiments.tasks.language import GPT, Language, Llama
from commeff.experiments.tasks.shapes import shapes_only
from commeff.planner import Model, Policy
from commeff.planner.worker_method import PLAIN

if TYPE_CHECKING:
    from commeff.core import Strategy

SAME = {  # a field of a policy: the key of a run that says the same
    "workers": "mesh.worker",
    "pipeline": "mesh.pipeline",
    "tensor": "mesh.tensor",
    "schedule": "mesh.schedule",
    "zero": "zero",
    "sequence_parallel": "sequence",
    "collective": "collective",
    "loss_chunks": "task.loss_chunks",
}
CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved": 2}  # the schedules that both have
RECOMPUTES: Mapping[str, dict[str, Any]] = {  # `recompute` of a run: the fields of a policy
    "none": {"recompute": "none"},
    "selective": {"recompute": "selective"},
    "full": {"recompute": "full"},
    "offloaded": {"recompute": "full", "offload_checkpoints": True},
    "partitioned": {"recompute": "full", "partition_checkpoints": True},
}
PRECISIONS: Mapping[str, dict[str, Any]] = {  # `precision` of a run whose shard ranks sum gradients
    "fp32": {"precision": "fp32"},
    "fp16": {"precision": "fp16"},
    "bf16": {"precision": "bf16", "half_gradients": True},
    "bf16_reduce_fp32": {"precision": "bf16"},
}
KEPT = ("method", "compressor", "topology", "accumulate")  # of a configuration, what its messages depend on


def settings_of(policy: Policy, global_batch: int) -> dict[str, Any]:
    """What a run sets for a policy with equal stages; how it hides and stores is the run's own.

    >>> settings = settings_of(Policy(tensor=2, data=4, workers=2, zero=1, precision="fp32"), global_batch=16)
    >>> settings["mesh.shard"], settings["task.batch"], settings["micro_batches"], settings["zero"]
    (2, 8, 4, 1)
    """
    shard = policy.data // policy.workers
    alone = {"schedule": policy.pipeline == 1, "zero": shard == 1, "sequence_parallel": policy.tensor == 1}
    said = {name: getattr(Policy if alone.get(name) else policy, name) for name in SAME}
    return {
        **{SAME[name]: value for name, value in said.items()},
        "mesh.shard": shard,
        "task.batch": global_batch // policy.workers,
        "micro_batches": global_batch // (policy.data * policy.micro_batch),
        "recompute": _named(RECOMPUTES, policy, policy.recompute),
        "precision": policy.precision if shard == 1 else _named(PRECISIONS, policy, policy.precision),
    }


def _named(table: Mapping[str, dict[str, Any]], policy: Policy, otherwise: str) -> str:
    """The name of what a policy says in some fields."""
    names = {name for fields in table.values() for name in fields}
    said = {name: getattr(policy, name) for name in names}
    usual = {name: getattr(Policy, name) for name in names}
    return next((key for key, fields in table.items() if usual | fields == said), otherwise)


def planned(config: Mapping[str, Any]) -> tuple[Model, Policy, int]:
    """The transformer, the policy and the global batch of a run over a mesh.

    Parameters
    ----------
    config : a resolved configuration.

    Raises
    ------
    ValueError
        If the planner knows no such run, in one line.
    """
    mesh, passes = degrees(config), config["micro_batches"]
    workers, shard, schedule, precision = mesh["worker"], mesh["shard"], config["mesh"]["schedule"], config["precision"]
    model = transformer(config)
    method = RunMethod(json.dumps({name: config[name] for name in KEPT if name in config}, sort_keys=True), workers)
    minibatches, batch = method(workers).accumulate, config["task"]["batch"]
    reason = ""
    if schedule not in CHUNKS:
        reason = f"mesh.schedule must be one of {', '.join(CHUNKS)}, got {schedule}: the planner has no such order"
    elif batch % (shard * passes):
        reason = f"task.batch must be a multiple of mesh.shard x micro_batches = {shard * passes}, got {batch}"
    elif precision == "bf16" and workers > 1 and shard > 1:
        reason = "precision must be bf16_reduce_fp32 with workers of several shard ranks, got bf16"
    elif minibatches > 1 and mesh["pipeline"] > 1:
        reason = f"accumulate must be 1 with stages, got {minibatches}: they fill and drain with each minibatch"
    elif config["task"]["dtype"] != "float32":
        reason = f"task.dtype must be float32, got {config['task']['dtype']}: the planner has no peak for it"
    if reason:
        raise ValueError(f"seconds are not modelled of this run over a mesh: {reason}")
    fields = {name: _value(config, key) for name, key in SAME.items()}
    fields |= RECOMPUTES[config["recompute"]] | (PRECISIONS[precision] if shard > 1 else {"precision": precision})
    is_plain = workers == 1 or config["method"]["_target_"] == node("method", PLAIN)["_target_"]
    pieces = mesh["pipeline"] * CHUNKS[schedule]
    stages = tuple(Counter(i * pieces // model.layers for i in range(model.layers)).values())  # as they are dealt
    policy = Policy(
        **fields,
        data=workers * shard,
        micro_batch=batch // (shard * passes),
        chunks=CHUNKS[schedule],
        stages=stages if len({*stages}) > 1 else None,
        method=PLAIN if is_plain else method,
    )
    return model, policy, workers * batch * minibatches


def as_sent(policy: Policy, micro_batches: int) -> Policy:
    """The policy that sends within a worker what the run of a policy does. A run sums gradients once a step, so stage 2
    sends as stage 1.

    Raises
    ------
    ValueError
        If there is none.
    """
    if policy.zero == 3 and micro_batches > 1:
        raise ValueError("zero must be at most 2 with micro_batches: the planner gathers more often than such a run")
    return replace(policy, zero=1) if policy.zero == 2 else policy


def _value(config: Mapping[str, Any], key: str) -> Any:
    """What a configuration has under a dotted key."""
    part, _, name = key.rpartition(".")
    return (config[part] if part else config)[name]


@dataclass(frozen=True)
class RunMethod:
    """The method of a run, as the planner takes it: its states are Adam's, whatever takes the steps.

    Attributes
    ----------
    parts : the configuration of the method and of what it refers to, as JSON.
    workers : of the run, which its topology has.
    """

    parts: str
    workers: int

    def __call__(self, workers: int) -> Strategy:
        parts = json.loads(self.parts)
        if "topology" in parts and workers != self.workers:
            raise ValueError(f"its topology must be of {workers} workers, got {self.workers}")
        return build.strategy({**parts, "optimizer": node("optimizer", "sgd"), "bucket_mb": 0})

    def __str__(self) -> str:
        return str(json.loads(self.parts)["method"]["_target_"]).rpartition(".")[2]


def transformer(config: Mapping[str, Any]) -> Model:
    """The shape of what a run trains, looked up once for each task, whatever its seed."""
    return _shape_of_task(json.dumps({**config["task"], "seed": 0}, sort_keys=True))


@cache
def _shape_of_task(task_config: str) -> Model:
    task = build.part({"task": json.loads(task_config)}, "task")
    if not isinstance(task, Language):
        kind = type(task).__name__
        raise ValueError(f"task must be language for seconds over a mesh, got {kind}: the planner has transformers")
    with shapes_only():
        return shape(task.model(), json.loads(task_config)["context"])


def shape(model: nn.Module, sequence: int) -> Model:
    """The shape of a language model on windows of so many tokens.

    >>> with shapes_only():
    ...     model = Llama(vocabulary=64, layers=4, width=32, heads=4, kv_heads=2, inner=64)
    >>> shape(model, sequence=16).parameters, sum(p.numel() for p in model.parameters())
    (41248, 41248)
    """
    if not isinstance(model, GPT | Llama):
        raise ValueError(f"the model must be a GPT or a Llama, got {type(model).__name__}")
    (vocabulary, width), block = model.tokens.weight.shape, model.blocks[0]
    of = Model(
        len(model.blocks),
        width,
        model.heads,
        sequence,
        vocabulary,
        head_dim=block.get_parameter("attention.project.weight").shape[1] // model.heads,
        ffn_hidden=block.get_parameter("feedforward.widen.weight").shape[0],
        tied_embeddings=model.head.weight is model.tokens.weight,
        flash_attention=model.separator is None,  # a mask of documents is read whole
    )
    return replace(of, gated=True, kv_heads=model.kv_heads) if isinstance(model, Llama) else of
