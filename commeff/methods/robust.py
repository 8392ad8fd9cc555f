"""Trust nobody: averages that some workers cannot spoil."""

from __future__ import annotations

from typing import Literal

from commeff import require
from commeff.core import Chain
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.topologies import Topology
from commeff.transforms import Robust, RobustGossip, Smooth
from commeff.transforms.robust import CentredClipping, GeometricMedian, Krum, Median, Outvoting, RobustRule, TrimmedMean
from commeff.transforms.robust_gossip import SelfCentredClipping

RuleName = Literal["median", "trimmed_mean", "krum", "multi_krum", "geometric_median", "centred_clipping"]


def robust_sgd(
    optimizer: OptimizerFactory,
    rule: RuleName = "median",
    f: int | None = None,
    beta: float = 0.0,
    bucketing: int = 1,
    tau: float = 1.0,
) -> Strategy:
    """Robust aggregation: every step takes a rule R of all gradients where parallel SGD takes their mean.

        m_i <- beta m_i + (1 - beta) g_i;  x <- x - gamma R(m_1, ..., m_n)

    The rules: *median* and *trimmed_mean* of each coordinate (arXiv 1803.01498), *krum* and *multi_krum*, the vectors
    nearest to others (arXiv 1703.02757), *geometric_median* (arXiv 1912.13445), *centred_clipping* around the last
    result (arXiv 2012.10333). As long as no more than f workers lie, they move the result no farther than about as far
    as honest ones are apart, whatever they send. A worker's momentum beta brings honest ones nearer to each other, so
    that small lies that add up over time do not pass (arXiv 2012.10333).

    multi_krum is the mean of the n - f - 2 vectors of the best score, where the paper leaves the number open.
    centred_clipping takes three rounds a step, each around the result of the one before. geometric_median takes eight
    steps of Weiszfeld from the median of each coordinate. m_i is g_i in the first step, not (1 - beta) g_i.

    Memory: m_i if beta > 0; the centre of centred clipping. Sends: g_i to everybody at every step, (n - 1) d numbers on
    the wire.

    When: workers that may send anything, by fault or by will; heterogeneous data want `bucketing=2`.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    rule
        R.
    f
        How many may lie, for trimmed mean and Krum; as many as the rule withstands unless given: (n - 1)/2 and
        (n - 3)/2.
    beta
        The momentum of the workers' gradients, in [0, 1).
    bucketing
        s: R sees the means of s vectors each, dealt anew at every step (arXiv 2006.09365).
    tau
        The radius of centred clipping.

    References
    ----------
    Karimireddy, He, Jaggi, Learning from history for Byzantine robust optimization, arXiv 2012.10333.

    Examples
    --------
    A mean of no more than f = 0 liars is parallel SGD:

    >>> from commeff.laws.examples import SGD, payloads, same
    >>> from commeff.methods import psgd
    >>> same(robust_sgd(SGD, rule="trimmed_mean", f=0), psgd(SGD)), payloads(robust_sgd(SGD))
    (True, [400])
    """
    rules: dict[RuleName, RobustRule] = {
        "median": Median(),
        "trimmed_mean": TrimmedMean(f),
        "krum": Krum(f),
        "multi_krum": Krum(f, multiple=True),
        "geometric_median": GeometricMedian(),
        "centred_clipping": CentredClipping(tau),
    }
    chosen = require.choose(rules, rule=rule)
    if f is not None and not isinstance(chosen, Outvoting):
        raise ValueError(f"f must be left out for rule={rule}, got {f}: the rule does not count liars; omit it")
    aggregate = Robust(chosen, bucketing=bucketing)
    return Strategy(Local(optimizer), gradients=Chain(_momentum(beta), aggregate) if beta else aggregate)


def clipped_gossip(
    optimizer: OptimizerFactory, topology: Topology, f: int = 1, tau: float | None = None, beta: float = 0.0
) -> Strategy:
    """ClippedGossip: decentralized SGD in which a neighbour pulls no farther than a radius around a worker's own model.

        m_i <- beta m_i + (1 - beta) g_i;  y_i = x_i - gamma m_i
        x_i <- y_i + sum_j W[i, j] (y_j - y_i) min(1, tau_i / |y_j - y_i|)

    Unless given, tau_i^2 = (1/delta_i) sum of W[i, j] |y_j - y_i|^2 over all neighbours but the f farthest, whose
    weights are delta_i: the radius of the paper's theorem, with the nearest in the place of the honest, whom nobody
    knows. As long as no more than f neighbours of a worker lie, what they send moves it no farther than about as far
    as honest ones are apart.

    Memory: m_i if beta > 0. Sends: x_i to each neighbour at every step, as `dsgd`.

    When: workers that may send anything, and no server or all-gather. Honest workers must stay connected without the
    others, and the more so the more these weigh: a ring with one liar falls apart where data differ.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.
    f
        How many neighbours of a worker may lie; 0: `dsgd`.
    tau
        One radius for all workers and steps instead.
    beta
        The momentum of the workers' gradients, in [0, 1).

    References
    ----------
    He, Karimireddy, Jaggi, Byzantine-robust decentralized learning via ClippedGossip, arXiv 2202.01545, Algorithm 1.

    Examples
    --------
    Nobody lies, or nobody is clipped:

    >>> import math
    >>> from commeff.laws.examples import SGD, payloads, same
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import ring
    >>> same(clipped_gossip(SGD, ring(4), f=0), dsgd(SGD, ring(4))), payloads(clipped_gossip(SGD, ring(4)))
    (True, [400])
    >>> same(clipped_gossip(SGD, ring(4), tau=math.inf), dsgd(SGD, ring(4)))
    True
    """
    mixing = RobustGossip(topology, SelfCentredClipping(f, tau))
    return Strategy(Local(optimizer), _momentum(beta) if beta else None, mixing)


def _momentum(beta: float) -> Smooth:
    require.within("[0, 1)", beta=beta)
    return Smooth(1 - beta)
