"""One run, from a resolved configuration to its summary: idempotent, resumable, and written down from the start."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from commeff.checkpoint import Checkpoints
from commeff.communicator import Communicator
from commeff.memory import keep_freed_memory
from commeff.recorder import Recorder
from commeff.trainer import train
from experiments.build import Parts, build
from experiments.processes import Progress, Stop, on_processes
from experiments.schema import ConfigError
from experiments.store import FINISHED, RunFolder
from experiments.system import sys_info

HEARTBEAT = 5.0  # seconds between two notes of progress in status.json


class RunFailed(RuntimeError):
    """A run that stopped with an error of its own; the traceback is in the folder's error.txt."""


class RunBusy(RunFailed):
    """A run that another process holds."""


def run_one(
    config: Mapping[str, Any],
    folder: str | Path,
    progress: Progress = lambda step, row: None,
    stop: Stop | None = None,
) -> dict[str, Any]:
    """Run what `config` says in `folder`, and return the summary with its `state`.

    A finished run is not repeated: its summary is read. An interrupted one goes on from its last checkpoint.
    Ctrl-C, a scheduler's SIGTERM or `stop` ends it after the step under way, with a checkpoint; the state is then
    "killed".

    Raises
    ------
    ConfigError: parts that do not fit, or a folder that cannot be written; nothing has been written then.
    RunBusy: another process runs it.
    RunFailed: an error during training.
    """
    run = RunFolder(folder)
    if run.state in FINISHED:
        return run.read("summary.json")
    keep_freed_memory()
    torch.set_num_threads(config["threads"])
    parts = build(config)
    with ExitStack() as held:
        try:
            own = held.enter_context(run.claimed())
            if run.state in FINISHED:
                return run.read("summary.json")
            if not own:
                who = run.read("status.json").get("pid", "unknown")
                raise RunBusy(f"{run.path} is running in process {who}; wait for it, or stop it first")
            run.create(config, sys_info())
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError([f"{run.path} cannot be written ({reason}); choose another --store"]) from None
        return _held(config, parts, run, progress, stop or Stop())


def _held(config: Mapping[str, Any], parts: Parts, run: RunFolder, progress: Progress, stop: Stop) -> dict[str, Any]:
    """The run, now that it is ours."""
    begun = time.monotonic()
    try:
        (run.path / "error.txt").unlink(missing_ok=True)
        run.mark("running", step=0, steps=config["steps"])
        with stop_signals(stop):
            summary = _train(config, parts, run, _Heartbeat(run, config["steps"], progress), stop)
        if summary["state"] == "stopped":
            summary |= {"state": "killed"}
        else:
            run.write("summary.json", summary)
        wall = max(time.monotonic() - begun, summary.get("seconds", 0.0))
        run.mark(summary["state"], step=summary["steps"], steps=config["steps"], wall=wall)
    except KeyboardInterrupt:
        run.mark("killed")
        raise
    except Exception as error:
        with suppress(OSError):  # a full disk takes neither
            (run.path / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
            run.mark("oom" if _out_of_memory(error) else "failed", error=f"{type(error).__name__}: {error}")
        raise RunFailed(
            f"{type(error).__name__}: {' '.join(str(error).split())}; see {run.path / 'error.txt'}"
        ) from error
    return summary


def _out_of_memory(error: Exception) -> bool:
    """torch has a type for it on GPUs only."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _train(config: Mapping[str, Any], parts: Parts, run: RunFolder, progress: Progress, stop: Stop) -> dict[str, Any]:
    def train_here(communicator: Communicator, progress: Progress, stop: Stop) -> dict[str, Any]:
        """What every process does; rank 0 writes."""
        return train(
            parts.task,
            parts.strategy,
            communicator,
            steps=config["steps"],
            engine=config["engine"],
            evaluate_every=config["evaluate_every"],
            l2=config["l2"],
            recorder=Recorder(run.path) if communicator.transport.rank == 0 else None,
            checkpoints=Checkpoints(run.path / "checkpoints", config["checkpoint_every"]),
            progress=progress,
            should_stop=stop,
        )

    if config["nproc"] == 1:
        return train_here(parts.communicator, progress, stop)
    return on_processes(config, train_here, progress, stop)


@dataclass
class _Heartbeat:
    """Passes progress on, and notes it in status.json every few seconds."""

    run: RunFolder
    steps: int
    progress: Progress
    noted: float = 0.0

    def __call__(self, step: int, row: dict[str, Any]) -> None:
        if time.monotonic() - self.noted > HEARTBEAT:
            self.run.mark("running", step=step, steps=self.steps)
            self.noted = time.monotonic()
        self.progress(step, row)


@contextmanager
def stop_signals(stop: Stop) -> Iterator[None]:
    """The first SIGINT or SIGTERM asks to stop after the step under way; a second SIGINT stops at once."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
