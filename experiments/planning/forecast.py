"""What a run will send and hold, known before it begins: its own code, played on tensors that take no memory."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor

from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.experiments.config.build import build, driven, participation
from commeff.experiments.config.mesh_rehearsal import places, play
from commeff.experiments.config.schema import ConfigError, over_mesh
from commeff.experiments.config.settings import clocked
from commeff.experiments.planning.peak import most_bytes, resident
from commeff.experiments.run.local import model_bytes, storage_bytes
from commeff.experiments.tasks.shapes import shapes_only
from commeff.profiling import Attended, Profile, attended, profile
from commeff.replicas import ShardedWorker, Stacked
from commeff.sharding import Axis
from commeff.sharding.layers import homes_of
from commeff.sharding.mesh import AXES
from commeff.sharding.precision import named_precision
from commeff.sharding.schedules import SCHEDULES
from commeff.training.task import StagedTask, Task, objective

RANKS = 16  # of a worker that are played one by one; of more, the first stands for all


@dataclass(frozen=True)
class Forecast:
    """What a run will send and hold.

    Attributes
    ----------
    sent : dict of str to float
        Bytes of a worker over the whole run, by the names of the record.
    held : dict of str to int
        Bytes of the first process, by what they are; `activations` come and go in a step.
    peak : int or None
        The most bytes that the first process has in memory at once, Python, libraries and data included; None where
        the task reads numbers of the model, or processes are joined already that stages would need.
    note : str
        What was assumed of who takes part; "" where a run's ledger says the same.
    """

    sent: Mapping[str, float]
    held: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    peak: int | None = None

    @property
    def states(self) -> int:
        """Bytes that the first process holds between two steps."""
        return sum(count for name, count in self.held.items() if name != "activations")


def forecast(config: Mapping[str, Any]) -> Forecast:
    """Forecast a run by playing it.

    Parameters
    ----------
    config : a resolved configuration; what cannot run is refused.
    """
    parts = build(config)
    if clocked(config):
        raise ConfigError(["speeds must be omitted for a forecast: who finishes when decides what is sent"])
    if over_mesh(config):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "micro_batches=")  # `build` has said it
            return _on_mesh(config, parts.task, parts.strategy)
    with shapes_only():
        one = Stacked(parts.task.model, range(config["workers"] // config["nproc"]))
    sent, traffic, note = _worker_axis(config, parts.strategy, one.layout, one.parameters.dtype)
    memory = len(one.models) * sum(traffic.memory_bytes.values())
    held = {"parameters": one.parameters.nbytes, "gradients": one.gradients.nbytes, "method": memory}
    most = most_bytes(config, parts.task, parts.strategy, traffic, sum(held.values()))
    return Forecast(sent, held, note, _with_process(most))


def _with_process(most: int | None) -> int | None:
    """With Python, libraries, and what the task has drawn and keeps, as they are in this process."""
    now, before = resident()
    return None if most is None else max(before, now + most)


def _on_mesh(config: Mapping[str, Any], task: Task, method: Strategy) -> Forecast:
    ranks = places(config)
    times = len(ranks) if len(ranks) > RANKS else 1
    sent: Counter[str] = Counter()
    held: dict[str, int] = {}
    for place in ranks if times == 1 else ranks[:1]:
        worker = play(config, task, place)
        strategy = driven(copy.deepcopy(method), config, worker)
        worker_bytes, traffic, note = _worker_axis(config, strategy, worker.layout, worker.parameters.dtype)
        copies = _of_copies(config, worker, method.accumulate)
        sent.update({name: times * count for name, count in worker_bytes.items()})
        sent.update({name: times * config["steps"] * count for name, count in copies.items()})
        # Stage 3 is played as stage 2.
        sizes = dict.fromkeys(("parameters", "gradients"), worker.parameters.nbytes) if config["zero"] == 3 else None
        if not held:
            held = (sizes or model_bytes(worker)) | {"method": sum(traffic.memory_bytes.values())}
            most = most_bytes(config, task, strategy, traffic, sum(held.values()), worker)
    inside, activations = _inside(config, task, method.accumulate)
    sent.update(inside)
    if named_precision(config["precision"]).scaled:  # each step all ranks learn whether gradients are finite: a float32
        sizes = {axis: size for axis, size in config["mesh"].items() if axis in AXES[1:] and size > 1}
        sent.update({f"{axis}_bytes": 8 * config["steps"] * len(ranks) * (n - 1) / n for axis, n in sizes.items()})
    return Forecast(dict(sent), held | ({"activations": activations} if activations else {}), note, _with_process(most))


def _worker_axis(
    config: Mapping[str, Any], strategy: Strategy, layout: Layout, dtype: torch.dtype
) -> tuple[dict[str, float], Profile, str]:
    """What one row sends over the run, the profile of its method, and what was assumed of who takes part."""
    how: dict[str, Any] = {"seed": config["seed"], "collective": config["collective"], "dtype": dtype}
    traffic = profile(strategy, layout, config["workers"], **how)
    who = participation(config, strategy)
    plays: Profile | Attended = traffic
    if who is not None:
        plays = attended(strategy, layout, traffic, who.present, config["steps"], **how)
    operations = [operation for step in range(config["steps"]) for operation in plays.operations(step)]
    sent = {name: sum(getattr(op, name) for op in operations) for name in ("payload_bytes", "wire_bytes")}
    inside = Counter[str]()  # norms and scales of a row in pieces
    for step in range(config["steps"]):
        inside.update(traffic.inside[traffic.played(step)])
    sent |= {f"{name}_bytes": count for name, count in inside.items()}
    return sent, traffic, "" if who is None else plays.note


def _of_copies(config: Mapping[str, Any], worker: ShardedWorker, minibatches: int) -> dict[str, float]:
    """What a rank sends in a step for tensors that lie at several stages: their gradients are summed after each
    minibatch, and all copies but one are more than the whole model that shard ranks share.
    """
    pipeline, shard = worker.mesh.axis("pipeline"), worker.mesh.axis("shard")
    if pipeline.size == 1:
        return {}
    homes = [(p.nbytes, homes_of(p, pipeline)) for p in worker.computation.parameters.values()]
    summed = minibatches * sum(2 * count * (len(ranks) - 1) / len(ranks) for count, ranks in homes)
    more = sum(count for count, ranks in homes if ranks[0] != pipeline.rank)
    often = _often(config, minibatches) * (shard.size - 1) / shard.size
    summed *= _wider(worker) / shard.size if config["zero"] == 3 else 1  # a rank has its shard of each copy
    return {"pipeline_bytes": summed} | ({"shard_bytes": often * more} if shard.size > 1 else {})


def _often(config: Mapping[str, Any], minibatches: int) -> float:
    """How often the ranks of a shard axis send their parameters in a step, or their gradients, which count more if they
    are summed in more bits; stage 3 in each minibatch.
    """
    dtype, _, sums = named_precision(config["precision"])
    gradients = 1.0 if dtype is None or sums is None else sums.itemsize / dtype.itemsize
    if config["zero"] < 3:
        return 2 * gradients if config["zero"] == 0 else 1 + gradients
    split = SCHEDULES[config["mesh"]["schedule"]].splits and config["mesh"]["pipeline"] * config["micro_batches"] > 1
    return minibatches * ((1 if split else int(config["micro_batches"]) + 1) + gradients)


def _wider(worker: ShardedWorker) -> float:
    """The bytes of a number of the row in those of a number that the model computes with."""
    return worker.parameters.itemsize / next(iter(worker.computation.parameters.values())).itemsize


def _inside(config: Mapping[str, Any], task: Task, minibatches: int) -> tuple[dict[str, float], int]:
    """What a worker sends inside itself over the run, by axis, and the activations that a rank keeps in a step.

    All stages of a pipeline together send, over tensor and shard ranks, what one rank with all layers would; how many
    activations it keeps depends on its schedule, and is not said.
    """
    one_stage = {**config, "mesh": {**config["mesh"], "pipeline": 1}, "micro_batches": 1}
    worker = play(one_stage, task, {})
    batch = [tuple(part.to("meta") for part in task.batch(0, [0]))]
    saved: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        worker.compute(objective(task, worker.computation.vocabulary), batch, 0)
    worker.load(worker.parameters)
    ranks = prod(degree for axis, degree in worker.mesh.degrees.items() if axis != "worker")
    sent = {
        f"{name}_bytes": config["steps"] * ranks * sum(stage.bytes for stage in axis.family)
        for name, axis in worker.mesh.inner.items()
    }
    if "shard_bytes" in sent:
        played = {**config, "zero": min(config["zero"], 2)}
        sent["shard_bytes"] *= _often(config, minibatches) / _often(played, minibatches)
    if "tensor_bytes" in sent:
        once = sum(map(_summed, worker.computation.parameters.values()))
        summing = _wider(worker) / config["mesh"]["shard"]  # stage 3 sums its shards in the row, once
        often = summing if config["zero"] == 3 else minibatches * config["micro_batches"]
        sent["tensor_bytes"] *= minibatches
        sent["tensor_bytes"] += config["steps"] * ranks * (often - minibatches) * once
    parameters = {p.untyped_storage()._cdata for p in worker.computation.parameters.values()}
    activations = storage_bytes(x for x in saved if x.untyped_storage()._cdata not in parameters)
    if config["mesh"]["pipeline"] == 1:  # it goes backward after each micro-batch
        return sent, activations // config["micro_batches"]
    passed = minibatches * sum(_boundaries(config, task, worker))
    return sent | {"pipeline_bytes": config["steps"] * ranks * passed}, 0


def _summed(parameter: Tensor) -> float:
    """What a rank sends with each micro-batch to sum the gradient of a tensor of which several ranks have a share.

    Stage 3 of ZeRO sums its shard, once a step.
    """
    axis: Axis | None = getattr(parameter, "summed", None)
    return 0.0 if axis is None else 2 * parameter.nbytes * (axis.size - 1) / axis.size


def _boundaries(config: Mapping[str, Any], task: Task, worker: ShardedWorker) -> Iterator[float]:
    """What passes each boundary between stages in a minibatch, forward and backward, of one tensor and shard rank."""
    (model,), (batch,) = worker.computation.modules, [part[0] for part in task.batch(0, [0])[:1]]
    if not isinstance(task, StagedTask):
        return
    share = worker.mesh.axis("shard").part(batch.to("meta"), 0)
    inputs, _ = objective(task, None).inputs_targets(share)
    passed = task.layers(model).before(model, *inputs)
    ranks = SCHEDULES[config["mesh"]["schedule"]].ranks(config["mesh"]["pipeline"])
    for one, other in pairwise(ranks):
        if one != other:
            yield 2 * passed.nbytes
