"""Processes forked from a server that has imported torch already, so that even those of a second are cheap."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import TypeVar, cast

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.exit_codes import death

# What every process would import anew otherwise.
PRELOAD = (
    "commeff.experiments.grid.local.fork_guard",  # first, so that it ends with us also while it imports the rest
    "torch._dynamo",  # which torch.optim imports
    "commeff.experiments.grid.local.cell",
    "commeff.experiments.tasks",
    "commeff.methods",
    "commeff.experiments.grid.plan.rehearsal",
    "sklearn.datasets",
    "sklearn.model_selection",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # are for us: whoever we start hears from us
T = TypeVar("T")


class Server:
    """Forks processes, each at the other end of a line; it begins with the first of them and ends with us."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["__main__", *PRELOAD])

    def start(self, target: Callable[..., object], *arguments: object) -> tuple[BaseProcess, Connection]:
        """Call `target(*arguments, line)` in a process; the process, and our end of the line.

        It is deaf to Ctrl-C and SIGTERM until it sets handlers of its own; so is the server, also while it imports.
        """
        resource_tracker.ensure_running()  # is protected in the same way, and would let go of the signals
        with _held_back():
            forkserver.ensure_running()
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_deaf, args=(target, *arguments, theirs))
        try:
            process.start()
        except (EOFError, ConnectionError):
            raise ConfigError(["the server that forks processes has ended; is there enough memory?"]) from None
        theirs.close()
        return process, ours

    def apart(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in such a process, whose imports this process can spare."""
        process, line = self.start(_answer, function, arguments)
        try:
            found, answer = line.recv()
        except EOFError:
            process.join()
            raise ConfigError([f"planning was {death(process.exitcode)}; is there enough memory?"]) from None
        except BaseException:  # Ctrl-C
            process.kill()
            raise
        process.join()
        if not found:
            raise answer
        return cast(T, answer)


@contextmanager
def _held_back() -> Iterator[None]:
    """Hold signals back, and hear them afterwards. A process that is begun meanwhile holds back its own for ever.

    Ignoring them would make it as deaf, but what comes for us meanwhile would be lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _deaf(target: Callable[..., object], *arguments: object) -> None:
    """Ignore the signals instead of holding them back, so that a handler, once the target sets one, hears them."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    target(*arguments)


def _answer(function: Callable[..., object], arguments: tuple[object, ...], line: Connection) -> None:
    def follow() -> None:
        with suppress(EOFError, OSError):
            line.recv()
        os._exit(1)  # nobody waits for the answer

    os.setsid()  # Ctrl-C is for whoever asked
    os.dup2(2, 1)  # and so is what a plug-in prints, but not as an answer
    threading.Thread(target=follow, daemon=True).start()
    try:
        answer: tuple[bool, object] = (True, function(*arguments))
    except Exception as error:  # is raised again by whoever asked
        answer = (False, error)
    with suppress(OSError):
        line.send(answer)
