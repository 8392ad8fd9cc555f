"""`commeff bench comm`: the links between processes, collectives over them, compressors, and the machine's own speeds.

Everything is measured on CPU tensors over gloo, with one thread a process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch.distributed as dist

from commeff import Communicator
from commeff.cluster import GPU, Cluster
from commeff.cluster.collectives import all_gather, all_reduce, point_to_point, server
from commeff.cluster.groups import Groups
from commeff.cluster.hardware import Codec
from commeff.communicator.wire.records import share_json
from commeff.compressors.scratch import keep_freed_memory
from commeff.experiments.measure import codecs, collectives, links
from commeff.experiments.measure.codecs import CODECS, Speed
from commeff.experiments.measure.collectives import Timing
from commeff.experiments.measure.forks import on_job
from commeff.experiments.measure.links import Pair
from commeff.experiments.measure.processor import WIDTH, processor
from commeff.experiments.measure.profile import describe
from commeff.experiments.run.progress import reporter

ROUNDS = 5
ALGORITHMS = {"all_reduce": "auto", "ring": "one_ring", "tree": "binomial_tree"}


@dataclass(frozen=True)
class Effort:
    """The amount of measurements; less in tests.

    Attributes
    ----------
    sizes : bytes of messages.
    rounds : of which medians are taken.
    length : numbers of the vector that is compressed.
    width : of the matrices that are multiplied.
    """

    sizes: Sequence[int] = links.SIZES
    rounds: int = ROUNDS
    length: int = codecs.LENGTH
    width: int = WIDTH


@dataclass(frozen=True)
class Between:
    """The measurements among processes.

    Attributes
    ----------
    hosts : the number of the host of each process.
    pairs, timings : links, and collectives over them.
    """

    hosts: tuple[int, ...]
    pairs: tuple[Pair, ...]
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class Measurements:
    """All measurements.

    Attributes
    ----------
    between : among processes.
    speeds : of compressors.
    copy : bytes per second that one thread copies.
    gpu : the processor of one process, with the speeds of compressors on it.
    """

    between: Between
    speeds: tuple[Speed, ...]
    copy: float
    gpu: GPU

    def cluster(self, name: str) -> Cluster:
        """The hardware profile."""
        return describe(name, self.between.hosts, self.between.timings, self.gpu, self.between.pairs)


def run(nproc: int | None = None, effort: Effort = Effort()) -> Measurements | None:
    """Measure everything; None at all but one process of a job."""
    keep_freed_memory()  # inherited by forks: buffers that are received into are not paged in again in every call
    between = on_job(partial(among, effort), nproc)
    if between is None:
        return None
    with ticking(len(CODECS), "compressors") as tick:
        speeds, copy = codecs.measure(CODECS, effort.length, tick)
    share = between.hosts.count(between.hosts[0])
    measured = {speed.codec: Codec(speed.encode, speed.decode) for speed in reversed(speeds)}  # the first of its class
    gpu = replace(processor(copy, share, effort.width), codecs=measured)
    return Measurements(between, tuple(speeds), copy, gpu)


def among(effort: Effort, communicator: Communicator) -> Between:
    """Measure pairs and collectives, in every process."""
    names = share_json(socket.gethostname())
    hosts = tuple([*dict.fromkeys(names)].index(name) for name in names)
    with ticking(2 * len(effort.sizes) if dist.get_rank() == 0 else 0, "links and collectives") as tick:
        pairs = links.measure(communicator, effort.rounds, effort.sizes, tick)
        timings = collectives.measure(communicator, hosts, effort.rounds, effort.sizes, tick)
    return Between(hosts, tuple(pairs), tuple(timings))


@contextmanager
def ticking(total: int, name: str) -> Iterator[Callable[[], None]]:
    """A function to call after each of `total` parts, which shows progress on stderr if there are any."""
    parts = count(1)
    with reporter({"steps": total}, Path(name), shown=total > 0) as progress:
        yield lambda: progress(next(parts), {})


def rows(measured: Measurements) -> list[dict[str, Any]]:
    """All numbers, one per row, with their units."""
    between, n = measured.between, len(measured.between.hosts)
    numbers: list[tuple[str, str, int | None, str, float, str]] = []
    for pair in between.pairs:
        where = "same host" if between.hosts[pair.first] == between.hosts[pair.second] else "other host"
        name = f"{pair.first}-{pair.second}, {where}"
        numbers += [("link", name, None, "latency", pair.link.latency, "s")]
        numbers += [("link", name, None, "bandwidth", pair.link.bandwidth, "B/s")]
    for timing in between.timings:
        values = ("time", timing.seconds, "s"), ("algbw", timing.algbw, "B/s"), ("busbw", timing.busbw, "B/s")
        numbers += [("collective", timing.operation, timing.size, *value) for value in values]
    for speed in measured.speeds:
        ways = (speed.encode, speed.decode, "B/s of input"), (speed.encode_share, speed.decode_share, "share of copy")
        for encode, decode, unit in ways:
            numbers += [("compressor", speed.name, None, "encode", encode, unit)]
            numbers += [("compressor", speed.name, None, "decode", decode, unit)]
        numbers += [("compressor", speed.name, None, "vector / message", speed.expansion, "")]
    numbers += [("machine", "memory", None, "copy", measured.copy, "B/s of input")]
    numbers += [
        ("machine", name, None, "matrix product", peak, "FLOP/s") for name, peak in measured.gpu.peak_flops.items()
    ]
    keys = ("part", "subject", "size_bytes", "what", "value", "unit", "processes")
    return [dict(zip(keys, (*row[:4], float(f"{row[4]:.4g}"), row[5], n), strict=True)) for row in numbers]


def agreement(between: Between, cluster: Cluster) -> list[tuple[Timing, float]]:
    """Each operation on the largest messages, and its seconds as modelled on a cluster, where that has such links."""
    largest = max(timing.size for timing in between.timings)
    every = [(timing, modelled(timing, cluster)) for timing in between.timings if timing.size == largest]
    return [(timing, seconds) for timing, seconds in every if seconds]  # nodes of one GPU have nothing inside


def modelled(timing: Timing, cluster: Cluster) -> float:
    """The seconds of an operation on a cluster, whose GPUs are as many as the processes."""
    operation, n, size, machine = timing.operation, timing.n, timing.size, cluster.with_gpus(timing.n)
    groups = Groups.first(machine, machine.local if operation == collectives.INSIDE else n)
    if operation in ALGORITHMS:
        return float(all_reduce(groups, size, ALGORITHMS[operation]))
    if operation == collectives.ALL_GATHER:
        return float(all_gather(groups, size / n))
    return float(server(groups, size) if operation == "server" else point_to_point(groups, size))
