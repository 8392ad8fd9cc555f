"""What is built on gossip: tracking the mean gradient, momentum that is mixed too, the order that mixes first, push-sum
over directed graphs, exact averages inside nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.compressors import DenseMessage, Layout
from commeff.core.components import Flow
from commeff.core.corrections import Carrying
from commeff.core.strategy import Stages, Traits, Transform, stages_of
from commeff.topologies import Topology
from commeff.topologies.nodes import sharded
from commeff.transforms.averaging import fitting


class Tracking(Transform):
    """y^k = M(y^{k-1} + g^k - g^{k-1}), y^{-1} = g^{-1} = 0, for an averaging M   (arXiv 1609.05877).

    If M preserves the mean, the mean of y is the mean of g at every step. Memory: tracked, last_gradient. Sends what M
    sends.

    Parameters
    ----------
    inner : Transform
        M, the averaging.
    """

    rows = ("tracked", "last_gradient")

    def __init__(self, inner: Transform) -> None:
        self.inner = inner

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.tracked, self.last_gradient = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        moved = self.tracked + vectors - self.last_gradient
        self.last_gradient = vectors.clone()
        self.tracked = yield from stages_of(self.inner, moved, communicator.child("inner"))
        return self.tracked.clone()


class Alongside(Transform):
    """[v, m] -> M([v, m]), m being the memory that a local step carries: both in one message, in one round.

    Memory: M's; m is the local step's. Sends what M sends, of rows twice as long.

    Parameters
    ----------
    local : Carrying
        Whose memory m is.
    inner : Transform
        M, a mixing of rows of any length.
    """

    traits = Traits(scope="whole", exact_on_pieces=True)  # m is not in blocks

    def __init__(self, local: Carrying, inner: Transform) -> None:
        self._local, self.inner = local, inner

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._first = communicator.workers[0]

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        d, memory = vectors.shape[1], self._local.carried
        all_here = len(vectors) == len(memory)
        rows = slice(None) if all_here else [worker - self._first for worker in communicator.workers]
        joint = torch.cat([vectors, memory[rows]], 1)
        mixed = yield from stages_of(self.inner, joint, communicator.child("inner"))
        memory[rows] = mixed[:, d:]
        return mixed[:, :d]


class Ahead(Transform):
    """out^k = M(out^{k-1}) + (v^k - out^{k-1}): mix what was, add what the local step changed
    (adapt-while-communicate).

    The mixing needs nothing of the step's gradient, so `post` sends it on its way while that is computed. Memory: last.
    Sends what M sends.

    Parameters
    ----------
    inner : Transform
        M, the averaging.
    """

    rows = ("last",)

    def __init__(self, inner: Transform) -> None:
        self.inner = inner
        self._mixed: Flow | None = None

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.last, self._mixed = v.clone(), None

    def _begin_mixing(self, communicator: Communicator) -> Flow:
        return Flow(stages_of(self.inner, self.last, communicator.child("inner")))

    def post(self, x: Tensor, communicator: Communicator) -> None:
        self._mixed = self._begin_mixing(communicator)

    def drain(self) -> None:
        if self._mixed is not None:
            self._mixed.finish()
            self._mixed = None

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return self.donated(vectors.clone(), communicator)

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        mixed = (self._mixed or self._begin_mixing(communicator)).finish()
        self._mixed = None
        out = vectors.sub_(self.last).add_(mixed)
        self.last.copy_(out)
        return out


def ordered(mixing: Transform, order: str, orders: dict[str, bool]) -> Transform:
    """The mixing, `Ahead` of the step if the order is one that mixes first."""
    if order not in orders:
        raise ValueError(f"order must be {' or '.join(map(repr, orders))}, got {order!r}")
    return Ahead(mixing) if orders[order] else mixing


def _dividing(topology: Topology) -> Topology:
    """The topology, if every sender divides what it sends."""
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be a Topology, got {topology!r}: give one, such as topologies.exponential(8)")
    if not topology.at(0).column_stochastic:
        raise ValueError(
            "the weights must sum to 1 for each sender, got others: push-sum would lose mass; choose a graph that "
            "divides what it sends, such as exponential or from_graph(a directed graph)"
        )
    return topology


class PushSum(Transform):
    """y_i <- sum_j P[i, j] (y_j + v_j - z_j);  w_i <- sum_j P[i, j] w_j;  z_i = y_i / w_i;  -> z   (arXiv 1811.10792).

    v_i - z_i is what has been added to the last result since. The columns of P sum to 1, so that sum y and sum w = n
    stay as they are, and z tends to the mean whatever the rows sum to. Columns of v beyond those of the start are sums
    themselves, sum_j P[i, j] v_j.
    Memory: numerator y, weight w and ratio z. Sends: y_i and w_i, d + 1 numbers, to everybody who receives from i.

    Parameters
    ----------
    topology : Topology
        Who receives from whom, with weights that sum to 1 for each sender.
    """

    rows = ("numerator", "weight", "ratio")

    def __init__(self, topology: Topology) -> None:
        self.topology = _dividing(topology)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.numerator, self.ratio, self.weight = v.clone(), v.clone(), v.new_ones(len(v), 1)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        d = self.ratio.shape[1]
        moved = self.numerator + (vectors[:, :d] - self.ratio)
        message = DenseMessage.of(torch.cat([moved, self.weight, vectors[:, d:]], dim=1))
        mixed = yield communicator.post_mix(message, self.topology.at(communicator.step), keep="columns")
        self.numerator, self.weight = mixed[:, :d].clone(), mixed[:, d : d + 1].clone()
        self.ratio = self.numerator / self.weight
        return torch.cat([self.ratio, mixed[:, d + 1 :]], dim=1)


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
