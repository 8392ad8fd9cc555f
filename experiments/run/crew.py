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
from types import FrameType
from typing import Any

import torch

from commeff.communicator import Communicator
from commeff.communicator.wire.group import backend, joined, store_in_file
from commeff.experiments.config.build import communicator
from commeff.experiments.run.devices import own_device
from commeff.experiments.run.launch.logs import Output
from commeff.experiments.run.launch.membership import patience
from commeff.experiments.run.launch.rendezvous import MemberLost
from commeff.experiments.run.store import RunFolder
from commeff.experiments.run.system import launch_info, whereabouts

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


def on_processes(
    config: Mapping[str, Any], train: Train, run: RunFolder, progress: Progress, stop: Stop
) -> dict[str, Any]:
    """`train` on nproc forked processes; the summary of rank 0.

    They end together: when one fails, the others are ended and its error is raised here; when this process dies, all
    end at once. The forks hold the lock of the run's folder, so nobody runs it while one of them lives.
    """
    size, context, waits = config["nproc"], multiprocessing.get_context("fork"), patience(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        members: dict[Connection, BaseProcess] = {}
        try:
            for rank in range(size):
                ours, theirs = context.Pipe()
                arguments = (rank, dict(config), train, run, Path(folder, "meeting"), waits, theirs)
                process: BaseProcess = context.Process(target=_member, args=arguments)
                process.start()
                theirs.close()
                members[ours] = process
            places = [whereabouts() | {"pid": process.pid} for process in members.values()]
            run.write(
                "env.json", run.read("env.json") | launch_info("local", backend(config["device"]), places, 0, waits)
            )
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


def _reason(rank: int, value: tuple[str, str], members: Iterable[BaseProcess]) -> MemberLost:
    """Why a member failed: because another one died, if one did, which the others hear of first."""
    time.sleep(LOOK)
    dead = {r: process.exitcode for r, process in enumerate(members) if process.exitcode}
    said = [f"process {r} died with exit code {code}" for r, code in dead.items()] or [f"process {rank}: {value[0]}"]
    error = MemberLost("; ".join(said))
    error.add_note(value[1])
    return error


def _member(
    rank: int, config: dict[str, Any], train: Train, run: RunFolder, meeting: Path, waits: float, line: Connection
) -> None:
    """What a fork does."""
    stop = Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    threading.Thread(target=_follow, args=(line, stop, os.getppid()), daemon=True).start()
    torch.set_num_threads(config["threads"])
    output = Output(rank, config["nproc"])
    output.into(run.path)

    def tell(step: int, row: dict[str, Any]) -> None:
        if rank == 0:
            line.send(("progress", (step, row)))

    try:
        meeting_place, device = store_in_file(meeting, config["nproc"]), own_device(config["device"], rank)
        with joined(rank, config["nproc"], meeting_place, waits, device):
            summary = train(communicator(config, distributed=True), Seldom(tell), stop)
        line.send(("summary", summary))
    except Exception as error:
        output.note(traceback.format_exc())
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
