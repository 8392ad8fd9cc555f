"""Talk to few: methods that mix parameters over the edges of a graph."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from commeff.compressors import Compressor
from commeff.core.corrections import D2, QuasiGlobal
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy, Transform
from commeff.topologies import Topology, lazy
from commeff.transforms import (
    Ahead,
    Average,
    AveragedMomentum,
    Choco,
    Every,
    Gossip,
    Hierarchical,
    InUnitsOf,
    PerWorkerOuter,
    PushSum,
    Tracking,
)


def _ordered(mixing: Transform, order: str, orders: dict[str, bool]) -> Transform:
    if order not in orders:
        raise ValueError(f"order must be {' or '.join(map(repr, orders))}, got {order!r}: these orders are published")
    return Ahead(mixing) if orders[order] else mixing


def dsgd(optimizer: OptimizerFactory, topology: Topology, order: Literal["atc", "awc"] = "atc") -> Strategy:
    """Decentralized SGD.  atc: x_i <- sum_j W[i, j] (x_j - gamma g_j).  awc: x_i <- sum_j W[i, j] x_j - gamma g_i.

    Adapt-then-combine equals parallel SGD for W = J; adapt-while-communicate lets the mixing travel while the gradient
    is computed.
    Memory: the optimizer's, local to each worker (with momentum: DmSGD). Sends: x_i to each neighbour.
    Source: Lian et al., arXiv 1705.09056, Algorithm 1; orders as in Chen, Sayed, arXiv 1111.0034.
    """
    return Strategy(Local(optimizer), parameters=_ordered(Gossip(topology), order, {"atc": False, "awc": True}))


def hierarchical_dsgd(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Decentralized SGD between nodes, averaging inside:  x_i <- sum_b W[a, b] mean over node b of (x_j - gamma g_j).

    The topology connects nodes of n / topology.n consecutive workers, which share the node's gossip between them. One
    node is parallel SGD, nodes of one worker are dsgd.
    Memory: the optimizer's, local to each worker. Sends, for nodes of q: 2 (q - 1)/q of x_i inside the node, 1/q of it
    to each neighbouring node.
    Source: Assran et al., arXiv 1811.10792, whose nodes are machines of 8 GPUs.
    """
    return Strategy(Local(optimizer), parameters=Hierarchical(topology))


def dmsgd(optimizer: OptimizerFactory, topology: Topology, beta: float = 0.9) -> Strategy:
    """DmSGD that mixes momentum too:  x_i <- sum_j W[i, j] (x_j - gamma m_j);  m_i <- sum_j W[i, j] (beta m_j + g_j).

    The step is along the momentum of before. The form whose momentum stays with the worker is `dsgd` with a momentum in
    its optimizer; for both, momentum multiplies the bias of heterogeneous data by 1 / (1 - beta).
    Memory: m_i. Sends: two vectors to each neighbour.
    Source: Ying et al., arXiv 2110.13363, Algorithm 1; Yu, Jin, Yang, arXiv 1905.03817.
    """
    momentum = AveragedMomentum(beta, Gossip(topology))
    return Strategy(Local(optimizer), gradients=momentum, parameters=Gossip(topology))


def decentlam(optimizer: OptimizerFactory, topology: Topology, beta: float = 0.9) -> Strategy:
    """DecentLaM:  r_i = (x_i - sum_j W[i, j] (x_j - gamma g_j)) / gamma;  m_i <- beta m_i + r_i;
    x_i <- x_i - gamma m_i.

    Momentum on what dsgd would move, mixing included: it ends where dsgd without momentum does, so momentum adds no
    bias. beta = 0 is dsgd. Memory: x_i and m_i. Sends: one vector to each neighbour.
    Source: Yuan et al., arXiv 2104.11981, Algorithm 2.
    """
    local = Local(optimizer)
    outer = InUnitsOf(local, partial(torch.optim.SGD, lr=1.0, momentum=beta))
    return Strategy(local, parameters=PerWorkerOuter(outer, Gossip(topology)))


def qg_dsgdm(
    optimizer: OptimizerFactory, topology: Topology, beta: float = 0.9, mu: float = 0.9, nesterov: bool = False
) -> Strategy:
    """QG-DSGDm:  m_i = beta h_i + g_i;  x_i' = sum_j W[i, j] (x_j - gamma m_j);
    h_i <- mu h_i + (1 - mu)(x_i - x_i')/gamma.

    The momentum h_i is made of what the worker has moved, mixing included, in the place of its own gradients, which
    under heterogeneous data point elsewhere. nesterov: the step is along g_i + beta m_i.
    Memory: h_i and the last x_i. Sends: one vector to each neighbour.
    Source: Lin, Karimireddy, Stich, Jaggi, arXiv 2102.04761, Algorithm 1.
    """
    return Strategy(QuasiGlobal(Local(optimizer), beta, mu, nesterov), parameters=Gossip(topology))


def _steady(topology: Topology, method: str) -> Topology:
    """The topology, if its weights are fixed and symmetric, as a correction by what was before needs them."""
    if topology.period != 1:
        raise ValueError(
            f"{method}: the topology must be fixed, got one with period {topology.period}: its correction is only "
            "right for fixed weights; use a symmetric one, such as lazy(ring(n))"
        )
    if not topology.at(0).symmetric:
        raise ValueError(
            f"{method}: the mixing matrix must be symmetric, got directed weights: its correction does not hold for "
            "them; use an undirected graph, such as lazy(ring(n))"
        )
    return topology


def d2(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """D2:  x^{k+1} = W (2 x^k - x^{k-1} - gamma_k g^k + gamma_{k-1} g^{k-1}),  x^1 = W (x^0 - gamma_0 g^0).

    Free of the bias of heterogeneous data. Needs a fixed symmetric W whose eigenvalues exceed -1/3, and is refused
    otherwise (`lazy(topology)` always serves). Memory: last x and last update. Sends: one vector to each neighbour.
    Source: Tang et al., arXiv 1803.07068, Algorithm 1.
    """
    matrix = _steady(topology, "d2").at(0)
    if matrix.lambda_min <= -1 / 3 + 1e-9:
        raise ValueError(
            f"d2: the eigenvalues of the mixing matrix must exceed -1/3, got {matrix.lambda_min:.4f}: it diverges at "
            "-1/3 and below; use lazy(topology)"
        )
    return Strategy(D2(Local(optimizer)), parameters=Gossip(topology))


def exact_diffusion(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Exact diffusion:  y^k = x^k - gamma g^k;  x^{k+1} = (I + W)/2 (y^k + x^k - y^{k-1}),  y^{-1} = x^0.

    D2 on the lazy graph, which any fixed symmetric W has. Memory and messages are those of d2.
    Source: Yuan, Ying, Zhao, Sayed, arXiv 1702.05122, Algorithm 1.
    """
    return Strategy(D2(Local(optimizer)), parameters=Gossip(lazy(_steady(topology, "exact_diffusion"))))


def gradient_tracking(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Gradient tracking:  y^k = W (y^{k-1} + g^k - g^{k-1});  x^{k+1} = W (x^k - gamma y^k),  y^{-1} = g^{-1} = 0.

    sum_i y_i = sum_i g_i at every step, so each worker follows the global gradient. Memory: y_i and the last gradient.
    Sends: two vectors to each neighbour.
    Source: Nedic, Olshevsky, Shi, arXiv 1607.03218 (adapt-then-combine form).
    """
    return Strategy(Local(optimizer), gradients=Tracking(Gossip(topology)), parameters=Gossip(topology))


def sgp(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Stochastic gradient push:  y_i <- sum_j P[i, j] (y_j - gamma g_j);  w_i <- sum_j P[i, j] w_j;  x_i = y_i / w_i.

    For directed graphs, on which everybody decides alone how to divide what it sends: the columns of P sum to 1. The
    gradient is taken at x_i. Where the rows sum to 1 as well it is dsgd.
    Memory: y_i, w_i and x_i; sum w_i = n always. Sends: y_i and w_i, d + 1 numbers, to everybody who listens.
    Source: Assran, Loizou, Ballas, Rabbat, arXiv 1811.10792, Algorithm 1.
    """
    return Strategy(Local(optimizer), parameters=PushSum(topology))


def gossip_pga(optimizer: OptimizerFactory, topology: Topology, period: int = 6) -> Strategy:
    """Gossip-PGA: dsgd, but exact averaging of the parameters every `period` steps.

    period = 1 is parallel SGD, W = I is local SGD. Memory: the optimizer's. Sends: x_i to each neighbour, or by
    all-reduce when due.
    Source: Chen et al., arXiv 2105.09080, Algorithm 1.
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average(), otherwise=Gossip(topology)))


def choco(
    optimizer: OptimizerFactory,
    topology: Topology,
    compressor: Compressor,
    gamma: float = 0.5,
    order: Literal["A", "B"] = "A",
) -> Strategy:
    """CHOCO-SGD:  q_i = C(h_i - y_i);  y_i <- y_i + q_i;  x_i = h_i + gamma sum_j W[i, j] (y_j - y_i).

    order "A": h_i = x_i - gamma g_i before the exchange (arXiv 1902.00340, Algorithm 2; with C = I and gamma = 1 it is
    dsgd atc). order "B": the exchange is of x_i, and the gradient step is added to its result (arXiv 1907.09356,
    Algorithm 1; there it is dsgd awc). That paper sends C(x^{k+1} - y) at the end of step k; here it goes out when step
    k + 1 begins, so that y starts from C(x^0), which is 0 where all start at 0.
    Memory: y_i and sum_j W[i, j] y_j; B also the last x_i. Sends: q_i to each neighbour. The mean of x moves by exact
    SGD for every C.
    """
    return Strategy(
        Local(optimizer), parameters=_ordered(Choco(topology, compressor, gamma), order, {"A": False, "B": True})
    )
