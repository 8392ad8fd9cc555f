"""algbw and busbw of collectives, as nccl-tests define them, over message sizes.

algbw is the size over the seconds. busbw corrects it by what the operation must move over each link, so that it can be
held against the link's bandwidth whatever the number of processes: 2 (n-1)/n of the size for an all-reduce, (n-1)/n for
an all-gather, whose size is what everybody has at the end (NVIDIA nccl-tests, doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from commeff.communicator import Communicator
from commeff.communicator.collectives import EACH, Sum
from commeff.experiments.measure.forks import time_in_turns
from commeff.experiments.measure.links import Operation, calls

ALL_GATHER, EXCHANGE = "all_gather", "exchange"
INSIDE, BETWEEN = "exchange inside a host", "exchange between hosts"
SUMS = {algorithm.kind: algorithm for algorithm in EACH if isinstance(algorithm, Sum)}


@dataclass(frozen=True)
class Timing:
    """Seconds of one operation on messages of a size among n processes."""

    operation: str
    n: int
    size: int
    seconds: float

    @property
    def algbw(self) -> float:
        """Bytes per second of the size.

        >>> Timing("ring", 4, 10**6, 0.001).algbw
        1000000000.0
        """
        return self.size / self.seconds

    @property
    def busbw(self) -> float:
        """Bytes per second over each link.

        >>> [Timing(kind, 4, 10**6, 0.001).busbw for kind in ("ring", "all_gather", "exchange")]
        [1500000000.0, 750000000.0, 1000000000.0]
        """
        return self.algbw * factor(self.operation, self.n)


def factor(operation: str, n: int) -> float:
    """busbw / algbw."""
    if operation in SUMS:
        return 2 * (n - 1) / n
    return (n - 1) / n if operation == ALL_GATHER else 1.0


def operations(communicator: Communicator, size: int, hosts: Sequence[int]) -> dict[str, Operation]:
    """The operations that are timed: the group's all-reduce, our ring, tree and server, an all-gather, and exchanges.

    An exchange is one round of one-peer gossip: everybody sends to the next one and receives from the one before, at
    once. Where there are several hosts, exchanges that stay inside and that leave are timed too.

    Parameters
    ----------
    communicator : of this process.
    size : bytes of a message.
    hosts : the number of the host of each process.
    """
    transport, n, device = communicator.transport, communicator.n, communicator.context.device
    vector, received = (torch.zeros(1, max(1, size // 4), device=device) for _ in range(2))
    rows = torch.zeros(1, max(1, size // n), dtype=torch.uint8, device=device)

    def exchange(after: int, before: int) -> Operation:
        return lambda: transport.exchange("bench", {after: vector}, {before: received})()

    def total(algorithm: Sum) -> Operation:
        return lambda: algorithm.total(vector, transport)()

    every = {name: total(algorithm) for name, algorithm in SUMS.items()}
    every[ALL_GATHER] = lambda: transport.all_gather(rows, [1] * n)()
    every[EXCHANGE] = exchange((transport.rank + 1) % n, (transport.rank - 1) % n)
    local = per_host(hosts)
    if local and local < n:
        every[BETWEEN] = exchange((transport.rank + local) % n, (transport.rank - local) % n)
        if local > 1:
            base, place = transport.rank // local * local, transport.rank % local
            every[INSIDE] = exchange(base + (place + 1) % local, base + (place - 1) % local)
    return every


def per_host(hosts: Sequence[int]) -> int | None:
    """Processes on each host, where they are equally many and in the order of hosts; else None.

    >>> per_host([0, 0, 1, 1]), per_host([0, 0, 0]), per_host([0, 1, 0, 1]), per_host([0, 0, 1])
    (2, 3, None, None)
    """
    local = hosts.count(hosts[0])
    tidy = len(hosts) % local == 0 and all(host == i // local for i, host in enumerate(hosts))
    return local if tidy else None


def measure(
    communicator: Communicator, hosts: Sequence[int], rounds: int, sizes: Sequence[int], progress: Callable[[], None]
) -> list[Timing]:
    """Time all operations on all sizes: interleaved, a block as long as at the slowest process, medians over rounds."""
    timings = []
    for size in sizes:
        count = calls(size)
        seconds = time_in_turns(operations(communicator, size, hosts), rounds, count, communicator.context.device)
        timings += [Timing(name, communicator.n, size, median(samples) / count) for name, samples in seconds.items()]
        progress()
    return timings
