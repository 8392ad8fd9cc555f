"""Every process that a test starts is owned: it ends with its test, and with the test process, however these end.

What owns is a pipe, the lifeline. The test process holds its writing end, and no other process does. Whoever is started
opens the reading end anew and asks the kernel for SIGKILL when the writing end is gone: closed at the end of the test,
or with a test process that was killed. Forks of forks do the same by themselves, in whatever session they are.

Tests start processes by `start`, `run`, `process` and `fork`, and by what stands on them in `tests.forks`.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

PATIENCE = 300.0  # seconds that a test waits for what comes at once on a machine that has nothing else to do
PAUSE = 0.02  # seconds between two looks
SET_SIGNAL = 10  # F_SETSIG of fcntl.h


@dataclass
class Lifeline:
    """A pipe, both ends in the process that made it; in another one `writer` is -1, and `reader` its own."""

    reader: int
    writer: int
    started: list[subprocess.Popen[str]] = field(default_factory=list)
    forked: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inode = os.fstat(self.reader).st_ino


_lines = [Lifeline(*os.pipe())]  # the last one owns what is started


@contextmanager
def lifeline() -> Iterator[None]:
    """Own what is started inside; whoever is left at the end is killed."""
    line = Lifeline(*os.pipe())
    _lines.append(line)
    try:
        yield
    finally:
        _lines.remove(line)
        if line.writer >= 0:
            os.close(line.writer)
        for process in line.started:
            process.wait()
        until(lambda: not any(map(alive, line.forked)), "the end of what was killed")
        os.close(line.reader)


def start(words: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """`subprocess.Popen` of text, in a session of its own; all its group is owned."""
    line = _lines[-1]
    inner, kept = options.pop("preexec_fn", lambda: None), os.open(f"/proc/self/fd/{line.reader}", os.O_RDONLY)

    def prepare() -> None:
        _tie(kept)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it in what it starts in the background
        inner()

    options |= {"pass_fds": (*options.get("pass_fds", ()), kept), "start_new_session": True, "text": True}
    try:
        process = subprocess.Popen(words, preexec_fn=prepare, **options)
    finally:
        os.close(kept)
    line.started.append(process)
    return process


def run(words: Sequence[str], *, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with what it prints as text, or where `stdout` and `stderr` say."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(words, **(streams | options))
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert not check or process.returncode == 0, f"{words[0]} ended with {process.returncode}: {err}"
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def process(target: Callable[..., object], args: Sequence[Any] = ()) -> BaseProcess:
    """A fork of this process that will call a function, not started yet."""
    return multiprocessing.get_context("fork").Process(target=target, args=tuple(args))


def fork() -> int:
    """`os.fork`."""
    line, child = _lines[-1], os.fork()
    if child:
        line.forked.append(child)
    return child


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for whoever started it does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(PAUSE)


def kept() -> int:
    """The descriptor that a fork must not close."""
    return _lines[-1].reader


def _tie(reader: int) -> None:
    """Have the kernel kill this process, and its group where it leads one, when nobody holds the writing end."""
    this = os.getpid()
    fcntl.fcntl(reader, fcntl.F_SETOWN, -this if os.getpgid(0) == this else this)
    fcntl.fcntl(reader, SET_SIGNAL, signal.SIGKILL)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    with suppress(BlockingIOError):
        if not os.read(reader, 1):  # it was gone before
            os.kill(this, signal.SIGKILL)


def tie_again() -> None:
    """Tie a fork, which has copies of its parent's descriptors."""
    for line in _lines:
        if line.writer >= 0:
            os.close(line.writer)
            line.writer = -1
    line = _lines[-1]
    line.started.clear()
    line.forked.clear()
    reader = os.open(f"/proc/self/fd/{line.reader}", os.O_RDONLY | os.O_NONBLOCK)
    if os.fstat(reader).st_ino == line.inode:  # else the descriptor was closed, and is something else's by now
        line.reader = reader
        _tie(reader)


os.register_at_fork(after_in_child=tie_again)
