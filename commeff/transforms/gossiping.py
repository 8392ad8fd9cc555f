"""What is built on gossip: tracking the mean gradient, momentum that is mixed too, compressed gossip, the order that
mixes first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, Layout, contractive
from commeff.core.corrections import Carrying
from commeff.core.overlap import Flow, Stages
from commeff.core.strategy import Transform, stages_of
from commeff.core.traits import Traits
from commeff.topologies import Topology
from commeff.transforms.averaging import check_size, fitting
from commeff.transforms.encoders import Plain


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
        here = slice(None) if all_here else [worker - self._first for worker in communicator.workers]
        joint = torch.cat([vectors, memory[here]], 1)
        mixed = yield from stages_of(self.inner, joint, communicator.child("inner"))
        memory[here] = mixed[:, d:]
        return mixed[:, :d]


class Choco(Transform):
    """q_i = C(x_i - public_i);  public_i += q_i;  x_i + gamma sum_j W[i, j] (public_j - public_i)   (arXiv 1902.00340,
    Algorithm 2).

    Preserves the mean for every C. Memory: public, what the neighbours know of x_i (0 at first); neighbours, the
    weighted sum of what is known of the neighbours. That sum is only right while the weights stay, so changing
    topologies are refused. Sends q_i to each neighbour.

    Parameters
    ----------
    topology : Topology
        Who receives from whom; it must not change.
    compressor : Compressor
        C; an unbiased one is made contractive.
    gamma : float
        The consensus step size, in (0, 1].
    """

    rows = ("public", "neighbours")
    traits = Traits(
        needs_everyone="CHOCO's running sums are right for fixed weights only; give participation=1, or another method"
    )

    def __init__(self, topology: Topology, compressor: Compressor, gamma: float) -> None:
        require.within("(0, 1]", gamma=gamma)
        self.compressor = Plain(contractive(compressor))
        self.topology, self.gamma = fitting(topology), gamma

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        if self.topology.period != 1:
            raise ValueError(
                "CHOCO needs a fixed topology, got one that changes: its running sum of the neighbours is right for "
                "fixed weights only; choose ring, torus or exponential, for example"
            )
        super().start(v, layout, communicator)
        check_size(self.topology, communicator)
        self.public, self.neighbours = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.compressor.encode(vectors - self.public, communicator, "up")
        handle = communicator.post_mix(change, self.topology.at(communicator.step))
        self.public += change.decode()
        self.neighbours += yield handle
        return torch.add(vectors, self.neighbours - self.public, alpha=self.gamma)


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
        raise ValueError(f"order must be {' or '.join(map(repr, orders))}, got {order!r}: these orders are published")
    return Ahead(mixing) if orders[order] else mixing
