"""Talk to few: methods that mix parameters over the edges of a graph."""

from __future__ import annotations

from typing import Literal

from commeff.compressors import Compressor
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.topologies import Topology
from commeff.transforms import Average, Choco, Every, Gossip, Growing, Hierarchical, PushSum, ordered


def dsgd(optimizer: OptimizerFactory, topology: Topology, order: Literal["atc", "awc"] = "atc") -> Strategy:
    """Decentralized SGD: every worker takes its own step and averages with its neighbours.

        atc:  x_i <- sum_j W[i, j] (x_j - gamma g_j)
        awc:  x_i <- sum_j W[i, j] x_j - gamma g_i

    Adapt-then-combine equals parallel SGD for W = J; adapt-while-communicate lets the mixing travel while the gradient
    is computed.

    Memory: the optimizer's, local to each worker (with momentum: DmSGD). Sends: x_i to each neighbour at every step.

    When: many workers and latency: nobody waits for more than its neighbours. On heterogeneous data a sparse graph
    leaves a bias that grows with gamma.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.
    order
        "atc" or "awc", whether the step is taken before the mixing or beside it.

    References
    ----------
    Lian et al., Can decentralized algorithms outperform centralized algorithms?, arXiv 1705.09056, Algorithm 1 (awc);
    the orders are those of Chen, Sayed, arXiv 1111.0034.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> from commeff.topologies import complete, ring
    >>> same(dsgd(SGD, complete(4)), psgd(SGD)), payloads(dsgd(SGD, ring(4)))
    (True, [400])
    """
    return Strategy(Local(optimizer), parameters=ordered(Gossip(topology), order, {"atc": False, "awc": True}))


def hierarchical_dsgd(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Decentralized SGD between nodes, exact averaging inside each.

        x_i <- sum_b W[a, b] (mean over the workers j of node b of (x_j - gamma g_j)),  a the node of i

    The workers of a node share the node's gossip between them. One node is parallel SGD, nodes of one worker are
    `dsgd`.

    Memory: the optimizer's, local to each worker. Sends at every step, for nodes of q: 2 (q - 1)/q of x_i inside the
    node, 1/q of it to each neighbouring node.

    When: nodes of several GPUs: fast links average exactly, slow ones carry gossip between nodes.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Between the nodes: topology.n of them, of n / topology.n consecutive workers each.

    References
    ----------
    Assran et al., Stochastic gradient push, arXiv 1811.10792, whose nodes are machines of 8 GPUs.

    Examples
    --------
    Two nodes of two: half of 400 bytes twice inside, half once to the other node.

    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.topologies import ring
    >>> payloads(hierarchical_dsgd(SGD, ring(2)))
    [600]
    >>> same(hierarchical_dsgd(SGD, ring(4)), dsgd(SGD, ring(4)))
    True
    """
    return Strategy(Local(optimizer), parameters=Hierarchical(topology))


def sgp(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Stochastic gradient push: decentralized SGD on directed graphs, where a counted weight corrects the mean.

        y_i <- sum_j P[i, j] (y_j - gamma g_j);  w_i <- sum_j P[i, j] w_j;  x_i = y_i / w_i

    Everyone decides alone how to divide what it sends: the columns of P sum to 1. The gradient is taken at x_i. Where
    the rows sum to 1 as well it is `dsgd`.

    Memory: y_i, w_i and x_i; sum w_i = n always. Sends: y_i and w_i, d + 1 numbers, to each receiver at every step.

    When: directed or changing graphs whose weights only the senders know, as when links drop out or are one-way.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Directed or not, fixed or changing, with columns that sum to 1: P^k = ``topology.at(k)``.

    References
    ----------
    Assran, Loizou, Ballas, Rabbat, Stochastic gradient push for distributed deep learning, arXiv 1811.10792,
    Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.topologies import exponential
    >>> same(sgp(SGD, exponential(4)), dsgd(SGD, exponential(4))), payloads(sgp(SGD, exponential(4)))
    (True, [404])
    """
    return Strategy(Local(optimizer), parameters=PushSum(topology))


def gossip_pga(optimizer: OptimizerFactory, topology: Topology, period: int = 6) -> Strategy:
    """Gossip-PGA: decentralized SGD with an exact average of the parameters now and then.

        x_i <- sum_j W[i, j] (x_j - gamma g_j);  at every `period`-th step (1/n) sum_j (x_j - gamma g_j) instead

    period = 1 is parallel SGD, W = I is local SGD.

    Memory: the optimizer's. Sends: x_i to each neighbour, or by all-reduce when it is due.

    When: large, sparse graphs, whose slow consensus a rare exact average repairs.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.
    period
        H, steps from one exact average to the next, at least 1. 6 is what the authors' public
        code states.

    References
    ----------
    Chen et al., Accelerating gossip SGD with periodic global averaging, arXiv 2105.09080, Algorithm 1.

    Examples
    --------
    >>> import numpy
    >>> from commeff.laws.examples import SGD, same
    >>> from commeff.methods import local_sgd, psgd
    >>> from commeff.topologies import from_matrices, ring
    >>> same(gossip_pga(SGD, ring(4), period=1), psgd(SGD))
    True
    >>> same(gossip_pga(SGD, from_matrices([numpy.eye(4)]), period=2), local_sgd(SGD, period=2))
    True
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average(), otherwise=Gossip(topology)))


def gossip_aga(
    optimizer: OptimizerFactory, topology: Topology, period: int = 4, warmup: int = 100, power: float = 1.0
) -> Strategy:
    """Gossip-AGA: Gossip-PGA whose period grows as the loss falls.

        as `gossip_pga`;  after each exact average  H <- ceil((F_0/F)^power H_0)

    F is the mean of the workers' minibatch losses in a step with an exact average; there they average the loss too, to
    agree on H. Losses of the steps between do not count, in F_0 neither. In the first `warmup` steps H is
    H_0 and F_0 <- (F_0 + F)/2, beginning with the first F. With a constant loss it is `gossip_pga`.

    Memory: the optimizer's. Sends: x_i to each neighbour, or by all-reduce when it is due, with one number more. How
    often depends on the losses: profiles give the most, an average at every step.

    When: as `gossip_pga`, where averages matter most at the beginning.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.
    period
        H_0, the first period, at least 1; the authors' 4 unless given.
    warmup
        Steps in which H stays H_0; 100 is a default of this package. In a loop of your own set
        ``communicator.context.losses``, (w,), before each step: where nobody says the loss, H stays.
    power
        1 is the published algorithm, 1/4 what its theory suggests.

    References
    ----------
    Chen et al., Accelerating gossip SGD with periodic global averaging, arXiv 2105.09080, Algorithm 2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, payloads, same
    >>> from commeff.topologies import ring
    >>> same(gossip_aga(SGD, ring(4), period=2), gossip_pga(SGD, ring(4), period=2))        # nobody says the loss
    True
    """
    return Strategy(Local(optimizer), parameters=Growing(period, Average(), Gossip(topology), warmup, power))


def choco(
    optimizer: OptimizerFactory,
    topology: Topology,
    compressor: Compressor,
    gamma: float = 0.5,
    order: Literal["A", "B"] = "A",
) -> Strategy:
    """CHOCO-SGD: gossip of public copies y_i, which move by compressed differences, so that messages are small.

        q_i = C(h_i - y_i);  y_i <- y_i + q_i;  x_i = h_i + gamma sum_j W[i, j] (y_j - y_i)

    The mean of x moves by exact SGD for every C. h_i is x_i - eta g_i in order "A" and x_i in order "B", with eta the
    learning rate.

    Memory: y_i and sum_j W[i, j] y_j; B also the last x_i. Sends: q_i to each neighbour at every step.

    When: gossip over links that are slow, not only far: messages are compressed and consensus is kept, on a fixed
    graph.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is eta here.
    topology
        A fixed topology; changing ones are refused, since y_i must be known to the same neighbours for ever.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    gamma
        The consensus step size, in (0, 1]: how far a worker goes towards its neighbours' copies. 1 suits messages that
        lose nothing. The less C keeps, the smaller it must be, or the method diverges: the default, 0.5, suits scaled
        signs, sparse messages need less. The theory's value is of the order of delta (1 - rho)^2.
    order
        "A": the exchange is of x_i after its gradient step (arXiv 1902.00340; with C = I and gamma = 1 it is `dsgd`
        atc). "B": the exchange is of x_i, and the gradient step is added to its result (arXiv 1907.09356; there it is
        `dsgd` awc), so it can travel while the gradient is computed. That paper sends C(x^{k+1} - y) at the end of
        step k; here it goes out when step k + 1 begins, so that y starts from C(x^0), which is 0 where all start at 0.

    References
    ----------
    Koloskova, Stich, Jaggi, Decentralized stochastic optimization and gossip algorithms with compressed communication,
    arXiv 1902.00340, Algorithm 2; Koloskova, Lin, Stich, Jaggi, arXiv 1907.09356, Algorithm 1.

    Examples
    --------
    100 signs and a scale; without compression it is `dsgd`:

    >>> from commeff.compressors import Dense, ScaledSign
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.topologies import ring
    >>> payloads(choco(SGD, ring(4), ScaledSign()))
    [17]
    >>> same(choco(SGD, ring(4), Dense(), gamma=1.0), dsgd(SGD, ring(4)))
    True
    """
    return Strategy(
        Local(optimizer), parameters=ordered(Choco(topology, compressor, gamma), order, {"A": False, "B": True})
    )
