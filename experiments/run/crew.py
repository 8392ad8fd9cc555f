"""n forks of this process that end together: with their results, when one of them fails, or when this process dies.

    with crew(4, lambda fork: fork.rank ** 2) as forks:
        forks.results()                                      # [0, 1, 4, 9]

Forks import nothing again and see everything that this process has made. They may join a torch.distributed group
(`Fork.group`), report progress, and are told when to stop.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import torch

from commeff.communicator.wire.group import enough_files, joined, store_in_file
from commeff.experiments.run.launch.rendezvous import MemberLost
from commeff.experiments.run.progress import Stop, stop_on_signals
from commeff.files import private_folder
from commeff.training.documents import CheckpointRefused

POLL = 0.5  # seconds between two looks whether the parent lives and whether the run should stop
GRACE = 0.5  # seconds that the others have to report, once one has failed
T = TypeVar("T")


@dataclass
class Fork:
    """One process of a crew, as its own work sees it.

    Attributes
    ----------
    rank, size : which process of how many.
    stop : is set by SIGINT, SIGTERM and the parent's request; work that can stop early looks at it.
    """

    rank: int
    size: int
    stop: Stop
    meeting: Path
    connection: Connection

    def report(self, *values: Any) -> None:
        """Send values to the `progress` of `Crew.results`."""
        self.send("progress", values)

    def send(self, kind: str, value: Any) -> None:
        """Send by value: torch would hand over tensors by descriptors, which die with this process."""
        self.connection.send_bytes(pickle.dumps((kind, value)))

    def group(self, timeout: float, device: torch.device | str = "cpu") -> AbstractContextManager[None]:
        """Join the torch.distributed group of all forks; who waits for another gives up after `timeout` seconds.

        They talk over the loopback, where nobody else listens, unless GLOO_SOCKET_IFNAME names another interface.
        """
        if sys.platform == "linux":
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        return joined(self.rank, self.size, store_in_file(self.meeting, self.size), timeout, device)


@dataclass
class Crew(Generic[T]):
    """The forks, as their parent sees them."""

    processes: list[BaseProcess] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    name: Callable[[int], str] = "process {}".format

    @property
    def pids(self) -> list[int | None]:
        """The process ids by rank."""
        return [process.pid for process in self.processes]

    def results(
        self,
        progress: Callable[..., None] = lambda *values: None,
        stop: Stop | None = None,
        grace: float = GRACE,
    ) -> list[T]:
        """Wait for the results of the work, by rank.

        Parameters
        ----------
        progress : is called with whatever a fork reports.
        stop : once requested, all forks are asked to stop; they still return their results.
        grace : seconds that the others have to report, once one has failed.

        Raises
        ------
        MemberLost: a fork raised an error or died; its traceback is a note of the error.
        CheckpointRefused: a fork refused what it was to go on from; the errors of the others follow from that.
        """
        results, failed, deadline = dict[int, T](), dict[int, Any](), math.inf
        while (running := {*range(len(self.processes))} - {*results, *failed}) and time.monotonic() < deadline:
            if stop is not None and stop.requested:
                stop = None  # once
                for connection in self.connections:
                    with suppress(OSError):
                        connection.send("stop")
            for rank, kind, value in self._messages(running):
                if kind == "progress":
                    progress(*value)
                elif kind == "result":
                    results[rank] = value
                else:
                    failed[rank] = value
                    deadline = min(deadline, time.monotonic() + grace)
        if failed:
            raise self._failure(failed)
        return [results[rank] for rank in range(len(self.processes))]

    def _messages(self, ranks: set[int]) -> Iterator[tuple[int, str, Any]]:
        """The messages of the forks of these ranks since; ("died", exit code) of those that will send nothing more."""
        by_connection = {self.connections[rank]: rank for rank in ranks}
        ready = wait([*by_connection], timeout=POLL)
        for connection, rank in by_connection.items():
            process = self.processes[rank]
            # a fork that is gone may leave children behind, which keep its end of the connection open
            over = connection not in ready and not process.is_alive()
            try:
                if over and not connection.poll():
                    raise EOFError
                if connection in ready or over:
                    yield rank, *pickle.loads(connection.recv_bytes())
            except (EOFError, OSError):
                process.join(GRACE)
                yield rank, "died", process.exitcode

    def _failure(self, failed: dict[int, Any]) -> MemberLost | CheckpointRefused:
        """Why the crew failed: a refusal comes first, then a fork that died; the errors of others follow from it."""
        if refusals := [value for value in failed.values() if isinstance(value, str)]:
            return CheckpointRefused(refusals[0])
        dead = {rank: value for rank, value in failed.items() if not isinstance(value, tuple)}
        lines = [f"{self.name(rank)} died with exit code {code}" for rank, code in sorted(dead.items()) if code]
        lines = lines or [f"{self.name(rank)} ended without a result" for rank in sorted(dead)]
        raised = {rank: value for rank, value in failed.items() if rank not in dead}
        if not lines:
            rank, (reason, _) = next(iter(raised.items()))
            lines = [f"{self.name(rank).rstrip(',')}: {reason}"]
        error = MemberLost("; ".join(lines))
        for rank, (_, trace) in raised.items():
            error.add_note(f"{self.name(rank).rstrip(',')}:\n{trace}")
        return error


@contextmanager
def crew(
    size: int,
    work: Callable[[Fork], T],
    prepare: Callable[[int], None] = lambda rank: None,
    name: Callable[[int], str] = "process {}".format,
) -> Iterator[Crew[T]]:
    """Start `size` forks that do `work`; whatever ends the context ends them.

    Parameters
    ----------
    size : forks to start.
    work : what each does; its result goes to `Crew.results`, which needs it to be picklable.
    prepare : called first with the rank, before a fork has any other thread, such as to enter a network namespace.
    name : what a rank is called when it fails.
    """
    context, forks = multiprocessing.get_context("fork"), Crew[T](name=name)
    with private_folder() as folder:
        try:
            for rank in range(size):
                with enough_files(size):
                    parent_end, fork_end = context.Pipe()
                    fork = Fork(rank, size, Stop(), folder / "meeting", fork_end)
                    process: BaseProcess = context.Process(target=_run, args=(fork, work, prepare))
                    process.start()
                fork_end.close()
                forks.processes.append(process)
                forks.connections.append(parent_end)
            yield forks
        finally:
            for process in forks.processes:
                process.kill()
            for process in forks.processes:
                process.join()


def _run(fork: Fork, work: Callable[[Fork], T], prepare: Callable[[int], None]) -> NoReturn:
    """The whole life of a fork."""
    with stop_on_signals(fork.stop, again=False):
        try:
            prepare(fork.rank)
            threading.Thread(target=_follow_parent, args=(fork, os.getppid()), daemon=True).start()
            fork.send("result", work(fork))
        except CheckpointRefused as refusal:
            with suppress(OSError):
                fork.send("refused", str(refusal))
        except BaseException as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            with suppress(OSError):
                fork.send("error", (reason, traceback.format_exc()))
        leave(0)


def leave(code: int) -> NoReturn:
    """End this process at once: everything is on disk, and destructors may wait for ever in a broken group."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _follow_parent(fork: Fork, parent: int) -> None:
    """Pass on the parent's request to stop; end with the parent."""
    while os.getppid() == parent:
        try:
            if fork.connection.poll(POLL):
                fork.connection.recv()
                fork.stop.requested = True
        except (EOFError, OSError):
            time.sleep(POLL)
    os._exit(1)
