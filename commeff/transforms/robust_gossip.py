"""Gossip where some workers lie: rules on what each hears of its neighbours, which they cannot move far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.communicator.mixing import Neighbours
from commeff.compressors import DenseMessage, Layout
from commeff.compressors.reductions import joint_norm
from commeff.core.strategy import Stages, Stateful, Traits, Transform
from commeff.topologies import Topology
from commeff.transforms.averaging import fitting


class NeighbourRule(Stateful, ABC):
    """(w, d), and what each hears of its neighbours -> (w, d)."""

    def start(self, v: Tensor, layout: Layout) -> None:
        """Allocate memory for rows like v."""

    @abstractmethod
    def __call__(self, own: Tensor, heard: Neighbours) -> Tensor:
        """What stands for the weighted mean of each worker's own vector and its neighbours'."""


class SelfCentredClipping(NeighbourRule):
    """x_i + sum_j W[i, j] (x_j - x_i) min(1, tau_i / |x_j - x_i|)   (arXiv 2202.01545, ClippedGossip).

    Unless given, tau_i^2 = (1/delta_i) sum over j in S_i of W[i, j] |x_j - x_i|^2, with S_i the neighbours without the
    f farthest, whose weights are delta_i: the radius of the paper's theorem, which sums over the honest, with those
    nearest in their place. A neighbour of two others at f = 1 clips the farther to the nearer. f = 0 is plain gossip.

    Memory: none.

    Parameters
    ----------
    f : int
        How many neighbours of a worker may lie; who has no more than these hears nobody.
    tau : float, optional
        The same radius for all, at every step; f does not matter then.
    """

    traits = Traits(scope="whole", exact_on_pieces=True)

    def __init__(self, f: int = 1, tau: float | None = None) -> None:
        require.count(0, f=f)
        if tau is not None:
            require.within("(0, inf]", tau=tau)
        self.f, self.tau = f, tau

    def start(self, v: Tensor, layout: Layout) -> None:
        self._layout = layout

    def __call__(self, own: Tensor, heard: Neighbours) -> Tensor:
        differences = (heard.vectors - own[:, None]).nan_to_num(0.0, 0.0, 0.0)
        distances = joint_norm(differences.flatten(0, 1), self._layout).view(heard.weights.shape)
        radius = self._radius(distances, heard.weights.double())
        scale = torch.where(distances <= radius, 1.0, radius / distances).to(own.dtype)
        return own + ((heard.weights * scale)[:, :, None] * differences).sum(1)

    def _radius(self, distances: Tensor, weights: Tensor) -> Tensor:
        """(w, 1) tau_i."""
        if self.tau is not None or not self.f:
            return distances.new_full((len(distances), 1), math.inf if self.tau is None else self.tau)
        # A place without a neighbour counts as farther than all, and as none of the f.
        order = torch.where(weights == 0, math.inf, distances).argsort(dim=1, stable=True)
        ordered, shares = distances.gather(1, order), weights.gather(1, order)
        others = (shares != 0).sum(1, keepdim=True)
        ranks = torch.arange(shares.shape[1], device=shares.device)
        near, far = ranks < others - self.f, ranks >= others - self.f
        squares = (near * shares * ordered.square()).sum(1, keepdim=True)
        return (squares / (far * shares).sum(1, keepdim=True)).sqrt().nan_to_num(0.0)


class RobustGossip(Transform):
    """v_i -> R(v_i; v_j of the neighbours j): a rule in the place of `Gossip`'s weighted mean.

    Memory: the rule's. Sends: v_i to every worker that receives from i, as `Gossip`.

    Parameters
    ----------
    topology : Topology
        Who receives from whom at each step, with weights that sum to 1 for each receiver.
    rule : NeighbourRule
        R.
    """

    def __init__(self, topology: Topology, rule: NeighbourRule) -> None:
        self.topology, self.rule = fitting(topology), rule

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.rule.start(v, layout)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        message = DenseMessage.of(vectors)
        rule, matrix = partial(self.rule, vectors), self.topology.at(communicator.step)
        return (yield communicator.post_mix(message, matrix, combine=rule))
