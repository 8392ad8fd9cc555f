"""Processes that end with whoever has begun them, however that ends. Linux does it; elsewhere nothing happens."""

from __future__ import annotations

import ctypes
import signal
import sys

PARENT_DEATH_SIGNAL = 1  # of prctl


def end_with_parent(number: signal.Signals = signal.SIGKILL) -> None:
    """Let this process get a signal when its parent has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(number))
