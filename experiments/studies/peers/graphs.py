"""The weights that Bluefog gives its graphs, written out worker by worker from its rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from commeff import topologies
from commeff.experiments.studies.peers.problem import Compared

Weights = NDArray[np.float64]
SIZES, EXACT = (4, 8, 9, 12, 16), 1e-15
SOURCE = "Bluefog's rules"  # Bluefog-Lib/bluefog, bluefog/common/topology_util.py at 022307f


def circulant(n: int, ahead: list[int]) -> Weights:
    """Each worker sends to those so many places ahead, all weights equal; row i is what worker i receives."""
    weights = np.zeros((n, n))
    for worker in range(n):
        for distance in ahead:
            weights[(worker + distance) % n, worker] += 1 / len(ahead)
    return weights


def exponential(n: int) -> Weights:
    """ExponentialTwoGraph: itself, and those at every power of two below n."""
    return circulant(n, [0, *(2**k for k in range(n.bit_length()) if 2**k < n)])


def ring(n: int) -> Weights:
    """RingGraph: a third each."""
    return circulant(n, [0, 1, n - 1])


def one_peer(n: int, step: int) -> Weights:
    """GetDynamicSendRecvRanks on the exponential graph: at each step the next neighbour clockwise, half each."""
    distances = [2**k for k in range(n.bit_length()) if 2**k < n]
    return circulant(n, [0, distances[step % len(distances)]])


def grid(n: int) -> Weights:
    """MeshGrid2DGraph: of the squarest shape; 1 over the larger number of neighbours, each counting itself."""
    _, columns = squarest(n)
    place = [divmod(worker, columns) for worker in range(n)]
    near = [[j for j in range(n) if abs(a - place[j][0]) + abs(b - place[j][1]) <= 1] for a, b in place]
    weights = np.zeros((n, n))
    for worker in range(n):
        for other in near[worker]:
            if other != worker:
                weights[worker, other] = 1 / max(len(near[worker]), len(near[other]))
        weights[worker, worker] = 1 - weights[worker].sum()
    return weights


def star(n: int) -> Weights:
    """StarGraph: 1/n to and from the centre, the rest to itself."""
    weights = np.diag(np.full(n, 1 - 1 / n))
    weights[0, :] = weights[:, 0] = 1 / n
    return weights


def complete(n: int) -> Weights:
    """FullyConnectedGraph: 1/n."""
    return np.full((n, n), 1 / n)


def squarest(n: int) -> tuple[int, int]:
    """Rows and columns of the grid that Bluefog takes."""
    rows = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
    return rows, n // rows


FIXED = {
    "exponential": (topologies.exponential, exponential, "ExponentialTwoGraph"),
    "ring": (topologies.ring, ring, "RingGraph"),
    "grid": (lambda n: topologies.grid(*squarest(n)), grid, "MeshGrid2DGraph"),
    "star": (topologies.star, star, "StarGraph"),
    "complete": (topologies.complete, complete, "FullyConnectedGraph"),
}
TURNED = "ours hear from those ahead where Bluefog's send ahead: transposed"


def comparisons() -> Iterator[Compared]:
    """The largest difference of a weight, over 4 to 16 workers."""
    row = partial(Compared, SOURCE)
    sizes = f"n = {', '.join(map(str, SIZES))}"
    for name, (library, reference, graph) in FIXED.items():
        directed = name == "exponential"
        pairs = [(library(n).at(0).dense(), reference(n)) for n in SIZES]
        gap = max(float(abs((w.T if directed else w) - expected).max()) for w, expected in pairs)
        yield row(f"topologies.{name}(n)", graph, gap, EXACT, f"{sizes}; {TURNED}" if directed else sizes)
    powers = [n for n in SIZES if n & (n - 1) == 0]
    steps = [(n, step) for n in powers for step in range(2 * n.bit_length())]
    pairs = [(topologies.one_peer_exponential(n).at(step).dense().T, one_peer(n, step)) for n, step in steps]
    gap = max(float(abs(w - expected).max()) for w, expected in pairs)
    words = f"n = {', '.join(map(str, powers))}, step by step; {TURNED}"
    yield row("topologies.one_peer_exponential(n)", "GetDynamicSendRecvRanks(ExponentialTwoGraph)", gap, EXACT, words)
