"""Exit codes of the process of a cell, and what they mean in words."""

from __future__ import annotations

import signal
from pathlib import Path

BUSY, CLOSED = 75, 73  # exit codes of a cell: another process runs it; its folder cannot be written


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
