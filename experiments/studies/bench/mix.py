"""`commeff bench mix`: gossip in place, as a share of the speed at which memory is copied."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from commeff import Communicator, topologies
from commeff.communicator.mixing import AGAIN
from commeff.compressors import Dense
from commeff.compressors.compiled import compile_messages
from commeff.experiments.measure.timing import calls_of, ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio

LIMITS = {"one_peer_exponential": 0.8, "ring": 0.45}


def share(topology: topologies.Topology, d: int, rounds: int, device: str) -> float:
    """time(copy of X) / time(X <- W X): 1 is the limit, since both read X and write as much once."""
    x = torch.randn(topology.n, d, device=device)
    copy, communicator = torch.empty_like(x), Communicator(workers=topology.n)

    def mix() -> None:
        communicator.mix(Dense().compress(x, communicator.random("mix")), topology.at(0), out=x)

    for _ in range(AGAIN + 1):  # the last is compiled, if any is
        mix()
    contestants = {"copy": lambda: copy.copy_(x), "mix": mix}
    seconds = time_interleaved(contestants, rounds, calls_of(device), device)
    return ratio(seconds, "copy", "mix")


def run(d: int = 10**6, rounds: int = 15, device: str = "cpu") -> Iterator[MeasuredRatio]:
    """The share of copy speed that gossip reaches on several graphs, for 16 and 64 workers of d float32 numbers."""
    for n in (16, 64):
        graphs = {
            "one_peer_exponential": topologies.one_peer_exponential(n),
            "ring": topologies.ring(n),
            "exponential": topologies.exponential(n),
            "random_regular": topologies.random_regular(n, 4, seed=0),
        }
        for name, topology in graphs.items():
            limit = LIMITS.get(name) if n == 16 and device == "cpu" else None
            reached = share(topology, d, rounds, device)
            yield MeasuredRatio(f"{name}, n={n}, d={d}", "share of copy speed", reached, limit)
            if device == "cpu" and not name.startswith("one_peer"):
                compile_messages(True)
                reached = share(topology, d, rounds, device)
                compile_messages(False)
                yield MeasuredRatio(f"{name}, n={n}, d={d}, compiled", "share of copy speed", reached)
