"""The catalogue: one function for each published method, whose body is the composition and whose docstring is the
method.

Everywhere: n workers, x_i and g_i the parameters and stochastic gradient of worker i, gamma the learning rate, W the
mixing matrix (W[i, j] weighs what i receives from j), C a compressor, d coordinates. `optimizer` is a factory such as
`functools.partial(torch.optim.SGD, lr=0.1)`; the equations show plain SGD, any torch optimizer may take its place.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from commeff.local import D2, Local, OptimizerFactory
from commeff.strategy import Chain, Encoder, Strategy, Transform
from commeff.transforms import (
    EF21,
    Ahead,
    Average,
    Choco,
    Delayed,
    ErrorFeedback,
    Every,
    Gossip,
    Hierarchical,
    Outer,
    PowerSGD,
    RelativeTo,
    Scaled,
    Sharded,
    Smooth,
    ThroughServer,
    Tracking,
    Warmup,
)
from compressors import Compressor, Dense, Repeated, contractive
from topologies import Topology

NESTEROV: OptimizerFactory = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)


def psgd(optimizer: OptimizerFactory) -> Strategy:
    """Parallel SGD:  x <- x - gamma (1/n) sum_j g_j.

    Memory: the optimizer's. Sends: g_i by all-reduce at every step, d numbers of payload.

    >>> psgd(partial(torch.optim.SGD, lr=0.1)).gradients.scope
    'coordinate'
    """
    return Strategy(Local(optimizer), gradients=Average(Dense()))


def compressed_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """QSGD and its kin:  x <- x - gamma (1/n) sum_j C(g_j).

    Memory: the optimizer's. Sends: C(g_i), by all-reduce if messages sum and all-gather otherwise. With a C of variance
    omega it needs gamma L omega / n small, and does not reach the optimum of heterogeneous data at constant gamma.
    Source: Alistarh et al., arXiv 1610.02132, Algorithm 1.
    """
    return Strategy(Local(optimizer), gradients=Average(compressor))


def mem_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """MEM-SGD (EF-SGD):  q_i = gamma g_i + e_i;  x <- x - (1/n) sum_j C(q_j);  e_i = q_i - C(q_i).

    The virtual iterate x - mean e_i follows exact SGD for every schedule, since e_i is kept in units of gamma g.
    Memory: e_i. Sends: C(q_i).
    Source: Stich, Cordonnier, Jaggi, arXiv 1809.07599, Algorithm 1.
    """
    local = Local(optimizer)
    return Strategy(local, gradients=Scaled(local, Average(ErrorFeedback(compressor))))


Server = Literal["row", "sharded"]


def double_squeeze(optimizer: OptimizerFactory, compressor: Compressor, server: Server = "row") -> Strategy:
    """DoubleSqueeze: workers send C(gamma g_i + e_i), the server answers C(mean + e); both remember what they did not
    say.

    server "row": one server, whose link carries n messages up and down. "sharded": worker b is the server of the b-th
    of n equal blocks of coordinates, which are compressed one by one.
    Memory: e_i at each worker, e at the server. Sends: one message up and one down (n small ones, if sharded).
    Source: Tang et al., arXiv 1905.05957, Algorithm 1.
    """
    return neolithic(optimizer, compressor, rounds=1, server=server)


def neolithic(
    optimizer: OptimizerFactory, compressor: Compressor, rounds: int = 2, ef: bool = True, server: Server = "row"
) -> Strategy:
    """NEOLITHIC: DoubleSqueeze with `rounds` messages of C(v - what was said so far) in the place of one.

    Gradients are averaged over `rounds` minibatches, so that one costs as many bytes as in DoubleSqueeze. Both sides
    carry error feedback, the reading in which rounds = 1 is DoubleSqueeze; ef=False is the other one, without.
    Memory, messages and `server` as there, rounds-fold.
    Source: Huang, Chen, Yin, Yuan, arXiv 2206.03665, Algorithm 1.
    """
    local = Local(optimizer)
    said = Repeated(compressor, rounds) if rounds > 1 else compressor
    encode = ErrorFeedback if ef else contractive
    through = ThroughServer(up=encode(said), down=encode(said))
    servers: dict[str, Transform] = {"row": through, "sharded": Sharded(through)}
    if server not in servers:
        raise ValueError(f"server = {server!r} was asked for; choose from {', '.join(map(repr, servers))}")
    return Strategy(local, Scaled(local, servers[server]), accumulate=rounds)


def _changes(compressor: Compressor, first: Literal["dense", "compressed"]) -> Encoder | Compressor:
    """What an EF21 sends: C of the contraction, with a dense first message if g_i^0 is to be known exactly."""
    choices: dict[str, Encoder | Compressor] = {
        "dense": Warmup(Dense(), 1, contractive(compressor)),
        "compressed": contractive(compressor),
    }
    if first not in choices:
        raise ValueError(f"first = {first!r} was asked for; the first message is 'dense' or 'compressed'")
    return choices[first]


def ef21(
    optimizer: OptimizerFactory, compressor: Compressor, first: Literal["dense", "compressed"] = "dense"
) -> Strategy:
    """EF21:  c_i = C(g_i - h_i);  h_i <- h_i + c_i;  h <- h + mean c_j;  x <- x - gamma h.

    Memory: h_i (what all know of g_i) and h = mean h_i. Sends: c_i; at the first step g_i itself unless
    first="compressed".
    Source: Richtarik, Sokolov, Fatkhullin, arXiv 2106.05203, Algorithm 2.
    """
    return Strategy(Local(optimizer), gradients=EF21(_changes(compressor, first)))


def ef21_sgdm(
    optimizer: OptimizerFactory,
    compressor: Compressor,
    eta: float = 0.1,
    first: Literal["dense", "compressed"] = "dense",
) -> Strategy:
    """EF21-SGDM:  v_i <- (1 - eta) v_i + eta g_i;  then EF21 on v_i. eta = 1 is EF21.

    Memory: v_i (starting at the first gradient), h_i and h. Sends: C(v_i - h_i).
    Source: Fatkhullin, Tyurin, Richtarik, arXiv 2305.15155, Algorithm 1.
    """
    return Strategy(Local(optimizer), gradients=Chain(Smooth(eta), EF21(_changes(compressor, first))))


def power_sgd(optimizer: OptimizerFactory, rank: int = 2) -> Strategy:
    """PowerSGD: per matrix, P = orth(mean M_i Q), Q = mean M_i^T P, x <- x - gamma P Q^T, e_i = M_i - P Q^T with M_i =
    g_i + e_i.

    Momentum and weight decay act after the reduction. Memory: e_i, and the last Q. Sends: r(a + b) numbers for an (a,
    b) matrix, by two all-reduces; one-dimensional tensors as they are.
    Source: Vogels, Karimireddy, Jaggi, arXiv 1905.13727, Algorithms 1 and 2.
    """
    return Strategy(Local(optimizer), gradients=PowerSGD(rank))


def _ordered(mixing: Transform, order: str, orders: dict[str, bool]) -> Transform:
    if order not in orders:
        raise ValueError(f"order = {order!r} was asked for; the published orders are {' and '.join(map(repr, orders))}")
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


def d2(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """D2:  x^{k+1} = W (2 x^k - x^{k-1} - gamma_k g^k + gamma_{k-1} g^{k-1}),  x^1 = W (x^0 - gamma_0 g^0).

    Free of the bias of heterogeneous data. Needs a fixed symmetric W whose eigenvalues exceed -1/3, and is refused
    otherwise (`lazy(topology)` always serves). Memory: last x and last update. Sends: one vector to each neighbour.
    Source: Tang et al., arXiv 1803.07068, Algorithm 1.
    """
    if topology.period != 1:
        raise ValueError(
            "d2 was asked to run on a topology that changes; its correction is only right for fixed weights: "
            "choose a fixed one that is symmetric, such as lazy(ring(n))"
        )
    matrix = topology.at(0)
    if not matrix.symmetric:
        raise ValueError(
            "d2 was asked to run on directed weights; it needs a symmetric mixing matrix: lazy(ring(n)) serves"
        )
    if matrix.lambda_min <= -1 / 3 + 1e-9:
        raise ValueError(
            f"d2 was asked to run on a mixing matrix with eigenvalue {matrix.lambda_min:.4f}; "
            "it diverges at -1/3 and below: use lazy(topology)"
        )
    return Strategy(D2(Local(optimizer)), parameters=Gossip(topology))


def gradient_tracking(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Gradient tracking:  y^k = W (y^{k-1} + g^k - g^{k-1});  x^{k+1} = W (x^k - gamma y^k),  y^{-1} = g^{-1} = 0.

    sum_i y_i = sum_i g_i at every step, so each worker follows the global gradient. Memory: y_i and the last gradient.
    Sends: two vectors to each neighbour.
    Source: Nedic, Olshevsky, Shi, arXiv 1607.03218 (adapt-then-combine form).
    """
    return Strategy(Local(optimizer), gradients=Tracking(Gossip(topology)), parameters=Gossip(topology))


def gossip_pga(optimizer: OptimizerFactory, topology: Topology, period: int = 6) -> Strategy:
    """Gossip-PGA: dsgd, but exact averaging of the parameters every `period` steps.

    period = 1 is parallel SGD, W = I is local SGD. Memory: the optimizer's. Sends: x_i to each neighbour, or by
    all-reduce when due.
    Source: Chen et al., arXiv 2105.09080, Algorithm 1.
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average(), otherwise=Gossip(topology)))


def local_sgd(optimizer: OptimizerFactory, period: int = 8) -> Strategy:
    """Local SGD (FedAvg):  x_i <- x_i - gamma g_i;  every `period` steps x_i <- mean x_j.

    Memory: the optimizer's, local, not reset. Sends: x_i by all-reduce every `period` steps.
    Source: Stich, arXiv 1805.09767; McMahan et al., arXiv 1602.05629.
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average()))


def dasgd(optimizer: OptimizerFactory, period: int = 8, delay: int = 1) -> Strategy:
    """DaSGD: local SGD whose average arrives `delay` steps later, hidden behind them:
    x_i <- x_i + (mean x_j - x_i) of `delay` steps ago.

    delay = 0 is local SGD. Memory: the optimizer's, local, and the corrections under way. Sends: x_i by all-reduce
    every `period` steps.
    Source: Zhou et al., arXiv 2006.00441.
    """
    return Strategy(Local(optimizer), parameters=Delayed(Every(period, Average()), delay))


def slowmo(optimizer: OptimizerFactory, period: int = 8, beta: float = 0.5, alpha: float = 1.0) -> Strategy:
    """SlowMo: every `period` steps,  u <- beta u + (a - mean x_j) / gamma;  a <- a - alpha gamma u;  x_i <- a.

    beta = 0, alpha = 1 is local SGD. Memory: the anchor a and the slow momentum u. Sends: a - x_i by all-reduce when
    due.
    Source: Wang, Tantia, Ballas, Rabbat, arXiv 1910.00643, Algorithm 1.
    """
    local = Local(optimizer)
    outer = RelativeTo(local, partial(torch.optim.SGD, lr=alpha, momentum=beta))
    return Strategy(local, parameters=Every(period, Outer(outer, Average())))


def diloco(optimizer: OptimizerFactory, period: int = 16, outer: OptimizerFactory = NESTEROV) -> Strategy:
    """DiLoCo: every `period` steps the mean move a - mean x_j is the gradient of an outer optimizer on the anchor a,
    and x_i <- a.

    Memory: the anchor, the outer and the inner optimizers' states (inner ones local, not reset). Sends: a - x_i by
    all-reduce when due.
    Source: Douillard et al., arXiv 2311.08105, Algorithm 1 (outer Nesterov SGD, lr 0.7, momentum 0.9).
    """
    return Strategy(Local(optimizer), parameters=Every(period, Outer(Local(outer), Average())))


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
