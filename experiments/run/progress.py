"""The progress of a run: shown on stderr, by one live line on a terminal and plain lines elsewhere, and written down;
and the signals that end it.
"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from commeff.experiments.config.contained import interrupt
from commeff.experiments.config.settings import data_skew
from commeff.experiments.run.store import RunFolder

BETWEEN_LINES = 10.0  # seconds, where there is no terminal
BETWEEN_REWRITES = 0.25  # seconds, in a notebook, and between two notes to another process
WIDTH = 100  # letters there, which cover those of the line before
STATUS_INTERVAL = 5.0  # seconds between two writes of progress into status.json

Progress = Callable[[int, dict[str, Any]], None]  # steps done, and the last row of measurements


@dataclass
class Stop:
    """Whether somebody asked the run to stop."""

    requested: bool = False


@contextmanager
def reporter(config: Mapping[str, Any], folder: Path, shown: bool = True) -> Iterator[Progress]:
    """The function that a run calls after every step, with the steps done and the last row of measurements.

    Its first call says the `opening`: a run has forked its processes by then, and asking for a GPU disturbs no fork.
    """
    if not shown:
        yield lambda step, row: None
        return
    with _shown(config, folder) as progress, _resuming():
        untold = [config]

        def show(step: int, row: dict[str, Any]) -> None:
            with suppress(OSError):
                for line in opening([untold.pop()]) if untold else ():
                    print(line, file=sys.stderr)
            progress(step, row)

        yield show


class _Spoken(logging.Handler):
    """Prints what is logged where standard error is by then: forks move it."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            print(record.getMessage(), file=sys.stderr)


@contextmanager
def _resuming() -> Iterator[None]:
    """A run says from which step it goes on, in this process or a fork."""
    log, handler = logging.getLogger("commeff.training.resume"), _Spoken()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)


def opening(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What must be known of runs, each line once: how their workers' data differ, and that they leave a GPU idle."""
    import torch

    skews = dict.fromkeys(filter(None, map(data_skew, configs)))
    lines = [f"the workers' data differ: {skew}; task.partition=iid deals them at random" for skew in skews]
    if any(config.get("device") == "cpu" for config in configs) and torch.cuda.is_available():
        lines.append("computing on the CPU, though this machine has a GPU: device=cuda uses it")
    return lines


@contextmanager
def _shown(config: Mapping[str, Any], folder: Path) -> Iterator[Progress]:
    steps, words = int(config["steps"]), RowWords(config)

    def show(step: int, row: dict[str, Any], head: str = "", width: int = 0, end: str = "\n") -> None:
        with suppress(OSError):  # nobody reads any more; the run goes on
            print(f"{head}step {step}/{steps} {words(row):<{width}}", end=end, file=sys.stderr, flush=True)

    if "ipykernel" in sys.modules:  # one line that is written over and over
        yield Throttled(partial(show, head=f"\r{folder.name}: ", width=WIDTH, end=""), always=steps)
        print(file=sys.stderr)
        return
    if not sys.stderr.isatty():
        yield Throttled(show, BETWEEN_LINES)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(folder.name, total=steps, words="")
        yield lambda step, row: bar.update(task, completed=step, words=words(row))


class RowWords:
    """A run's last row of measurements in a few words: how good the model is, and what training takes.

    Rates and the share of exposed communication are means over `seconds` since the row that was shown before.

    Parameters
    ----------
    config : of the run. Where the task has a `context`, a sample is so many tokens.

    >>> words = RowWords({"task": {"context": 64}})
    >>> words({"step": 5, "samples": 10, "seconds": 2.0, "train_loss": 0.25})
    'train loss 0.25, 320 tokens/s'
    >>> words({"step": 10, "samples": 20, "seconds": 2.5, "exposed_seconds": 0.125, "mfu": 0.37})
    '1,280 tokens/s, 25% exposed, 37.0% MFU'
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._context = config.get("task", {}).get("context")
        self._before, self._row = dict[str, Any](), dict[str, Any]()

    def __call__(self, row: dict[str, Any]) -> str:
        if row.get("step") != self._row.get("step"):
            self._before, self._row = self._row, row
        return ", ".join(filter(None, (quality(row), *self._costs())))

    def _costs(self) -> Iterator[str]:
        names = ("seconds", "samples", "exposed_seconds")
        seconds, samples, exposed = (self._row.get(name, 0) - self._before.get(name, 0) for name in names)
        if "gradient_norm" in self._row:
            yield f"gradient norm {self._row['gradient_norm']:.3g}"
        if seconds > 0:
            rate, unit = samples * (self._context or 1) / seconds, "tokens" if self._context else "samples"
            yield f"{rate:,.{0 if rate >= 100 else 2}f} {unit}/s"
            if "exposed_seconds" in self._row:
                yield f"{exposed / seconds:.0%} exposed"
            if "mfu" in self._row:
                yield f"{self._row['mfu']:.1%} MFU"
        if "peak_memory_bytes" in self._row:
            yield f"{self._row['peak_memory_bytes'] / 1e9:.2f} GB"


def quality(row: dict[str, Any]) -> str:
    """The last measurements in a few words.

    >>> quality({"train_loss": 0.25, "val_accuracy": 0.9})
    'train loss 0.25, val accuracy 0.900'
    """
    words = {"train_loss": "train loss {:.4g}", "val_accuracy": "val accuracy {:.3f}"}
    return ", ".join(text.format(row[name]) for name, text in words.items() if isinstance(row.get(name), (int, float)))


class Throttled:
    """Progress that is passed on once in so many seconds at most; that of one step, such as the last, always."""

    def __init__(self, progress: Progress, seconds: float = BETWEEN_REWRITES, always: int = 0) -> None:
        self._progress, self._seconds, self._always, self._last = progress, seconds, always, time.monotonic()

    def __call__(self, step: int, row: dict[str, Any]) -> None:
        if step == self._always or time.monotonic() - self._last > self._seconds:
            self._last = time.monotonic()
            self._progress(step, row)


@dataclass
class Heartbeat:
    """Passes progress on, and writes it into status.json every few seconds; `spent` of them went before this start."""

    run: RunFolder
    steps: int
    progress: Progress
    spent: float = 0.0
    start: float = field(default_factory=time.monotonic)
    last: float = 0.0

    @property
    def wall(self) -> float:
        """Seconds that the run has taken so far, in all its starts."""
        return self.spent + time.monotonic() - self.start

    def __call__(self, step: int, row: dict[str, Any]) -> None:
        if time.monotonic() - self.last > STATUS_INTERVAL:
            self.run.mark("running", step=step, steps=self.steps, wall=self.wall)
            self.last = time.monotonic()
        self.progress(step, row)


def stop_on_signals(stop: Stop, again: bool = True) -> AbstractContextManager[None]:
    """Let the first SIGINT or SIGTERM request a stop after the step under way, and a second SIGINT stop at once.

    Parameters
    ----------
    stop : what the first signal sets.
    again : False where a second SIGINT means nothing: launchers repeat what the terminal has sent already.
    """

    def request(number: int, frame: FrameType | None) -> None:
        stop.requested = True
        if again:
            signal.signal(signal.SIGINT, interrupt)

    return on_signals(request)


@contextmanager
def on_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle SIGINT and SIGTERM while the context lasts."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
