r"""Who talks to whom: graphs over n workers, and the mixing matrices that average along them.

Each worker :math:`i` owns a vector :math:`x_i`. One round of gossip replaces it by a weighted average of what it
receives,

.. math:: x_i \leftarrow \sum_j W_{ij} x_j, \qquad \sum_j W_{ij} = 1,

so row i of the *mixing matrix* W says what worker i RECEIVES, column j where worker j SENDS. If the columns sum to 1
as well (W is doubly stochastic) the mean over workers never moves, and every round shrinks the disagreement at least by
the factor

.. math:: \rho = \lVert W - J \rVert_2, \qquad J = \tfrac1n \mathbf 1 \mathbf 1^\top.

A *topology* is a pure function from the step to such a matrix, the same on every worker, so no worker ever has to ask
another whom it should talk to.

>>> from commeff import topologies
>>> ring = topologies.ring(8)
>>> sorted(ring.at(0).received(0))                  # a third of itself and of either neighbour:
[0, 1, 7]
>>> round(ring.at(0).rho, 4)                        # few messages, slow agreement ...
0.8047
>>> topologies.complete(8).at(0).rho < 1e-15        # ... many messages, immediate agreement ...
True
>>> pairs = topologies.one_peer_exponential(8)      # ... or one a step, exact after log2(8) = 3 steps
>>> product = pairs.at(2).dense() @ pairs.at(1).dense() @ pairs.at(0).dense()
>>> bool(abs(product - 1 / 8).max() < 1e-15)
True

=====================================================  ==============================================================
fixed, undirected, Metropolis weights (symmetric)      complete ring torus grid star hypercube erdos_renyi
                                                       random_regular symmetric_exponential u_equistatic
fixed, directed (doubly stochastic, not symmetric)     exponential d_equistatic
periodic, consensus exact after one period             one_peer_exponential (n = 2^m), base_graph (every n)
never repeating, drawn from (seed, step)               random_matching od_equidyn ou_equidyn
made of others                                         hierarchical inner_outer lazy failing_links random_pairs
your own                                               from_graph from_matrices, also of files; your own class
=====================================================  ==============================================================
"""

from commeff.topologies.base_graph import base_graph
from commeff.topologies.dynamic import one_peer_exponential, random_matching
from commeff.topologies.equitopo import d_equistatic, od_equidyn, ou_equidyn, u_equistatic
from commeff.topologies.failures import failing_links
from commeff.topologies.matrix import MixingMatrix
from commeff.topologies.meetings import random_pairs
from commeff.topologies.static import (
    complete,
    erdos_renyi,
    exponential,
    grid,
    hypercube,
    random_regular,
    ring,
    star,
    symmetric_exponential,
    torus,
)
from commeff.topologies.topology import Topology, from_matrices, hierarchical, inner_outer, lazy
from commeff.topologies.weights import from_graph

__all__ = [
    "MixingMatrix",
    "Topology",
    "base_graph",
    "complete",
    "d_equistatic",
    "erdos_renyi",
    "exponential",
    "failing_links",
    "from_graph",
    "from_matrices",
    "grid",
    "hierarchical",
    "hypercube",
    "inner_outer",
    "lazy",
    "od_equidyn",
    "one_peer_exponential",
    "ou_equidyn",
    "random_matching",
    "random_pairs",
    "random_regular",
    "ring",
    "star",
    "symmetric_exponential",
    "torus",
    "u_equistatic",
]
