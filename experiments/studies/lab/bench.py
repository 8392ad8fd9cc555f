"""`commeff lab bench`: single exchanges on a shaped network beside the model, and a step that hides its communication.

Everything goes through the library's communicator and is billed by its ledger. The model is given the links' rate and
burst, and the latency of a round, measured by an all-gather of next to nothing on the same network. Seconds are medians
over rounds, each round as long as at the slowest node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from commeff import Communicator, DistributedOptimizer, methods, topologies
from commeff.cluster.billing import Billing, Recorded
from commeff.communicator.ledger import Entry
from commeff.compressors import Dense, TopK
from commeff.experiments.measure.forks import on_forks, time_in_turns
from commeff.experiments.measure.profile import write_rows
from commeff.experiments.studies.bench.subjects import CLASSES, SGD, loop, mlp
from commeff.experiments.studies.lab.network import NETWORKS, LinkShape, Node, lab
from commeff.experiments.tasks.models import seeded

NODES = 8
NUMBERS = 2_500_000  # of 4 bytes: a model of 10 MB
WIDTH, DEPTH = 512, 10  # of the network whose step hides its communication: 10.5 MB, no layer more than a tenth of it
BATCH = 128  # samples of its step on each node
BUCKET_MB = 1.5
SMALLEST = "smallest all_gather"
TOLERANCE = {"all_reduce": 0.10, "one-peer": 0.10, "two-neighbour ring": 0.25}
SLOW_TOLERANCE = 0.15
GAIN, OVERHEAD = 1.6, 1.15  # of one-peer over all_reduce, at least; of an overlapped step, at most

Timed = tuple[dict[str, list[float]], dict[str, Entry]]


@dataclass(frozen=True)
class Reading:
    """A measured number beside the one it is compared with.

    Attributes
    ----------
    network, what : where, and of which operation.
    measured : seconds.
    against, expected : what it is compared with, and the seconds of that.
    at_least, at_most : limits of measured / expected; None: for information.
    """

    network: str
    what: str
    measured: float
    against: str
    expected: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured / self.expected

    @property
    def good(self) -> bool:
        """Whether the ratio is within its limits.

        >>> Reading("1gbit", "one-peer", 0.09, "modelled", 0.1, at_least=0.85, at_most=1.15).good
        True
        """
        low = self.at_least is None or self.ratio >= self.at_least
        return low and (self.at_most is None or self.ratio <= self.at_most)

    @property
    def limits(self) -> str:
        """The limits in words."""
        low = "" if self.at_least is None else f">= {self.at_least:g}"
        high = "" if self.at_most is None else f"<= {self.at_most:g}"
        return " ".join(filter(None, (low, high)))


def run(nodes: int = NODES, rounds: int = 7, numbers: int = NUMBERS) -> list[Reading]:
    """Measure exchanges on 200 Mbit/s and with one slow link, and the overlapped step on 200 Mbit/s."""
    readings = []
    for name in ("200mbit", "slow_link"):
        shape = NETWORKS[name]
        with lab(shape, nodes) as places:
            readings += exchanges(shape, places, rounds, numbers)
            readings += overlapped(shape, places, rounds) if shape.slow is None else []
    return readings


def exchanges(shape: LinkShape, nodes: Sequence[Node], rounds: int, numbers: int) -> list[Reading]:
    """Measure each exchange of a dense vector beside the model."""
    n = len(nodes)
    seconds, billed = on_forks(n, n, partial(_exchange, rounds=rounds, numbers=numbers), lambda r: nodes[r].enter())
    measured = {what: median(times) for what, times in seconds.items()}
    alpha = measured.pop(SMALLEST) / (n - 1)
    cluster, readings = shape.cluster(n, alpha), []
    for what, value in measured.items():
        row = billed[what]
        (operation,) = Recorded([row], n, _graphs(n).get(what)).operations(row.step)
        modelled = Billing(cluster, n, collective="one_ring").seconds(operation)
        low, high = limits(shape, what)
        readings.append(Reading(shape.name, what, value, "modelled", modelled, low, high))
    readings.append(Reading(shape.name, f"{SMALLEST}, a round", alpha, "itself: the model's latency", alpha))
    gain = GAIN if shape.slow is None else None
    every, peer = measured["all_reduce"], measured["one-peer"]
    return [*readings, Reading(shape.name, "all_reduce", every, "one-peer, measured", peer, at_least=gain)]


def limits(shape: LinkShape, what: str) -> tuple[float | None, float | None]:
    """The limits of measured over modelled.

    >>> limits(NETWORKS["200mbit"], "one-peer"), limits(NETWORKS["slow_link"], "two-neighbour ring")
    ((0.9, 1.1), (0.75, 1.25))
    """
    if what not in TOLERANCE:
        return None, None
    off = TOLERANCE[what] if shape.slow is None else max(SLOW_TOLERANCE, TOLERANCE[what])
    return 1 - off, 1 + off


def latency(nodes: Sequence[Node], rounds: int = 20) -> float:
    """Seconds of a round in which everybody sends next to nothing to the next one."""
    n = len(nodes)
    seconds, _ = on_forks(n, n, partial(_exchange, rounds=rounds, numbers=0), lambda r: nodes[r].enter())
    return median(seconds[SMALLEST]) / (n - 1)


def overlapped(shape: LinkShape, nodes: Sequence[Node], rounds: int) -> list[Reading]:
    """Measure a step of parallel SGD whose buckets travel while backward runs, against the longer of its two halves."""
    n = len(nodes)
    seconds = on_forks(n, n, partial(_steps, rounds=rounds), lambda r: nodes[r].enter())
    at = {what: median(times) for what, times in seconds.items()}
    longer = max(("compute", "communication"), key=at.__getitem__)
    shorter = "compute" if longer == "communication" else "communication"
    name = f"psgd step, MLP of {DEPTH + 1} layers, batch {BATCH}"
    against = f"{longer}, measured"
    return [
        Reading(shape.name, f"{name}: {shorter}", at[shorter], against, at[longer]),
        Reading(shape.name, f"{name}, in one piece", at["in one piece"], against, at[longer]),
        Reading(shape.name, f"{name}, in buckets", at["in buckets"], against, at[longer], at_most=OVERHEAD),
    ]


def write(readings: Sequence[Reading], path: Path, command: str) -> None:
    """Write a CSV file of the readings, with the command, the hardware and the commit they come from."""
    rows = [
        {**asdict(r), "measured": f"{r.measured:.4g}", "expected": f"{r.expected:.4g}", "ratio": f"{r.ratio:.3f}"}
        | {"good": r.good}
        for r in readings
    ]
    write_rows(rows, path, command)


def _graphs(n: int) -> dict[str, topologies.Topology]:
    return {"one-peer": topologies.one_peer_exponential(n), "two-neighbour ring": topologies.ring(n)}


def _exchange(communicator: Communicator, rounds: int, numbers: int) -> Timed:
    """Seconds of each exchange, and its row of the ledger. Without numbers there is only the smallest."""
    graphs = _graphs(communicator.n)
    nothing = TopK(k=1).compress(torch.zeros(1, 2), communicator.random("bench"))
    contestants: dict[str, Callable[[], object]] = {SMALLEST: lambda: communicator.average(nothing)}
    if numbers:
        vector = torch.randn(1, numbers, generator=torch.Generator().manual_seed(0))
        dense = Dense().compress(vector, communicator.random("bench"))
        sparse = TopK(ratio=0.01).compress(vector, communicator.random("bench"))
        contestants |= {
            "all_reduce": lambda: communicator.average(dense),
            "one-peer": lambda: communicator.mix(dense, graphs["one-peer"].at(0)),
            "two-neighbour ring": lambda: communicator.mix(dense, graphs["two-neighbour ring"].at(0)),
            "all_gather of the top 1 %": lambda: communicator.average(sparse),
        }
    billed = {}
    for what, exchange in contestants.items():
        exchange()
        billed[what] = communicator.ledger.rows[-1]
    return time_in_turns(contestants, rounds, calls=1), billed


def _steps(communicator: Communicator, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step without communication, of its communication alone, and of both, in sequence and overlapped."""
    draw = torch.Generator().manual_seed(communicator.workers[0])
    deep = partial(mlp, *(DEPTH + 1) * [WIDTH])  # backward has the gradients of its last layers long before the first's
    fresh = partial(seeded, deep, 0)
    inputs = torch.randn(BATCH, WIDTH, generator=draw)
    batch = inputs, torch.randint(CLASSES, (BATCH,), generator=draw)
    plain, whole, pieces = fresh(), fresh(), fresh()
    size = sum(p.numel() for p in plain.parameters())
    message = Dense().compress(torch.zeros(1, size), communicator.random("bench"))
    psgd = methods.psgd(SGD)
    return time_in_turns(
        {
            "compute": loop(plain, SGD(plain.parameters()), batch),
            "communication": lambda: communicator.average(message),
            "in one piece": loop(whole, DistributedOptimizer(whole, psgd, bucket_mb=0), batch),
            "in buckets": loop(pieces, DistributedOptimizer(pieces, methods.psgd(SGD), bucket_mb=BUCKET_MB), batch),
        },
        rounds,
        calls=1,
    )
