"""What each method sends in a period of its steps, as the rows that its ledger would hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from commeff.communicator.ledger import Entry
from commeff.compressors import TopK, packed_bytes
from commeff.compressors.topk import index_bits
from commeff.topologies import Topology, one_peer_exponential

METHODS = ("psgd", "dsgd", "local_sgd", "mem_sgd")


@dataclass(frozen=True)
class Choices:
    """What is free in the methods: the steps between two averages of local_sgd, the share kept by mem_sgd's top-k."""

    period: int = 8
    ratio: float = 0.01

    def __post_init__(self) -> None:
        if self.period < 1:
            raise ValueError(f"local_sgd with a period of {self.period} was asked for; take 1 step or more")
        TopK(ratio=self.ratio)

    def names(self) -> dict[str, str]:
        """The methods in words.

        >>> Choices().names()["mem_sgd"]
        'mem_sgd, top 1 %'
        """
        return {
            "psgd": "psgd, all-reduce",
            "dsgd": "dsgd, one peer",
            "local_sgd": f"local_sgd, every {self.period}",
            "mem_sgd": f"mem_sgd, top {100 * self.ratio:g} %",
        }


@dataclass(frozen=True)
class Sending:
    """Rows of a ledger over `steps` steps, after which they repeat, and who mixes with whom."""

    rows: tuple[Entry, ...]
    steps: int
    topology: Topology | None = None


def sending(method: str, n: int, d: int, choices: Choices) -> Sending:
    """What n workers send of vectors of d float32 numbers; nothing if there is one.

    tests/experiments/test_scale.py holds these rows against the ledgers of the methods themselves.

    >>> sending("local_sgd", n=4, d=1000, choices=Choices(period=8)).rows[0].step
    7
    """
    if method not in METHODS:
        raise ValueError(f"there is no method {method!r} here; choose of {' '.join(METHODS)}")
    if n == 1:
        return Sending((), steps=1)
    made: dict[str, Callable[[], Sending]] = {
        "psgd": lambda: _average(0, 4 * d, n),
        "dsgd": lambda: _gossip(4 * d, one_peer_exponential(n)),
        "local_sgd": lambda: _average(choices.period - 1, 4 * d, n),
        "mem_sgd": lambda: _gather(top_k_bytes(d, choices.ratio), n),
    }
    return made[method]()


def top_k_bytes(d: int, ratio: float) -> int:
    """k float32 values and k packed indices.

    >>> top_k_bytes(1000, 0.01)                               # ten of 4 bytes, ten indices of 10 bits
    53
    """
    k = TopK(ratio=ratio).kept(d)
    return 4 * k + packed_bytes(k, index_bits(d))


def _average(step: int, size: int, n: int) -> Sending:
    return Sending((Entry(step, "", "all_reduce", size, 2 * (n - 1) / n * size, 1, 1),), step + 1)


def _gather(size: int, n: int) -> Sending:
    return Sending((Entry(0, "", "all_gather", size, (n - 1) * size, 1, 1),), 1)


def _gossip(size: int, topology: Topology) -> Sending:
    steps = topology.period or 1
    return Sending(tuple(Entry(t, "", "mix", size, size, 1, 1) for t in range(steps)), steps, topology)
