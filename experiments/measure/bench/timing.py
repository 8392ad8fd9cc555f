"""Interleaved timing on one thread, and the table of its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pandas as pd
import torch

from commeff.experiments.run.system import cpu_name, git_commit


@dataclass(frozen=True)
class MeasuredRatio:
    """One measured ratio and the limit it has to keep.

    Attributes
    ----------
    subject, what : of whom, and which ratio.
    value : measured.
    at_least, at_most : the limits; None: for information.
    """

    subject: str
    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def good(self) -> bool:
        """Whether the ratio is within its limits."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_least is not None:
            return f">= {self.at_least:g}"
        return f"<= {self.at_most:g}" if self.at_most is not None else ""


@contextmanager
def one_thread() -> Iterator[None]:
    """A single intra-op thread, as each process of a run has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def time_interleaved(
    contestants: Mapping[str, Callable[[], object]], rounds: int, calls: int = 1
) -> dict[str, list[float]]:
    """CPU seconds of `calls` calls of each contestant, round by round, after one round that warms up.

    Each round begins with the next contestant: who follows whom, and finds what in the cache, is worth some percent.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants.items())
    for r in range(rounds + 1):
        order.append(order.pop(0))
        for name, run in order:
            start = time.process_time()
            for _ in range(calls):
                run()
            if r:
                seconds[name].append(time.process_time() - start)
    return seconds


def write(figures: Sequence[MeasuredRatio], path: Path, command: str) -> None:
    """Write a CSV file of the ratios, with the command, the hardware and the commit they come from."""
    origin = {"measured by": command, "hardware": cpu_name(), "commit": git_commit()}
    rows = [{**asdict(figure), "value": round(figure.value, 3), **origin} for figure in figures]
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_csv(path, index=False)


def ratio(seconds: Mapping[str, list[float]], over: str, under: str) -> float:
    """The median over rounds of time(over) / time(under)."""
    return median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))
