"""Timing on several processes: a block of steps begins everywhere at once, and takes as long as at the slowest."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from commeff import Communicator
from commeff.communicator.wire.group import joined, store_in_file
from commeff.experiments.measure.bench.timing import interleaved, one_thread
from commeff.experiments.run.orphans import end_with_parent

TIMEOUT = 120.0  # seconds after which a process that waits for another gives up

T = TypeVar("T")


def on_forks(
    nproc: int, workers: int, measure: Callable[[Communicator], T], begin: Callable[[int], None] = lambda rank: None
) -> T:
    """What `measure` gives at rank 0 of nproc forks, of one thread each, which share the workers over gloo.

    They end together: when one fails, the others are ended, and what it said is raised here. `begin` is what a fork
    does first, given its rank.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        members, lines = [], []
        try:
            for rank in range(nproc):
                ours, theirs = context.Pipe(duplex=False)
                arguments = (rank, nproc, workers, measure, begin, Path(folder, "meeting"), theirs)
                members.append(context.Process(target=_member, args=arguments))
                members[-1].start()
                theirs.close()
                lines.append(ours)
            return _answers(lines)[0]
        finally:
            for member in members:
                member.kill()
                member.join()


def _answers(lines: list[Connection]) -> list[Any]:
    """What the members say, in the order of their ranks."""
    answers: dict[int, Any] = {}
    while len(answers) < len(lines):
        silent = [line for rank, line in enumerate(lines) if rank not in answers]
        for line in (line for line in wait(silent) if isinstance(line, Connection)):
            rank = lines.index(line)
            try:
                good, answer = line.recv()
            except EOFError:
                good, answer = False, "it died"
            if not good:
                raise RuntimeError(f"process {rank} of the bench: {answer}")
            answers[rank] = answer
    return [answers[rank] for rank in range(len(lines))]


def _member(
    rank: int,
    nproc: int,
    workers: int,
    measure: Callable[[Communicator], Any],
    begin: Callable[[int], None],
    meeting: Path,
    line: Connection,
) -> None:
    """What a fork does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    end_with_parent()  # also if it cannot
    try:
        begin(rank)
        with one_thread(), joined(rank, nproc, store_in_file(meeting, nproc), TIMEOUT):
            answer = measure(Communicator(workers=workers, distributed=True))
        line.send((True, answer))
    except Exception as error:
        line.send((False, f"{type(error).__name__}: {' '.join(str(error).split())}"))


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
