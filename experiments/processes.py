"""One run on several processes of this machine, which share its workers and talk over gloo."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from commeff.communicator import Communicator
from commeff.communicator.processes import joined

TIMEOUT = 300.0  # seconds after which a process that waits for another gives up
LOOK = 0.5  # seconds between two looks whether the parent is alive
BETWEEN = 0.25  # seconds between two notes of progress

Progress = Callable[[int, dict[str, Any]], None]


@dataclass
class Stop:
    """Whether somebody asked the run to stop."""

    asked: bool = False

    def __call__(self) -> bool:
        return self.asked


class Seldom:
    """Passes progress on, a few times a second at most."""

    def __init__(self, tell: Progress) -> None:
        self._tell, self._told = tell, 0.0

    def __call__(self, step: int, row: dict[str, Any]) -> None:
        if time.monotonic() - self._told > BETWEEN:
            self._told = time.monotonic()
            self._tell(step, row)


Train = Callable[[Communicator, Progress, Stop], dict[str, Any]]


def on_processes(config: Mapping[str, Any], train: Train, progress: Progress, stop: Stop) -> dict[str, Any]:
    """`train` on nproc forked processes; the summary of rank 0.

    They end together: when one fails, the others are ended and its error is raised here; when this process dies, all
    end at once. The forks hold the lock of the run's folder, so nobody runs it while one of them lives.
    """
    size, context = config["nproc"], multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        members: dict[Connection, BaseProcess] = {}
        for rank in range(size):
            ours, theirs = context.Pipe()
            arguments = (rank, dict(config), train, Path(folder, "meeting"), theirs)
            process: BaseProcess = context.Process(target=_member, args=arguments)
            process.start()
            theirs.close()
            members[ours] = process
        try:
            return _attended(members, progress, stop)
        finally:
            for process in members.values():
                process.kill()
                process.join()


def _attended(members: dict[Connection, BaseProcess], progress: Progress, stop: Stop) -> dict[str, Any]:
    """Pass on what the members say until all have given their summaries."""
    ranks, told, summaries = {line: rank for rank, line in enumerate(members)}, False, dict[int, dict[str, Any]]()
    open_lines = list(members)
    while len(summaries) < len(members):
        if stop() and not told:
            told = True
            for line in members:
                with suppress(OSError):
                    line.send("stop")
        for line in [line for line in wait(open_lines, timeout=LOOK) if isinstance(line, Connection)]:
            rank = ranks[line]
            try:
                kind, value = line.recv()
            except (EOFError, OSError):
                kind, value = "error", ("it died", "")
            if kind == "progress":
                progress(*value)
            elif kind == "error":
                raise _reason(rank, value, members.values())
            else:
                summaries[rank] = value
                open_lines.remove(line)
    return summaries[0]


def _reason(rank: int, value: tuple[str, str], members: Iterable[BaseProcess]) -> RuntimeError:
    """Why a member failed: because another one died, if one did, which the others hear of first."""
    time.sleep(LOOK)
    dead = {r: process.exitcode for r, process in enumerate(members) if process.exitcode}
    said = [f"process {r} died with exit code {code}" for r, code in dead.items()] or [f"process {rank}: {value[0]}"]
    error = RuntimeError("; ".join(said))
    error.add_note(value[1])
    return error


def _member(rank: int, config: dict[str, Any], train: Train, meeting: Path, line: Connection) -> None:
    """What a fork does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop = Stop()
    threading.Thread(target=_follow, args=(line, stop, os.getppid()), daemon=True).start()

    def tell(step: int, row: dict[str, Any]) -> None:
        if rank == 0:
            line.send(("progress", (step, row)))

    try:
        with joined(rank, config["nproc"], meeting, TIMEOUT):
            communicator = Communicator(workers=config["workers"], seed=config["seed"], distributed=True)
            summary = train(communicator, Seldom(tell), stop)
        line.send(("summary", summary))
    except Exception as error:
        with suppress(OSError):
            line.send(("error", (f"{type(error).__name__}: {' '.join(str(error).split())}", traceback.format_exc())))
    os._exit(0)


def _follow(line: Connection, stop: Stop, parent: int) -> None:
    """Hear the parent's word to stop; end when it is gone."""
    while os.getppid() == parent:
        try:
            if line.poll(LOOK):
                line.recv()
                stop.asked = True
        except (EOFError, OSError):
            time.sleep(LOOK)
    os._exit(1)
