"""Runs of several processes, started as srun and torchrun start them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import typer

from commeff.experiments.cli.runs import train
from tests import forks
from tests.owned import fork, until


class Srun:
    """n forks of this process, each with the environment that srun gives to its tasks, which speak into one file.

    A context: whoever is left when it ends is killed.
    """

    def __init__(
        self,
        n: int,
        folder: Path,
        words: Sequence[str],
        *,
        each: Callable[[int], Sequence[str]] = lambda rank: (),
        environment: Mapping[str, str] | None = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.folder, self.store = folder, folder / "store"
        self.terminal = folder / f"terminal{random.randrange(2**40)}"
        job = {"SLURM_JOB_ID": str(random.randrange(10**6)), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(n)}
        common = {**job, "SLURM_JOB_NODELIST": "localhost", "COMMEFF_TIMEOUT": "120", **(environment or {})}
        self.pids = [
            self._fork([*words, *each(rank)], common | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)})
            for rank in (range(n) if ranks is None else ranks)
        ]

    def _fork(self, words: Sequence[str], environment: Mapping[str, str]) -> int:
        child = fork()
        if child:
            return child
        code = 99
        try:
            out = os.open(self.terminal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
            os.environ.update(environment)
            train(list(words), self.store, None, True)
        except typer.Exit as refused:
            code = refused.exit_code
        finally:
            os._exit(code)

    def codes(self) -> list[int]:
        """The exit codes of all, minus the signal's number for those that were killed."""
        found: dict[int, int] = {}

        def all_ended() -> bool:
            for pid in self.pids:
                if pid not in found:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        found[pid] = os.waitstatus_to_exitcode(status)
            return len(found) == len(self.pids)

        until(all_ended, f"{len(self.pids)} processes that speak into {self.terminal}")
        return [found[pid] for pid in self.pids]

    def __enter__(self) -> Srun:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def said(self) -> list[str]:
        """The lines on the terminal, but for warnings of torch."""
        lines = self.terminal.read_text().splitlines()
        noise = [i for i, line in enumerate(lines) if "Warning: " in line]  # the next line shows the code
        return [line for i, line in enumerate(lines) if i not in noise and i - 1 not in noise]

    def summary(self) -> dict[str, Any]:
        """What rank 0 printed."""
        text = "\n".join(self.said())
        found: dict[str, Any] = json.loads(text[text.index("{") :])
        return found


def torchrun(
    n: int, store: Path, words: Sequence[str], restarts: int = 0, stdout: int = PIPE, stderr: int = PIPE
) -> subprocess.Popen[str]:
    """`commeff train` under torchrun."""
    options = [f"--nproc-per-node={n}", f"--max-restarts={restarts}"]
    options += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]  # a free port: tests run side by side
    command = ["train", *words, "--store", str(store)]
    return forks.torchrun(options, command, stdout=stdout, stderr=stderr)


def checkpointed(store: Path) -> Path:
    """Wait for the first checkpoint of the one run in a store; its folder."""
    until(lambda: list(store.glob("*/checkpoints/latest.pt")), "a checkpoint")
    return next(store.glob("*/checkpoints/latest.pt")).parents[1]


def children(parent: int) -> list[int]:
    """The processes that a process has started and that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid = path.read_text().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(ppid) == parent and state != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def gone(pids: Sequence[int]) -> bool:
    """Wait until none of the processes is there."""
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), f"the end of {pids}")
    return True
