"""What goes on around the training of a run: its progress is written down, and signals end it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from commeff.experiments.config.contained import interrupt
from commeff.experiments.run.crew import Stop
from commeff.experiments.run.local import Progress
from commeff.experiments.run.store import RunFolder

STATUS_INTERVAL = 5.0  # seconds between two writes of progress into status.json


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


@contextmanager
def stop_on_signals(stop: Stop, again: bool = True) -> Iterator[None]:
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

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
