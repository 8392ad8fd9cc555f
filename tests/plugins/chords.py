"""A topology in one file: a ring with chords to workers a few places away."""

import networkx

from commeff.topologies import Topology, from_graph


def chords(n: int, reach: int = 2) -> Topology:
    """Metropolis weights on a ring of n workers with chords up to `reach` places."""
    return from_graph(networkx.circulant_graph(n, range(1, reach + 1)))
