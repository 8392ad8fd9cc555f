"""A measurement on several processes: those of a job that torchrun or srun has started, else forks of this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from commeff import Communicator
from commeff.communicator.wire.group import joined, store_at, within
from commeff.experiments.measure.forks import TIMEOUT, on_forks
from commeff.experiments.measure.timing import one_thread
from commeff.experiments.run.launch.membership import membership
from commeff.experiments.run.system import own_device

T = TypeVar("T")

FORKS = 4


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
        count = FORKS if nproc is None else nproc
        if count < 2:
            raise ValueError(f"--nproc must be at least 2, got {count}: a link has two ends")
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
