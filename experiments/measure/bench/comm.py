"""`commeff bench comm`: the links between processes, collectives over them, compressors, and the machine's own speeds.

Everything is measured on CPU tensors over gloo, with one thread a process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from commeff import Communicator
from commeff.cluster import GPU, Cluster
from commeff.cluster.placed import ring
from commeff.experiments.measure.bench import codecs, collectives, links
from commeff.experiments.measure.bench.codecs import CODECS, Speed
from commeff.experiments.measure.bench.collectives import Timing
from commeff.experiments.measure.bench.links import Pair
from commeff.experiments.measure.bench.processor import WIDTH, processor
from commeff.experiments.measure.bench.profile import described
from commeff.experiments.measure.bench.together import everybody, together
from commeff.experiments.run.progress import reporter
from commeff.training.allocator import keep_freed_memory

ROUNDS = 5


@dataclass(frozen=True)
class Effort:
    """How much is measured; less in tests."""

    sizes: Sequence[int] = links.SIZES
    rounds: int = ROUNDS
    length: int = codecs.LENGTH
    width: int = WIDTH


@dataclass(frozen=True)
class Between:
    """What was measured among processes. hosts: on which host each is, by number."""

    hosts: tuple[int, ...]
    pairs: tuple[Pair, ...]
    timings: tuple[Timing, ...]


@dataclass(frozen=True)
class Measured:
    """What was measured. copy: bytes per second."""

    between: Between
    speeds: tuple[Speed, ...]
    copy: float
    gpu: GPU

    def cluster(self, name: str) -> Cluster:
        """The hardware profile."""
        return described(name, self.between.hosts, self.between.timings, self.gpu)


def run(nproc: int | None = None, effort: Effort = Effort()) -> Measured | None:
    """Everything; None at all but one process of a job."""
    keep_freed_memory()  # of forks too: what is received into is not paid for again in every call
    between = together(partial(among, effort), nproc)
    if between is None:
        return None
    with ticking(len(CODECS), "compressors") as tick:
        speeds, copy = codecs.measure(CODECS, effort.length, tick)
    share = between.hosts.count(between.hosts[0])
    return Measured(between, tuple(speeds), copy, processor(copy, share, effort.width))


def among(effort: Effort, communicator: Communicator) -> Between:
    """Pairs and collectives, as every process measures them."""
    names = everybody(socket.gethostname())
    hosts = tuple([*dict.fromkeys(names)].index(name) for name in names)
    with ticking(2 * len(effort.sizes) if dist.get_rank() == 0 else 0, "links and collectives") as tick:
        pairs = links.measure(communicator, effort.rounds, effort.sizes, tick)
        timings = collectives.measure(communicator, hosts, effort.rounds, effort.sizes, tick)
    return Between(hosts, tuple(pairs), tuple(timings))


@contextmanager
def ticking(total: int, name: str) -> Iterator[Callable[[], None]]:
    """What is called after each of `total` parts to show progress on stderr; with none to come it shows nothing."""
    if not total:
        yield lambda: None
        return
    done = 0
    with reporter(total, Path(name)) as progress:

        def tick() -> None:
            nonlocal done
            done += 1
            progress(done, {})

        yield tick


def rows(measured: Measured) -> list[dict[str, Any]]:
    """Every number, one a row, with its unit."""
    between, n = measured.between, len(measured.between.hosts)
    found: list[tuple[str, str, int | None, str, float, str]] = []
    for pair in between.pairs:
        where = "same host" if between.hosts[pair.first] == between.hosts[pair.second] else "other host"
        name = f"{pair.first}-{pair.second}, {where}"
        found += [("link", name, None, "latency", pair.link.latency, "s")]
        found += [("link", name, None, "bandwidth", pair.link.bandwidth, "B/s")]
    for timing in between.timings:
        name, size = timing.operation, timing.size
        found += [("collective", name, size, "time", timing.seconds, "s")]
        found += [("collective", name, size, "algbw", timing.algbw, "B/s")]
        found += [("collective", name, size, "busbw", timing.busbw, "B/s")]
    for speed in measured.speeds:
        found += [("compressor", speed.name, None, "encode", speed.encode, "B/s of input")]
        found += [("compressor", speed.name, None, "decode", speed.decode, "B/s of input")]
        found += [("compressor", speed.name, None, "encode", speed.encode_share, "share of copy")]
        found += [("compressor", speed.name, None, "decode", speed.decode_share, "share of copy")]
        found += [("compressor", speed.name, None, "vector / message", speed.expansion, "")]
    found += [("machine", "memory", None, "copy", measured.copy, "B/s of input")]
    found += [
        ("machine", name, None, "matrix product", peak, "FLOP/s") for name, peak in measured.gpu.peak_flops.items()
    ]
    keys = ("part", "subject", "size_bytes", "what", "value", "unit", "processes")
    return [dict(zip(keys, (*row[:4], float(f"{row[4]:.4g}"), row[5], n), strict=True)) for row in found]


def agreement(measured: Measured, cluster: Cluster) -> tuple[int, float, float]:
    """The largest message, and the seconds of our ring on it: measured, and modelled on the profile."""
    own = [timing for timing in measured.between.timings if timing.operation == "ring"]
    largest = max(own, key=lambda timing: timing.size)
    return largest.size, largest.seconds, ring(cluster, largest.n, largest.size)
