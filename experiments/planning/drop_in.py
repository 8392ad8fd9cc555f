"""The lines that a method changes in a training script that was written for DDP."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from commeff.experiments.config import method_words as words_of
from commeff.experiments.config.registry import locate
from commeff.experiments.planning.worker_words import MethodWords
from commeff.planner import Policy, WorkerMethod

COUNT = "{n}"
HOMES = {"commeff.methods": "methods", "commeff.compressors": "compressors", "commeff.topologies": "topologies"}
WHOLE, SPLIT = "dist.get_world_size()", 'mesh["dp_replicate"].size()'  # the number of workers


def changed_lines(way: WorkerMethod, policy: Policy) -> list[str]:
    """A diff: of a script of whole models, or, where a worker lies on several GPUs, of what makes the optimizer.

    Nothing for psgd, whatever its batch.

    Parameters
    ----------
    way : the method.
    policy : how the model is laid out.

    >>> from commeff.experiments.planning.worker_words import read_method
    >>> way = WorkerMethod(read_method(["method=diloco", "period=50"]))
    >>> print("\\n".join(changed_lines(way, Policy(data=8, workers=8, method=way.method))))
    -model = DistributedDataParallel(model)
    -optimizer = adamw(model.parameters())
    +optimizer = commeff.DistributedOptimizer(model, methods.diloco(adamw, period=50))
    -evaluate(model)
    +evaluate(optimizer.average_into(copy.deepcopy(model)))
    """
    if not isinstance(way.method, MethodWords):
        return []
    split = policy.gpus > policy.workers
    strategy = expression(way.method, SPLIT if split else WHOLE)
    if split:
        return [
            "-optimizer = OptimizersContainer(model_parts, adamw)",
            f'+optimizer = commeff.DistributedOptimizer(model_parts, {strategy}, mesh=mesh, axis="dp_replicate")',
        ]
    return [
        "-model = DistributedDataParallel(model)",
        "-optimizer = adamw(model.parameters())",
        f"+optimizer = commeff.DistributedOptimizer(model, {strategy})",
        "-evaluate(model)",
        "+evaluate(optimizer.average_into(copy.deepcopy(model)))",
    ]


def expression(method: MethodWords, workers: str = WHOLE) -> str:
    """The call that makes the strategy, `adamw` being its optimizer and `workers` the number of workers.

    >>> expression(MethodWords(("method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01")))
    'methods.mem_sgd(adamw, compressor=compressors.TopK(ratio=0.01))'
    """
    config = words_of.strategy(method.words, 8, method.plugins)[1]
    named = {word.partition("=")[0] for word in method.words}
    return _call(config["method"], config, named, "method").replace(COUNT, workers)


def _call(node: Mapping[str, Any], config: Mapping[str, Any], named: set[str], path: str) -> str:
    """The call of a part, with the arguments that have no default or were named."""
    home, _, name = node["_target_"].rpartition(".")
    target = locate(node["_target_"])
    needed = {p.name for p in inspect.signature(target).parameters.values() if p.default is inspect.Parameter.empty}
    arguments = []
    for key, value in node.items():
        inside = any(word == f"{path}.{key}" or word.startswith(f"{path}.{key}.") for word in named)
        if key.startswith("_") or not (inside or key in needed):
            continue
        if key == "optimizer":
            arguments.append("adamw")
        elif key == "n":
            arguments.append(COUNT)
        elif isinstance(value, str) and value.startswith("${"):
            arguments.append(f"{key}={_call(config[value[2:-1]], config, named, value[2:-1])}")
        elif isinstance(value, Mapping) and "_target_" in value:
            arguments.append(f"{key}={_call(value, config, named, f'{path}.{key}')}")
        else:
            arguments.append(f"{key}={value!r}")
    shown = f"{HOMES.get(home, home)}.{name}"
    if node.get("_partial_"):
        return f"partial({', '.join([shown, *arguments])})"
    return f"{shown}({', '.join(arguments)})"
