"""Network namespaces without names: the kernel removes one, and all that lies in it, with the last process that holds
it. Nothing is left behind, however a process ends.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

NETWORK = 0x40000000  # CLONE_NEWNET of <sched.h>
T = TypeVar("T")


def create() -> int:
    """A new namespace, as a file descriptor: it lives as long as that is open."""

    def unshare() -> int:
        _call("unshare", NETWORK)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return _in_thread(unshare)


def enter(path: str) -> None:
    """Move the calling thread, and all it starts from here on, into the namespace at a path."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", descriptor, NETWORK)
    finally:
        os.close(descriptor)


def run(path: str, commands: Sequence[str], settings: Mapping[str, str] = {}) -> None:
    """Inside the namespace at a path, set variables of the kernel, as named under /proc/sys/net, and run commands of
    the `ip` and `tc` tools.
    """

    def work() -> None:
        enter(path)
        for name, value in settings.items():
            Path("/proc/sys/net", name).write_text(value, encoding="ascii")
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                raise OSError(f"{command}: {' '.join(done.stderr.split())}")

    _in_thread(work)


def _in_thread(work: Callable[[], T]) -> T:
    """What `work` gives in a thread of its own, since threads and not processes are in a namespace."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def _call(name: str, *arguments: int) -> None:
    """A function of the C library that says by -1 that it failed. Python has these from 3.12 on only."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
