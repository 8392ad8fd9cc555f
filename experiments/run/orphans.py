"""Processes that end with their parent, however it ends. Linux does it; elsewhere nothing happens.

The fork server, which ignores signals, imports this first, so that it ends with its parent also while it imports.
"""

from __future__ import annotations

import ctypes
import signal
import sys

PARENT_DEATH_SIGNAL = 1  # of prctl


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(number))


if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    end_with_parent()
