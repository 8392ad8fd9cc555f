"""A measurement on several processes: those of a job that torchrun or srun has started, else forks of this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import torch.distributed as dist

from commeff import Communicator
from commeff.communicator.wire.group import joined, store_at, within
from commeff.experiments.measure.bench.lockstep import TIMEOUT, on_forks
from commeff.experiments.measure.bench.timing import one_thread
from commeff.experiments.run.launch.membership import membership

T = TypeVar("T")

FORKS = 4


def together(measure: Callable[[Communicator], T], nproc: int | None) -> T | None:
    """What `measure` gives at rank 0, on one worker a process, over gloo; None at the other ranks of a job.

    nproc : forks; 4 unless told. A job has its own number of processes.
    """
    member = membership(os.environ)
    if member is None:
        count = FORKS if nproc is None else nproc
        if count < 2:
            raise ValueError(f"{count} processes were asked for; a link has two ends, so take --nproc 2 or more")
        return on_forks(count, count, measure)
    if nproc not in (None, member.size):
        raise ValueError(f"--nproc {nproc} was asked for but the launcher has started {member.size}; leave it away")
    serve = member.serves and member.rank == 0
    everywhere = store_at(member.address, member.port, serve=serve, timeout=TIMEOUT)
    meeting = within(everywhere, f"commeff/bench/{member.job}")
    with one_thread(), joined(member.rank, member.size, meeting, TIMEOUT):
        found = measure(Communicator.per_process())
    return found if member.rank == 0 else None


def everybody(value: T) -> list[T]:
    """The value of each process, in the order of ranks, at every process."""
    found: list[T | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found  # type: ignore[return-value]
