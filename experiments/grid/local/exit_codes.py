"""How the process of a cell has ended, where it could not say so itself."""

from __future__ import annotations

import signal
from pathlib import Path

BUSY, CLOSED = 75, 73  # exit codes of a cell: another process runs it; its folder cannot be written


def death(code: int | None) -> str:
    """What an exit code tells.

    >>> death(-9), death(1)
    ('ended by SIGKILL', 'ended with exit code 1')
    """
    if code == CLOSED:
        return "ended: its folder cannot be written"
    return f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"ended with exit code {code}"


def oom_kills() -> int:
    """How many processes of this control group the kernel has ended for want of memory."""
    try:
        events = Path("/sys/fs/cgroup/memory.events").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))
