"""Trust nobody: averages that some workers cannot spoil."""

from __future__ import annotations

from typing import Literal

from commeff.core import Chain
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.transforms import Robust, Smooth
from commeff.transforms.robust import CentredClipping, GeometricMedian, Krum, Median, RobustRule, TrimmedMean

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
    if rule not in rules:
        raise ValueError(f"rule must be one of {', '.join(rules)}, got {rule!r}")
    if not 0 <= beta < 1:
        raise ValueError(f"beta must lie in [0, 1), got {beta}: it is a momentum; give for example beta=0.9")
    aggregate = Robust(rules[rule], bucketing=bucketing)
    return Strategy(Local(optimizer), gradients=Chain(Smooth(1 - beta), aggregate) if beta else aggregate)
