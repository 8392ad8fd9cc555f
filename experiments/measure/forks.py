"""Timing on several processes, which a job of torchrun or srun has, or which are forks of this one: a block of steps
starts everywhere at once, and takes as long as at the slowest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
import torch.distributed as dist

from commeff import Communicator
from commeff.communicator.wire.group import joined, store_at, within
from commeff.experiments.measure.timing import one_thread, time_interleaved
from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.run.launch.membership import membership
from commeff.experiments.run.system import own_device

TIMEOUT = 120.0  # seconds after which a process that waits for another gives up
FORKS = 4

T = TypeVar("T")


def on_forks(
    nproc: int,
    workers: int,
    measure: Callable[[Communicator], T],
    prepare: Callable[[int], None] = lambda rank: None,
    kind: str = "cpu",
) -> T:
    """Call `measure` on forks of one thread each, which share the workers over gloo; the result of rank 0.

    Parameters
    ----------
    nproc, workers : forks, and the workers that they share.
    measure : is given the communicator of its process.
    prepare : called first in each fork, with its rank.
    kind : of the devices that the communicator's context has: "cpu" or "cuda".
    """

    def member(fork: Fork) -> T:
        device = own_device(kind, fork.rank)
        with one_thread(), fork.group(TIMEOUT, device):
            communicator = Communicator(workers=workers, distributed=True)
            communicator.context.device = device
            return measure(communicator)

    with crew(nproc, member, prepare) as forks:
        return forks.results()[0]


def on_job(measure: Callable[[Communicator], T], nproc: int | None, kind: str = "cpu") -> T | None:
    """Call `measure` on one worker a process, over gloo, and NCCL between GPUs.

    Parameters
    ----------
    measure : is given the communicator of its process.
    nproc : forks, 4 by default. A job has its own number of processes.
    kind : of the devices that the communicator's context has: "cpu" or "cuda".

    Returns
    -------
    T | None
        The result of rank 0; None at the other ranks of a job.
    """
    member = membership(os.environ)
    if member is None:
        count = nproc or FORKS
        return on_forks(count, count, measure, kind=kind)
    if nproc not in (None, member.size):
        raise ValueError(f"--nproc must be {member.size}, as the launcher has started, got {nproc}; leave it out")
    serve = member.serves and member.rank == 0
    everywhere = store_at(member.address, member.port, serve=serve, timeout=TIMEOUT)
    meeting = within(everywhere, f"commeff/bench/{member.job}")
    device = own_device(kind, member.local_rank)
    with one_thread(), joined(member.rank, member.size, meeting, TIMEOUT, device):
        communicator = Communicator()
        communicator.context.device = device
        result = measure(communicator)
    return result if member.rank == 0 else None


def time_in_turns(
    contestants: Mapping[str, Callable[[], object]], rounds: int, calls: int, device: torch.device | str = "cpu"
) -> dict[str, list[float]]:
    """Wall-clock seconds of `calls` calls of each contestant at the slowest process, round by round.

    Every process calls it with the same names in the same order. A first round warms up and does not count.

    Parameters
    ----------
    contestants : what is called, by name.
    rounds : measured rounds.
    calls : of each contestant in a round.
    device : where they work; a block ends when this is done.
    """
    durations: dict[str, list[float]] = {name: [] for name in contestants}

    def block(run: Callable[[], object], seconds: list[float]) -> None:
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        torch.get_device_module(device).synchronize()
        seconds.append(time.perf_counter() - start)

    blocks = {name: lambda run=run, name=name: block(run, durations[name]) for name, run in contestants.items()}
    time_interleaved(blocks, rounds)
    slowest = torch.tensor([seconds[1:] for seconds in durations.values()], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return dict(zip(durations, slowest.tolist(), strict=True))
