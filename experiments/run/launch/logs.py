"""RUN/logs/rank{r}.log: the output of a member of a run, apart from the lines that belong on the terminal."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from commeff.files import regular


class Output:
    """The destination of the output of one member.

    Rank 0 keeps the terminal for its own lines; all else, and what libraries write past Python, goes to the log: to a
    temporary file first, since a run that never begins leaves no log.

    Parameters
    ----------
    rank, size : this member, and how many there are.
    """

    def __init__(self, rank: int, size: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.rank, self.size = rank, size
        self.terminal = os.fdopen(os.dup(2), "w", buffering=1)
        self._early = tempfile.TemporaryFile()  # noqa: SIM115
        self._redirect(self._early.fileno())
        if rank == 0:
            sys.stderr = self.terminal

    def into(self, folder: Path) -> None:
        """Write to the log in the run's folder from here on, beginning with the output so far.

        A folder that cannot be written gets nothing.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        now, host = time.strftime("%Y-%m-%d %H:%M:%S"), socket.gethostname()
        header = f"{now} process {self.rank} of {self.size} on {host}, pid {os.getpid()}\n"
        self._early.seek(0)
        with suppress(OSError):
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            with open(folder / "logs" / f"rank{self.rank}.log", "ab", buffering=0, opener=regular) as log:
                log.write(header.encode() + self._early.read())
                self._redirect(log.fileno())

    def say(self, line: str) -> None:
        """Print a line on the terminal."""
        with suppress(OSError):
            print(f"commeff: {line}", file=self.terminal, flush=True)

    def note(self, text: str) -> None:
        """Write a text into the log."""
        with suppress(OSError):
            os.write(2, text.rstrip("\n").encode() + b"\n")

    def _redirect(self, descriptor: int) -> None:
        os.dup2(descriptor, 2)
        if self.rank > 0:
            os.dup2(descriptor, 1)
