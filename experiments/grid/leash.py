"""Processes that end with whoever has begun them, however that ends. Linux does it; elsewhere nothing happens.

The server that forks processes imports this first: it is deaf, and would go on importing for nobody.
"""

from __future__ import annotations

import ctypes
import signal
import sys

PARENT_DEATH_SIGNAL = 1  # of prctl


def end_with_parent(number: signal.Signals) -> None:
    """Let this process get a signal when its parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(number))


if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    end_with_parent(signal.SIGKILL)
