"""Compressed gossip: of differences (CHOCO), moves (DCD), extrapolations (ECD), the rows themselves (DeepSqueeze)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, Layout, contractive
from commeff.core.strategy import Stages, Traits, Transform
from commeff.topologies import Topology
from commeff.transforms.averaging import fitting
from commeff.transforms.encoders import ErrorFeedback, Plain

FIXED = Traits(
    needs_everyone="running sums of neighbours are right for fixed weights only; give participation=1, or another "
    "method"
)


def require_fixed(topology: Topology, name: str) -> None:
    """Refuse a topology that changes."""
    if topology.period != 1:
        raise ValueError(
            f"{name} needs a fixed topology, got one that changes: its running sum of the neighbours is right for "
            "fixed weights only; choose ring, torus or exponential, for example"
        )


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
    traits = FIXED

    def __init__(self, topology: Topology, compressor: Compressor, gamma: float) -> None:
        require.within("(0, 1]", gamma=gamma)
        self.compressor = Plain(contractive(compressor))
        self.topology, self.gamma = fitting(topology), gamma

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        require_fixed(self.topology, "CHOCO")
        super().start(v, layout, communicator)
        self.public, self.neighbours = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.compressor.encode(vectors - self.public, communicator, "up")
        handle = communicator.post_mix(change, self.topology.at(communicator.step))
        change.add_rows(self.public)
        self.neighbours += yield handle
        return torch.add(vectors, self.neighbours - self.public, alpha=self.gamma)


class DeepSqueeze(Transform):
    """c_i = C(v_i + e_i);  e_i <- v_i + e_i - c_i;  -> c_i + eta sum_j W[i, j] (c_j - c_i)   (arXiv 1907.07346,
    Algorithm 1).

    The mean of x + e moves as if nothing were compressed, for weights whose columns sum to 1. What is compressed is v_i
    itself, so that rows move where nothing else would move them.
    Memory: that of the error feedback, e_i. Sends c_i to each neighbour.

    Parameters
    ----------
    topology : Topology
        Who receives from whom at each step.
    compressor : Compressor
        C; an unbiased one is made contractive.
    eta : float
        The consensus step size, in (0, 1].
    """

    traits = Traits(moves_at_consensus="C is of the parameters themselves")

    def __init__(self, topology: Topology, compressor: Compressor, eta: float) -> None:
        require.within("(0, 1]", eta=eta)
        self.encoder = ErrorFeedback(compressor)
        self.topology, self.eta = fitting(topology), eta

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        message = self.encoder.encode(vectors, communicator, "up")
        handle = communicator.post_mix(message, self.topology.at(communicator.step))
        decoded = message.decode().clone()
        return torch.lerp(decoded, (yield handle), self.eta)


class Replicated(Transform):
    """Gossip of what all neighbours know of each row, which they follow by compressed messages.

    Memory: last, the rows that came out before; neighbours, the weighted sum of what is known of the neighbours, right
    while the weights stay, so that changing topologies are refused. All rows are taken to start equal.

    Parameters
    ----------
    topology : Topology
        Who receives from whom; it must not change.
    compressor : Compressor
        C, unbiased.
    """

    rows = ("last", "neighbours")
    traits = FIXED

    def __init__(self, topology: Topology, compressor: Compressor) -> None:
        self.topology, self.compressor = fitting(topology), Plain(compressor)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        name = f"{type(self).__name__}-PSGD"
        require_fixed(self.topology, name)
        super().start(v, layout, communicator)
        self.compressor.omega(layout, name, "choco")
        self.last, self.neighbours = v.clone(), v.clone()


class DCD(Replicated):
    """x^{k+1} = x^k + C(sum_j W[i, j] x_j^k + u^k - x^k),  u^k what the local step changed   (arXiv 1803.06443,
    Algorithm 1).

    Everybody moves by its own message as its neighbours do, so that what they know of x is x. Sends C of the move to
    each neighbour.

    Parameters
    ----------
    topology : Topology
        Who receives from whom; it must not change.
    compressor : Compressor
        C, unbiased.
    """

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        move = self.neighbours + vectors - 2 * self.last
        change = self.compressor.encode(move, communicator, "up")
        handle = communicator.post_mix(change, self.topology.at(communicator.step))
        self.last = self.last + change.decode()
        self.neighbours += yield handle
        return self.last.clone()


class ECD(Replicated):
    """x^{t+1} = sum_j W[i, j] y_j^t + u^t;  z = (1 - t/2) x^t + (t/2) x^{t+1};  y^{t+1} = (1 - 2/t) y^t + (2/t) C(z),
    t = 1, 2, ...   (arXiv 1803.06443, Algorithm 2).

    u^t is what the local step changed, y^1 = x^1. The error of y falls as 1/t if that of C is bounded, while z grows as
    t times the last move. Memory also: sent = t - 1. Sends C(z) to each neighbour.

    Parameters
    ----------
    topology : Topology
        Who receives from whom; it must not change.
    compressor : Compressor
        C, unbiased.
    """

    shared = ("sent",)
    traits = replace(Replicated.traits, moves_at_consensus="C is of extrapolated parameters")

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.sent = 0

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        self.sent += 1
        t, out = self.sent, self.neighbours + vectors - self.last
        message = self.compressor.encode(torch.lerp(self.last, out, t / 2), communicator, "up")
        handle = communicator.post_mix(message, self.topology.at(communicator.step))
        self.last = out.clone()
        self.neighbours = torch.lerp(self.neighbours, (yield handle), 2 / t)
        return out
