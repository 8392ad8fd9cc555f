"""alpha and bandwidth between processes: ping-pong over message sizes, and the line through its times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from commeff.cluster import Link
from commeff.communicator import Communicator, Transport
from commeff.experiments.measure.forks import time_in_turns

SIZES = tuple(4 * 8**power for power in range(9))  # 4 B ... 64 MiB
MOST = 28  # pairs of processes, which is all of 8; of more processes so many pairs, evenly over all

Operation = Callable[[], object]


@dataclass(frozen=True)
class Pair:
    """Two processes and the link between them."""

    first: int
    second: int
    link: Link


def fit(sizes: Sequence[float], seconds: Sequence[float]) -> Link:
    """The line  seconds = alpha + size / bandwidth  with the least errors of log seconds.

    Relative errors, since sizes span seven orders of magnitude; beyond 10 % they count linearly (soft L1), so one time
    that was disturbed does not bend the line.

    >>> sizes = [4.0, 1e3, 1e5, 1e7]
    >>> link = fit(sizes, [1e-4 + size / 1e9 for size in sizes])
    >>> round(link.latency, 7), round(link.bandwidth / 1e9, 4)
    (0.0001, 1.0)
    """
    from scipy.optimize import least_squares

    s, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)

    def misses(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        alpha, beta = np.exp(logs)
        errors: NDArray[np.float64] = np.log((alpha + s * beta) / t)
        return errors

    start = np.log([t[0], t[-1] / s[-1]])
    alpha, beta = np.exp(least_squares(misses, start, loss="soft_l1", f_scale=0.1, xtol=1e-12, ftol=1e-12).x).tolist()
    return Link(bandwidth=1 / beta, latency=alpha)


def pairs(n: int) -> list[tuple[int, int]]:
    """The pairs that are measured.

    >>> pairs(3), len(pairs(8)), len(pairs(100))
    ([(0, 1), (0, 2), (1, 2)], 28, 28)
    """
    every = list(combinations(range(n), 2))
    count = min(MOST, len(every))
    return [every[i * len(every) // count] for i in range(count)]


def calls(size: int) -> int:
    """The number of times a message of a size is sent in a block, so that short ones can be timed.

    >>> [calls(size) for size in (4, 2**20, 2**26)]
    [20, 5, 1]
    """
    return 20 if size <= 2**14 else 5 if size <= 2**20 else 1


def ping_pong(transport: Transport, pair: tuple[int, int], buffer: Tensor) -> Operation:
    """The operation of a message there and back; processes outside the pair do nothing."""
    if transport.rank not in pair:
        return lambda: None
    first, second = pair
    other = second if transport.rank == first else first

    def both() -> None:
        for sender in pair:
            sent, received = ({other: buffer}, {}) if transport.rank == sender else ({}, {other: buffer})
            transport.exchange("bench", sent, received)()

    return both


def measure(communicator: Communicator, rounds: int, sizes: Sequence[int], progress: Callable[[], None]) -> list[Pair]:
    """Measure the link of each pair while the other processes are silent: half a ping-pong, its median over rounds.

    One pair after the other, and all pairs interleaved. `progress` is called after each size.
    """
    chosen, device = pairs(communicator.n), communicator.context.device
    times: dict[tuple[int, int], list[float]] = {pair: [] for pair in chosen}
    for size in sizes:
        buffer, count = torch.zeros(max(1, size // 4), device=device), calls(size)
        contestants = {str(pair): ping_pong(communicator.transport, pair, buffer) for pair in chosen}
        seconds = time_in_turns(contestants, rounds, count, device)
        for pair in chosen:
            times[pair].append(median(seconds[str(pair)]) / (2 * count))
        progress()
    return [Pair(*pair, fit(sizes, times[pair])) for pair in chosen]
