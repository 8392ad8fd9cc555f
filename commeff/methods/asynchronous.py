"""Wait for nobody: methods whose workers go on with what is there, so that slow ones do not hold the others up.

A step is what happens at one instant: those who have *finished* a gradient take part, the others still compute. The
clock of a run says who that is (docs/asynchrony.md). Without one all finish together, and each method is the
synchronous one that it names.
"""

from __future__ import annotations

from functools import partial

import torch

from commeff.core.events import WaitsFor
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.topologies import Topology
from commeff.transforms import Ahead, DelayedNesterov, PairAverage, ParameterServer, ServerOptimizer, StaleGossip

PLAIN: OptimizerFactory = partial(torch.optim.SGD, lr=1.0)


def async_sgd(optimizer: OptimizerFactory, patience: float | None = None) -> Strategy:
    """Asynchronous SGD: whoever has a gradient sends its step to the server, and goes on with the server's model.

        y <- y - (1/m) sum over the m workers that arrive of s_i gamma g_i(x_i);  x_i <- y  for these

    x_i is what i read last, tau_i updates of the server ago, and s_i = min(1, patience/tau_i). Where all arrive
    together, m = n, it is `psgd` (with an optimizer that is linear in the gradients). The result is y.

    Memory: x_i as it was read, the optimizer's, local to each worker; the server y. Sends: the step to the server and y
    back, when a worker arrives.

    When: workers of different speeds, a server that bears the traffic, and a learning rate that bears gradients about
    n - 1 updates old.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    patience
        Delay-adaptive steps: what is older than so many updates is scaled by patience/tau. n - 1 is what workers of
        one speed have; 1 is staleness-aware SGD (Zhang et al., arXiv 1511.05950). None scales nothing.

    References
    ----------
    Agarwal, Duchi, Distributed delayed stochastic optimization, arXiv 1104.5525; delay-adaptive steps: Koloskova,
    Stich, Jaggi, arXiv 2206.08307, and Mishchenko et al., arXiv 2206.07638, whose rates fall as 1/tau beyond n.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> same(async_sgd(SGD), psgd(SGD)), payloads(async_sgd(SGD))
    (True, [800])
    """
    server = ServerOptimizer(Local(PLAIN))
    return Strategy(_at_rows(optimizer), parameters=ParameterServer(server, WaitsFor(), patience))


def async_local_sgd(
    optimizer: OptimizerFactory,
    period: int = 8,
    outer_lr: float = 0.7,
    beta: float = 0.9,
    buffer_size: int | None = None,
) -> Strategy:
    """Asynchronous local SGD with delayed Nesterov momentum: moves count when they come, momentum once for N of them.

        D = (sum of what arrives of x_i^read - x_i)/N;  y <- y - outer_lr D;  x_i <- y  for these
        once N have come, S the sum of their D:  m <- beta m + S;  y <- y - outer_lr beta m

    A worker comes after `period` steps of its own. Those who come together count as one filling of the buffer. Where
    all do and N = n, it is `diloco` with SGD of this learning rate and Nesterov momentum. The result is y.

    Memory: x_i as it was read, the optimizer's, local, not reset; the server y, m and the buffer. Sends: x_i^read - x_i
    to the server and y back, when a worker comes.

    When: as `diloco`, over machines of different speeds, where plain Nesterov momentum at every arrival diverges.

    Parameters
    ----------
    optimizer
        The worker's own (inner) optimizer: a factory such as ``partial(torch.optim.AdamW, lr=4e-4)``.
    period
        H, own steps from one exchange to the next, at least 1.
    outer_lr
        The server's learning rate, above 0; 0.7 is the one of `diloco` here.
    beta
        The momentum, in [0, 1).
    buffer_size
        N, at least 1; the number of workers unless given.

    References
    ----------
    Liu et al., Asynchronous local-SGD training for language modeling, arXiv 2401.09135: its delayed Nesterov update
    with c = 0. Its dynamic local updates, which give slow workers fewer steps, are not here.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import diloco
    >>> same(async_local_sgd(SGD, period=2), diloco(SGD, period=2)), payloads(async_local_sgd(SGD, period=2), steps=2)
    (True, [0, 800])
    """
    server = DelayedNesterov(outer_lr, beta, buffer_size)
    return Strategy(_at_rows(optimizer), parameters=ParameterServer(server, WaitsFor(period)))


def quorum_local_sgd(
    optimizer: OptimizerFactory, period: int = 8, quorum: float = 0.75, grace: float | None = None
) -> Strategy:
    """Local SGD whose server merges when a quorum has come, or some time after the first has.

        y <- y + (mean over those who have come of x_i - x_i^read);  x_i <- y  for these

    A worker comes after `period` steps of its own and waits; those who are late come to a later merge, with moves from
    where they began. Where all come together, or with a quorum of 1, it is `local_sgd`. The result is y.

    Memory: x_i as it was read, the optimizer's, local, not reset; the server y. Sends: x_i^read - x_i to the server and
    y back, for those who have come.

    When: as `local_sgd`, with few stragglers: most go in step, and nobody waits for the slowest.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, own steps from one merge to the next, at least 1.
    quorum
        The share of the workers that must have come, in [0, 1]; rounded up to a number of them.
    grace
        Seconds of the run's clock that the first waits at most for the quorum; None: as long as it takes.

    References
    ----------
    Bonawitz et al., Towards federated learning at scale, arXiv 1902.01046, whose rounds end by a count or a time; there
    the late are dropped. Keeping them is FedBuff's (Nguyen et al., arXiv 2106.06639), with a buffer of the quorum.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import local_sgd
    >>> same(quorum_local_sgd(SGD, period=2), local_sgd(SGD, period=2)), payloads(quorum_local_sgd(SGD, period=2), 2)
    (True, [0, 800])
    """
    server = ServerOptimizer(Local(PLAIN))
    return Strategy(_at_rows(optimizer), parameters=ParameterServer(server, WaitsFor(period, quorum, grace)))


def ad_psgd(optimizer: OptimizerFactory, topology: Topology, seed: int = 0, one_sided: bool = False) -> Strategy:
    """AD-PSGD: whoever has a gradient averages its model with a random neighbour's, and takes its step from there.

        y_i, y_j <- (y_i + y_j)/2;  y_i <- y_i - gamma g_i(x_i);  x_i <- y_i

    for each i that has finished and a random neighbour j, which may still compute: it takes its gradient at the x_j
    that it has read, while its model y_j moves. Sum y moves by -gamma g_i, exactly. Those who finish together meet in
    pairs, each worker in one at most; where all do it is `dsgd` over ``random_pairs(topology, seed)`` in order "awc".
    The result is the mean of y.

    Memory: y_i, and x_i as it was read; the optimizer's, local to each worker. Sends: y_i to the other one of a pair.

    When: gossip over machines of different speeds: nobody waits, and one message a gradient is enough.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who may meet whom; its weights do not count.
    seed
        The seed of the meetings.
    one_sided
        Only every other worker of a bipartite graph asks, as in the paper, where processes might else wait for each
        other in a circle. A simulated run cannot, and lets all ask.

    References
    ----------
    Lian, Zhang, Zhang, Liu, Asynchronous decentralized parallel stochastic gradient descent, arXiv 1710.06952,
    Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import complete, random_pairs
    >>> same(ad_psgd(SGD, complete(4)), dsgd(SGD, random_pairs(complete(4), seed=0), order="awc"))
    True
    >>> payloads(ad_psgd(SGD, complete(4)))
    [400]
    """
    return Strategy(_at_rows(optimizer), parameters=PairAverage(topology, seed, one_sided))


def stale_dsgd(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Decentralized SGD without waiting: a worker mixes with what its neighbours have left, however old that is.

        x_i <- sum_j W[i, j] x_j - gamma g_i(x_i)   for those who have finished

    x_j is what j had when it finished last, also of those who finish together. Where all do it is `dsgd` in order
    "awc". It rests where that does, whoever is slow; on the way there the mean of x is not kept.

    Memory: x_i as it was mixed; the optimizer's, local to each worker. Sends: x_j to each neighbour that has finished.

    When: as `ad_psgd` on fixed graphs whose weights should be used, and where slow workers should count as much as fast
    ones.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with weights that sum to 1 for each receiver.

    References
    ----------
    Bornstein et al., SWIFT: rapid decentralized federated learning via wait-free model communication, arXiv
    2210.14026, equation 4. It also chooses the weights by how often workers finish; here they are the topology's.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import ring
    >>> same(stale_dsgd(SGD, ring(4)), dsgd(SGD, ring(4), order="awc")), payloads(stale_dsgd(SGD, ring(4)))
    (True, [400])
    """
    return Strategy(_at_rows(optimizer), parameters=Ahead(StaleGossip(topology)))


def _at_rows(optimizer: OptimizerFactory) -> Local:
    """A local step whose result is where it takes gradients: what others read of a worker is that."""
    local = Local(optimizer)
    if local.evaluates_elsewhere or local.curvature is not None:
        raise ValueError(
            f"optimizer must be evaluated where it steps and need nothing but gradients, got {local.kind}: others go "
            "on from a worker's rows, whenever they come to it; choose SGD, or AdamW with a schedule"
        )
    return local
