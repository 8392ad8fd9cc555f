"""Dense averaging inside a node, gossip between nodes."""

from __future__ import annotations

from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.compressors import DenseMessage, Layout
from commeff.core.overlap import Stages
from commeff.core.strategy import Transform
from commeff.core.traits import Traits
from commeff.topologies import Topology
from commeff.topologies.nodes import sharded
from commeff.transforms.averaging import fitting


class Hierarchical(Transform):
    """v_i -> sum_b W[a, b] (mean of v_j over the workers j of node b), for worker i of node a.

    The topology connects the nodes, of n / topology.n consecutive workers each. Member m of each node averages, gossips
    and spreads the m-th of q equal parts of the vector, so that all links of a node are used: the mixing matrix is that
    of `topologies.hierarchical(nodes, complete(q), topology)`, at a fraction of its bytes.
    Memory: none. Sends: 2 (q - 1)/q of v_i inside the node, 1/q of it to each neighbouring node.

    Parameters
    ----------
    topology : Topology
        Which nodes receive from which.
    """

    traits = Traits(
        needs_everyone="each member of a node has a part of every vector to carry; give participation=1, or another "
        "method"
    )

    def __init__(self, topology: Topology) -> None:
        self.topology = fitting(topology)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        q, rest = divmod(communicator.n, self.topology.n)
        if rest:
            raise ValueError(
                f"workers must be a multiple of the {self.topology.n} nodes of the topology, got {communicator.n}: "
                "every node has the same number; change one of the two"
            )
        self._rounds = sharded(self.topology, q)
        self._spans = [(layout.d * m // q, layout.d * (m + 1) // q) for m in range(q)]

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        out, step = vectors.clone(), communicator.step
        for name in ("collect", "between", "spread"):
            with communicator.transport.together():
                below = communicator.child(name)
                handles = [
                    view(below, a).post_mix(DenseMessage.of(out[:, a:b]), getattr(rounds, name).at(step))
                    for rounds, (a, b) in zip(self._rounds, self._spans, strict=True)
                ]
            for handle, (a, b) in zip(handles, self._spans, strict=True):
                out[:, a:b] = yield handle
        return out
