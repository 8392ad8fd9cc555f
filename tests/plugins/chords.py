"""A topology of one's own: a ring on which everybody also hears those a few places further."""

import networkx

from commeff.topologies import Topology, from_graph


def chords(n: int, reach: int = 2) -> Topology:
    """Metropolis weights on the ring of n workers with chords to all within `reach` places."""
    return from_graph(networkx.circulant_graph(n, range(1, reach + 1)))
