"""Gossip without the bias of heterogeneous data: methods that correct what mixing leaves."""

from __future__ import annotations

from commeff.core.corrections import D2
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.topologies import Topology, lazy
from commeff.transforms import Gossip, Tracking


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
    """D2: decentralized SGD free of the bias of heterogeneous data, by extrapolating from the step before.

        x^{k+1} = W (2 x^k - x^{k-1} - gamma_k g^k + gamma_{k-1} g^{k-1}),  x^1 = W (x^0 - gamma_0 g^0)

    Memory: last x and last update. Sends: one vector to each neighbour at every step.

    When: gossip on very heterogeneous data with a fixed, symmetric graph, one vector a step.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        A fixed topology with symmetric weights whose eigenvalues exceed -1/3; others are refused.
        ``lazy(topology)`` always serves.

    References
    ----------
    Tang et al., D2, arXiv 1803.07068, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import lazy, ring
    >>> graph = lazy(ring(4))
    >>> bias(d2(SGD, graph)) < 1e-12 < bias(dsgd(SGD, graph)), payloads(d2(SGD, graph))
    (True, [400])
    """
    matrix = _steady(topology, "d2").at(0)
    if matrix.lambda_min <= -1 / 3 + 1e-9:
        raise ValueError(
            f"d2: the eigenvalues of the mixing matrix must exceed -1/3, got {matrix.lambda_min:.4f}: it diverges at "
            "-1/3 and below; use lazy(topology)"
        )
    return Strategy(D2(Local(optimizer)), parameters=Gossip(topology))


def exact_diffusion(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Exact diffusion: decentralized SGD free of the bias of heterogeneous data, on any symmetric graph.

        y^k = x^k - gamma g^k;  x^{k+1} = (I + W)/2 (y^k + x^k - y^{k-1}),  y^{-1} = x^0

    It is `d2` on the lazy graph. Memory: last x and last update. Sends: one vector to each neighbour at every step.

    When: as `d2` on graphs with eigenvalues that it refuses.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        A fixed topology with symmetric weights; others are refused. It is made lazy here, (I + W)/2.

    References
    ----------
    Yuan, Ying, Zhao, Sayed, Exact diffusion for distributed optimization and learning, arXiv 1702.05122, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same
    >>> from commeff.topologies import lazy, ring
    >>> same(exact_diffusion(SGD, ring(4)), d2(SGD, lazy(ring(4))))
    True
    """
    return Strategy(D2(Local(optimizer)), parameters=Gossip(lazy(_steady(topology, "exact_diffusion"))))


def gradient_tracking(optimizer: OptimizerFactory, topology: Topology) -> Strategy:
    """Gradient tracking, adapt-then-combine (ATC-DIGing, Aug-DGM): every worker follows the global gradient by mixing
    the changes of the local ones.

        y^k = W (y^{k-1} + g^k - g^{k-1});  x^{k+1} = W (x^k - gamma y^k),  y^{-1} = g^{-1} = 0

    sum_i y_i = sum_i g_i at every step, so heterogeneous data leave no bias. It starts at y^0 = W g^0, the papers at
    y^0 = g^0: the first steps differ, the sum and the fixed point do not. DIGing itself, x^{k+1} = W x^k - gamma y^k
    and y^{k+1} = W y^k + g^{k+1} - g^k, is another method.

    Memory: y_i and the last gradient. Sends: x_i and y_i, two vectors, to each neighbour at every step.

    When: heterogeneous data on directed or changing graphs, if two vectors a step can be had.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.

    References
    ----------
    Nedic, Olshevsky, Shi, Uribe, Geometrically convergent distributed optimization with uncoordinated step-sizes, arXiv
    1609.05877 (ATC-DIGing); Xu, Zhu, Soh, Xie, CDC 2015 (Aug-DGM); DIGing is of arXiv 1607.03218.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import lazy, ring
    >>> graph = lazy(ring(4))
    >>> bias(gradient_tracking(SGD, graph)) < 1e-12 < bias(dsgd(SGD, graph)), payloads(gradient_tracking(SGD, graph))
    (True, [800])
    """
    return Strategy(Local(optimizer), gradients=Tracking(Gossip(topology)), parameters=Gossip(topology))
