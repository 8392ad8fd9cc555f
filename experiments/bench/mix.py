"""`commeff bench mix`: gossip in place, as a share of the speed at which memory is copied."""

from __future__ import annotations

import torch

import topologies
from commeff import Communicator
from compressors import Dense
from experiments.bench.timing import Figure, interleaved, one_thread, ratio

LIMITS = {"one_peer_exponential": 0.8, "ring": 0.45}


def run(d: int = 10**6, rounds: int = 15) -> list[Figure]:
    """time(copy of X) / time(X <- W X) for several graphs: 1 is the limit, since both read X and write it once."""
    figures = []
    with one_thread():
        for n in (16, 64):
            graphs = {
                "one_peer_exponential": topologies.one_peer_exponential(n),
                "ring": topologies.ring(n),
                "exponential": topologies.exponential(n),
                "random_regular": topologies.random_regular(n, 4, seed=0),
            }
            x = torch.randn(n, d)
            copy = torch.empty_like(x)
            for name, topology in graphs.items():
                communicator = Communicator(workers=n)

                def mix(communicator: Communicator = communicator, topology: topologies.Topology = topology) -> None:
                    communicator.mix(Dense().compress(x, communicator.random("mix")), topology.at(0), out=x)

                seconds = interleaved({"copy": lambda: copy.copy_(x), "mix": mix}, rounds)
                limit = LIMITS.get(name) if n == 16 else None
                figures.append(Figure(f"{name}, n={n}", "share of copy speed", ratio(seconds, "copy", "mix"), limit))
    return figures
