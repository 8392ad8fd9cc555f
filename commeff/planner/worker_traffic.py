"""Seconds and bytes of what workers send each other: profiles of methods, priced for many policies at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import Cluster, collectives
from commeff.cluster.billing import collective_seconds
from commeff.cluster.codecs import coding_seconds
from commeff.cluster.groups import Groups
from commeff.cluster.simulation import Routes, routes
from commeff.planner.model import Model
from commeff.planner.model_part import ModelPart, part_numbers
from commeff.planner.policies import Numbers, Policies, PolicySetting, distinct
from commeff.planner.traffic import Waiting, WorkerTraffic
from commeff.planner.worker_profile import Pattern, Sent, WorkerProfile
from commeff.topologies import MixingMatrix

MOST_MESSAGES = 1 << 20  # whose links are looked at one by one; beyond, gossip is priced by its degree


class Alike(NamedTuple):
    """Policies whose workers send in one pattern.

    Attributes
    ----------
    members : which policies.
    hides : whether gradients can leave while others are computed.
    bytes : (messages of a period and memory, policies), see `Sheet.bytes`, before they are shared over `shard` ranks.
    """

    members: NDArray[np.int64]
    pattern: Pattern
    hides: bool
    bytes: NDArray[np.float64]


def alike(policies: Policies, model: Model, layers: Numbers, embeddings: Numbers) -> Iterator[Alike]:
    """Policies of more than one worker, sorted by what is sent of so many layers and embedding matrices."""
    method, workers, tensor, layers, embeddings = np.broadcast_arrays(
        policies.method, policies.workers, policies.tensor, layers, embeddings
    )
    for place, profiled in enumerate(policies.methods):
        several = (method == place) & (workers > 1)
        same = defaultdict[WorkerProfile, list[int]](list)
        for n in np.unique(workers[several]):
            same[WorkerProfile.of(profiled, model, policies.precision, n).like].append(n)
        for of, members in same.items():
            index = np.flatnonzero(several & np.isin(workers, members))
            part = tensor[index], layers[index], embeddings[index]
            if of.depends == "line":
                pattern, fixed, slope = of.line
                yield Alike(index, pattern, of.hides, fixed[:, None] + slope[:, None] * part_numbers(model, *part))
            else:
                yield from _played(of, index, (part[0], np.ceil(part[1]), part[2]))


def _played(of: WorkerProfile, index: NDArray[np.int64], parts: Sequence[Numbers]) -> Iterator[Alike]:
    """As `alike`, for a method whose bytes are not linear in the numbers. A fraction of a layer counts as one."""
    rows, inverse = distinct(*parts)
    sheets = [of.sheet(ModelPart(*map(int, row))) for row in rows]
    for pattern in dict.fromkeys(sheet.pattern for sheet in sheets):
        columns = [i for i, sheet in enumerate(sheets) if sheet.pattern == pattern]
        table = np.zeros((len(sheets[columns[0]].bytes), len(sheets)))
        table[:, columns] = np.array([sheets[i].bytes for i in columns]).T
        chosen = np.isin(inverse, columns)
        yield Alike(index[chosen], pattern, of.hides, table[:, inverse[chosen]])


def worker_traffic(
    policies: Policies, setting: PolicySetting, layers: Numbers, embeddings: Numbers, weight_bytes: Numbers
) -> WorkerTraffic:
    """The traffic between workers in a step.

    The ranks of a worker share every message, as they have its gradients scattered among them already: each sends a
    `shard`-th to the same rank of other workers. Parameters that ZeRO does not gather anyway are gathered in the worker
    after each step that mixed any. Each rank encodes its share and decodes those that it hears (`codecs`), and what a
    method remembers is read and written in each step that sends.

    Parameters
    ----------
    layers, embeddings : of the stage that holds most.
    weight_bytes : on one of its ranks.
    """
    model, cluster = setting.model, setting.cluster
    shape = np.broadcast(policies.workers, policies.tensor, policies.shard, weight_bytes).shape
    axes = (policies.shard, policies.pipeline, policies.zero, policies.tensor, policies.workers)
    shard, pipeline, zero, tensor, workers = (np.broadcast_to(array, shape) for array in axes)
    layers, embeddings, weight_bytes = (np.broadcast_to(array, shape) for array in (layers, embeddings, weight_bytes))
    behind, exposed, remembering, memory = (np.zeros(shape) for _ in range(4))
    waiting: list[Waiting] = []
    for group in alike(policies, model, layers, embeddings):
        i, pattern = group.members, group.pattern
        place = _Place(cluster, workers[i], tensor[i] * shard[i], pipeline[i])
        for number, (sent, often) in _different(group):
            seconds = sent.rounds * place.seconds(sent, group.bytes[number] / shard[i])
            if sent.windows:
                waiting.append(Waiting(i, seconds, often, sent.windows))
            elif sent.slot == "gradients" and group.hides:
                behind[i] += often * seconds
            else:
                exposed[i] += often * seconds
            if sent.coding is not None:
                numbers = sent.share * part_numbers(model, tensor[i], layers[i], embeddings[i]) / shard[i]
                messages = sent.coding.messages(sent.kind, workers[i], sent.matrix)
                exposed[i] += often * coding_seconds(cluster.gpu, sent.coding, numbers, messages)
        if pattern.mixing:
            inside = Groups.strided(cluster, shard[i], tensor[i])
            gathered = collectives.all_gather(inside, weight_bytes[i] / shard[i])
            exposed[i] += pattern.mixing * np.where(zero[i] == 0, gathered, 0.0)
        memory[i] = group.bytes[-1]
        remembering[i] = 2 * pattern.talking * group.bytes[-1]
    return WorkerTraffic(behind, exposed, waiting, remembering, memory)


def _different(group: Alike) -> Iterator[tuple[int, tuple[Sent, float]]]:
    """Each different message's first place in a period, and the number like it in a step."""
    places: dict[tuple[Sent, bytes], list[int]] = defaultdict(list)
    for number, sent in enumerate(group.pattern.sent):
        places[sent, group.bytes[number].tobytes()].append(number)
    for (sent, _), numbers in places.items():
        yield numbers[0], (sent, len(numbers) / group.pattern.period)


class _Place:
    """Where the ranks that talk to each other sit: every `stride`-th of a pipeline stage, and all of them at once."""

    def __init__(self, cluster: Cluster, workers: Numbers, stride: Numbers, pipeline: Numbers) -> None:
        self.cluster, self.workers, self.stride, self.pipeline = cluster, workers, stride, pipeline
        self.groups = Groups.strided(cluster, workers, stride)

    def seconds(self, sent: Sent, sizes: Numbers) -> Numbers:
        """Seconds of one round."""
        if sent.matrix is None:
            return collective_seconds(sent.kind, self.groups, sizes, shards=sent.shards, parts=sent.shards)
        seconds = np.zeros_like(sizes)
        spots, inverse = distinct(self.stride, self.pipeline)
        for number, (stride, pipeline) in enumerate(spots):
            members = inverse == number
            seconds[members] = self._gossip(sent.matrix, int(stride), int(pipeline), members, sizes[members])
        return seconds

    def _gossip(self, matrix: MixingMatrix, stride: int, pipeline: int, members: Numbers, sizes: Numbers) -> Numbers:
        if matrix.off_diagonal.nnz * stride * pipeline > MOST_MESSAGES:
            groups = Groups.strided(self.cluster, self.workers[members], self.stride[members])
            return collectives.neighbours(groups, sizes, int(matrix.out_degrees.max()))
        return _routes(self.cluster, matrix, stride, pipeline).seconds(self.cluster, sizes)


@lru_cache(maxsize=4096)
def _routes(cluster: Cluster, matrix: MixingMatrix, stride: int, pipeline: int) -> Routes:
    """Worker i of stage k is the `stride` ranks from (k n + i) stride on, each of which talks to its like."""
    messages = matrix.off_diagonal.tocoo()
    beside = np.arange(stride)
    stages = np.arange(pipeline)[:, None, None] * matrix.n * stride

    def ranks(workers: Numbers) -> NDArray[np.int64]:
        return np.asarray(stages + workers.astype(np.int64)[:, None] * stride + beside).ravel()

    return routes(cluster, ranks(messages.col), ranks(messages.row))
