"""Processes forked from a server that has imported torch already, so that starting one costs milliseconds; and how they
ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar, cast

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.orphans import end_with_parent
from commeff.files import make, remove

# Every process would import these anew otherwise.
PRELOAD = (
    "commeff.experiments.run.orphans",  # first, so that it ends with us also while it imports the rest
    "torch._dynamo",  # which torch.optim imports
    "commeff.experiments.grid.local.cell",
    "commeff.experiments.tasks",
    "commeff.methods",
    "commeff.experiments.grid.plan.expand",
    "commeff.experiments.config.build",
    "sklearn.datasets",
    "sklearn.model_selection",
)
LONGEST = 60  # bytes of a path: a socket has 107, its folder and its own name included
SHORT = ("/tmp", "/var/tmp", "/dev/shm")
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # handled by this process, which tells those it starts
BUSY, CLOSED = 75, 73  # exit codes of a cell: another process runs it; its folder cannot be written
T = TypeVar("T")


class ForkServer:
    """A fork server, started with the first process; it ends with this one. Each process has a connection to us."""

    def __init__(self) -> None:
        own_temporary_folder()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", *PRELOAD])

    def start(self, target: Callable[..., object], *arguments: object) -> tuple[BaseProcess, Connection]:
        """Call `target(*arguments, connection)` in a new process.

        It ignores Ctrl-C and SIGTERM until it sets handlers of its own; so does the server, also while it imports.

        Returns
        -------
        process, connection : the process, and our end of the connection.
        """
        resource_tracker.ensure_running()  # it unblocks the signals when it starts, so it has to run already
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the server inherits it; ignored ones would be lost
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        local_end, remote_end = self._context.Pipe()
        process = self._context.Process(target=_ignore_signals, args=(target, *arguments, remote_end))
        try:
            process.start()
        except (EOFError, ConnectionError):
            raise ConfigError(["the fork server has ended; is there enough memory?"]) from None
        remote_end.close()
        return process, local_end

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in such a process, so that this process need not import what the function needs."""
        process, connection = self.start(_answer, function, arguments)
        try:
            succeeded, answer = connection.recv()
        except EOFError:
            process.join()
            raise ConfigError([f"planning was {describe_exit(process.exitcode)}; is there enough memory?"]) from None
        except BaseException:  # Ctrl-C
            process.kill()
            raise
        process.join()
        if not succeeded:
            raise answer
        return cast(T, answer)


def own_temporary_folder() -> None:
    """Let `multiprocessing` put its sockets into a private folder, where their path fits also if TMPDIR is too long.

    It would make one itself, which nobody removes after a SIGKILL.
    """
    before = tempfile.tempdir
    if len(os.fsencode(tempfile.gettempdir())) > LONGEST:
        tempfile.tempdir = next((place for place in SHORT if os.access(place, os.W_OK | os.X_OK)), before)
    try:
        folder, lock = make()
    finally:
        tempfile.tempdir = before
    multiprocessing.current_process()._config["tempdir"] = str(folder)  # type: ignore[attr-defined]
    util.Finalize(None, remove, (folder, lock), exitpriority=-100)  # in this process only, after all that may use it


def _ignore_signals(target: Callable[..., object], *arguments: object) -> None:
    """Ignore the signals instead of blocking them, so that handlers which the target sets will run."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    target(*arguments)


def _answer(function: Callable[..., object], arguments: tuple[object, ...], connection: Connection) -> None:
    os.setsid()  # Ctrl-C is for the caller
    os.dup2(2, 1)  # what a plug-in prints is no part of the command's output
    end_with_parent()  # the server, which ends with the caller
    try:
        answer: tuple[bool, object] = (True, function(*arguments))
    except Exception as error:  # is raised again in the caller
        answer = (False, error)
    with suppress(OSError):
        connection.send(answer)


def describe_exit(code: int | None) -> str:
    """An exit code in words: negative codes are signals.

    >>> describe_exit(-9), describe_exit(1)
    ('ended by SIGKILL', 'ended with exit code 1')
    """
    if code == CLOSED:
        return "ended: its folder cannot be written"
    return f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"


def count_oom_kills() -> int:
    """Count the processes of this control group that the kernel has ended because memory ran out."""
    try:
        events = Path("/sys/fs/cgroup/memory.events").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))
