"""Talk to few, and say less: gossip whose messages are compressed in other ways than CHOCO's."""

from __future__ import annotations

from commeff.compressors import Compressor
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.topologies import Topology
from commeff.transforms import DCD, ECD, DeepSqueeze


def deep_squeeze(optimizer: OptimizerFactory, topology: Topology, compressor: Compressor, eta: float = 0.5) -> Strategy:
    """DeepSqueeze: gossip of compressed parameters, with error feedback.

        v_i = x_i - gamma g_i + e_i;  c_i = C(v_i);  e_i <- v_i - c_i;  x_i <- c_i + eta sum_j W[i, j] (c_j - c_i)

    The mean of x_i + e_i moves by exact SGD for every C, on graphs that balance. C is of the parameters themselves and
    not of a change of theirs: workers that agree move to C(x) even where all gradients are 0. That is the published
    step, and it wants a C that keeps most of a vector; for signs and sparse messages take `choco`.

    Memory: e_i. Sends: c_i to each neighbour at every step.

    When: gossip in a few bits a number over a graph that changes, where CHOCO's running sums are not right.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        Who receives from whom at each step, with which weights: W^k = ``topology.at(k)``.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    eta
        The consensus step size, in (0, 1]; with C = I and eta = 1 it is `dsgd`. 0.5 is a default of this package.

    References
    ----------
    Tang et al., DeepSqueeze: decentralization meets error-compensated compression, arXiv 1907.07346, Algorithm 1.

    Examples
    --------
    8 bits for each of 100 numbers and a scale; without compression it is `dsgd`:

    >>> from commeff.compressors import Dense, Int8
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import ring
    >>> payloads(deep_squeeze(SGD, ring(4), Int8()))
    [104]
    >>> same(deep_squeeze(SGD, ring(4), Dense(), eta=1.0), dsgd(SGD, ring(4)))
    True
    """
    return Strategy(Local(optimizer), parameters=DeepSqueeze(topology, compressor, eta))


def dcd_psgd(optimizer: OptimizerFactory, topology: Topology, compressor: Compressor) -> Strategy:
    """DCD-PSGD: everybody moves by the compressed move that it tells its neighbours, who so know where it is.

        z_i = sum_j W[i, j] x_j - gamma g_i - x_i;  x_i <- x_i + C(z_i)

    The published condition on C is strict: sqrt(omega) below about (1 - rho) / |I - W|, which takes a byte or so for
    each number on a sparse graph; beyond it the method diverges. For strong compression take `choco`.

    Memory: x_i and sum_j W[i, j] x_j. Sends: C(z_i) to each neighbour at every step.

    When: gossip in about a byte a number, with neither a memory of errors nor a consensus step size to tune.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        A fixed topology; changing ones are refused, since neighbours must follow x_i from the start.
    compressor
        C, unbiased; others are refused, since what they drop of a gradient is lost.

    References
    ----------
    Tang, Gan, Zhang, Zhang, Liu, Communication compression for decentralized training, arXiv 1803.06443, Algorithm 1.

    Examples
    --------
    9 bits for each of 100 numbers; without compression it is `dsgd` in the order awc:

    >>> from commeff.compressors import Dense, Natural
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import ring
    >>> payloads(dcd_psgd(SGD, ring(4), Natural()))
    [113]
    >>> same(dcd_psgd(SGD, ring(4), Dense()), dsgd(SGD, ring(4), order="awc"))
    True
    """
    return Strategy(Local(optimizer), parameters=DCD(topology, compressor))


def ecd_psgd(optimizer: OptimizerFactory, topology: Topology, compressor: Compressor) -> Strategy:
    """ECD-PSGD: neighbours estimate where everybody is from compressed extrapolations, with an error that falls as 1/t.

        x_i^{t+1} = sum_j W[i, j] y_j^t - gamma g_i;  z_i = (1 - t/2) x_i^t + (t/2) x_i^{t+1}
        y_i^{t+1} = (1 - 2/t) y_i^t + (2/t) C(z_i)      (t = 1, 2, ...;  y_i^1 = x_i^1)

    A worker too uses the estimate y_i of itself. The error falls where that of C(z) stays bounded; z is of the size of
    the parameters and of t times their last move, so that an error in proportion to z never falls. Estimates move even
    where all gradients are 0, as published.

    Memory: x_i and sum_j W[i, j] y_j. Sends: C(z_i) to each neighbour at every step.

    When: to compare with; `choco` and `dcd_psgd` reach more with the same bytes.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    topology
        A fixed topology; changing ones are refused, since neighbours must follow y_i from the start.
    compressor
        C, unbiased; others are refused.

    References
    ----------
    Tang, Gan, Zhang, Zhang, Liu, Communication compression for decentralized training, arXiv 1803.06443, Algorithm 2.

    Examples
    --------
    >>> from commeff.compressors import Dense, Natural
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import dsgd
    >>> from commeff.topologies import ring
    >>> payloads(ecd_psgd(SGD, ring(4), Natural()))
    [113]
    >>> same(ecd_psgd(SGD, ring(4), Dense()), dsgd(SGD, ring(4), order="awc"))
    True
    """
    return Strategy(Local(optimizer), parameters=ECD(topology, compressor))
