"""Timing on several processes: a block of steps begins everywhere at once, and takes as long as at the slowest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
import torch.distributed as dist

from commeff import Communicator
from commeff.experiments.measure.bench.timing import interleaved, one_thread
from commeff.experiments.run.crew import Fork, crew

TIMEOUT = 120.0  # seconds after which a process that waits for another gives up

T = TypeVar("T")


def on_forks(
    nproc: int, workers: int, measure: Callable[[Communicator], T], prepare: Callable[[int], None] = lambda rank: None
) -> T:
    """What `measure` returns at rank 0 of `nproc` forks, of one thread each, which share the workers over gloo.

    prepare : called first in each fork, with its rank.
    """

    def member(fork: Fork) -> T:
        with one_thread(), fork.group(TIMEOUT):
            return measure(Communicator(workers=workers, distributed=True))

    with crew(nproc, member, prepare) as forks:
        return forks.results()[0]


def in_turns(contestants: Mapping[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds of `calls` calls of each contestant at the slowest process, round by round, after one round to warm up.

    Every process calls it with the same names in the same order. These are seconds on the clock: who waits for another
    uses no processor.
    """
    own: dict[str, list[float]] = {name: [] for name in contestants}

    def block(run: Callable[[], object], seconds: list[float]) -> None:
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(calls):
            run()
        seconds.append(time.perf_counter() - begun)

    blocks = {name: lambda run=run, name=name: block(run, own[name]) for name, run in contestants.items()}
    interleaved(blocks, rounds)
    slowest = torch.tensor([seconds[1:] for seconds in own.values()], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return dict(zip(own, slowest.tolist(), strict=True))
