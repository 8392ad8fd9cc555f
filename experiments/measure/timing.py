"""Interleaved timing on one thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """A single intra-op thread, as each process of a run has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@one_thread()
def time_interleaved(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    calls: int = 1,
    device: torch.device | str = "cpu",
) -> dict[str, list[float]]:
    """CPU seconds of `calls` calls of each contestant on one thread, round by round, after one round that warms up;
    what works on another device is waited for, in seconds of the wall.

    Each round begins with the next contestant: who follows whom, and finds what in the cache, is worth some percent.
    """

    def clock() -> float:
        if torch.device(device).type == "cpu":
            return time.process_time()
        torch.get_device_module(device).synchronize()
        return time.perf_counter()

    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    order = list(contestants.items())
    for r in range(rounds + 1):
        order.append(order.pop(0))
        for name, run in order:
            start = clock()
            for _ in range(calls):
                run()
            if r:
                seconds[name].append(clock() - start)
    return seconds


def calls_of(device: torch.device | str) -> int:
    """How many calls are timed together: on a GPU several, as a run begins them without waiting."""
    return 1 if torch.device(device).type == "cpu" else 5


def ratio(seconds: Mapping[str, list[float]], over: str, under: str) -> float:
    """The median over rounds of time(over) / time(under)."""
    return median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))
