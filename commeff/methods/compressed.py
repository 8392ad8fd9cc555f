"""Say less: methods that average compressed gradients. Parallel SGD is the one that compresses nothing."""

from __future__ import annotations

from typing import Literal

from commeff import require
from commeff.compressors import Compressor, Repeated, contractive
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy, Transform
from commeff.transforms import Average, BatchedPowerSGD, ErrorFeedback, Scaled, Sharded, ThroughServer

Place = Literal["row", "sharded"]


def served(through: ThroughServer, server: Place) -> Transform:
    """The average through one server's row, or through n shards of it."""
    servers: dict[str, Transform] = {"row": through, "sharded": Sharded(through)}
    return require.choose(servers, server=server)


def psgd(optimizer: OptimizerFactory) -> Strategy:
    """Parallel SGD: every step averages the gradients exactly.

        x <- x - gamma (1/n) sum_j g_j

    Memory: the optimizer's. Sends: g_i by all-reduce at every step, d numbers of payload.

    When: the baseline, and the right choice where links are fast: nothing is lost, and buckets hide behind backward.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.

    Examples
    --------
    100 float32 numbers, and the optimum of the mean of all workers' functions:

    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> payloads(psgd(SGD)), bias(psgd(SGD)) < 1e-12
    ([400], True)
    """
    return Strategy(Local(optimizer), gradients=Average())


def compressed_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """QSGD and its kin: every step averages compressed gradients.

        x <- x - gamma (1/n) sum_j C(g_j)

    With a C of variance omega it needs gamma L omega / n small (L: the smoothness), and does not reach the optimum of
    heterogeneous data at constant gamma. Nothing remembers what C dropped, so C should be unbiased.

    Memory: the optimizer's. Sends: C(g_i) at every step, by all-reduce if messages can be summed and by all-gather
    otherwise.

    When: unbiased messages of a few bits on a link that is the bottleneck; with few workers, or with messages that can
    be summed, since others are gathered by all.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C, applied to the gradient, best unbiased (QSGD, natural, TernGrad, scaled random-k).

    References
    ----------
    Alistarh et al., QSGD, arXiv 1610.02132, Algorithm 1.

    Examples
    --------
    4 bits for each of 100 numbers and a scale of 4 bytes; without compression it is `psgd`:

    >>> from commeff.compressors import QSGD, Dense
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(compressed_sgd(SGD, QSGD(levels=7)))
    [54]
    >>> same(compressed_sgd(SGD, Dense()), psgd(SGD))
    True
    """
    return Strategy(Local(optimizer), gradients=Average(compressor))


def mem_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """MEM-SGD (EF-SGD): every worker remembers what its compressor dropped, and adds it to the next message.

        q_i = gamma g_i + e_i;  x <- x - (1/n) sum_j C(q_j);  e_i = q_i - C(q_i)

    The virtual iterate x - mean e_i follows exact SGD for every schedule, since e_i is kept in units of gamma g.

    Memory: e_i. Sends: C(q_i) at every step, by all-reduce if messages can be summed and by all-gather otherwise;
    nothing where gamma = 0.

    When: strong compression of gradients, biased ones too: the first to try with top-k or signs, if a vector of memory
    can be had.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).

    References
    ----------
    Stich, Cordonnier, Jaggi, Sparsified SGD with memory, arXiv 1809.07599, Algorithm 1.

    Examples
    --------
    10 values of 4 bytes and 10 packed indices of 7 bits; without compression it is `psgd`:

    >>> from commeff.compressors import Dense, TopK
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(mem_sgd(SGD, TopK(k=10)))
    [49]
    >>> same(mem_sgd(SGD, Dense()), psgd(SGD))
    True
    """
    local = Local(optimizer)
    return Strategy(local, gradients=Scaled(local, Average(ErrorFeedback(compressor))))


def double_squeeze(optimizer: OptimizerFactory, compressor: Compressor, server: Place = "row") -> Strategy:
    """DoubleSqueeze: workers send C(gamma g_i + e_i), a server answers C(mean + e); both remember what was dropped.

        q_i = gamma g_i + e_i;  e_i = q_i - C(q_i);  v = (1/n) sum_j C(q_j) + e;  e = v - C(v);  x <- x - C(v)

    Memory: e_i at each worker, e at the server. Sends at every step: C(q_i) to the server, C(v) from it (n small
    messages each way, if sharded).

    When: a server, or a link, on which the way back is as dear as the way there; biased messages both ways.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    server
        Where the server's part runs. "row": one server, whose link carries n messages up and down. "sharded": worker b
        serves the b-th of n equal blocks of coordinates, each compressed alone, so that no link carries more than
        others.

    References
    ----------
    Tang et al., DoubleSqueeze, arXiv 1905.05957, Algorithm 1.

    Examples
    --------
    100 signs and a scale, 17 bytes, up and down; without compression it is `psgd`:

    >>> from commeff.compressors import Dense, ScaledSign
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(double_squeeze(SGD, ScaledSign()))
    [34]
    >>> same(double_squeeze(SGD, Dense()), psgd(SGD))
    True
    """
    return neolithic(optimizer, compressor, rounds=1, server=server)


def neolithic(
    optimizer: OptimizerFactory, compressor: Compressor, rounds: int = 2, ef: bool = True, server: Place = "row"
) -> Strategy:
    """NEOLITHIC: DoubleSqueeze with `rounds` messages, each of what the earlier ones missed, in the place of one.

        y = 0;  `rounds` times  y <- y + C(v - y);  y is sent in the place of C(v)

    Gradients are averaged over `rounds` minibatches, so that a minibatch costs as many bytes as in DoubleSqueeze.

    Memory: as in `double_squeeze`, none with ef=False. Sends: `rounds` messages up and as many down at every step.

    When: as `double_squeeze` where one message loses too much, and minibatches are cheap beside messages.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    rounds
        R, messages for one vector and minibatches for one step, at least 1; the error shrinks as (1 - delta)^R.
    ef
        Whether both sides carry error feedback, the reading in which rounds = 1 is DoubleSqueeze; False is the other
        reading, without.
    server
        Where the server's part runs. "row": one server, whose link carries n messages up and down. "sharded": worker b
        serves the b-th of n equal blocks of coordinates, each compressed alone, so that no link carries more than
        others.

    References
    ----------
    Huang, Chen, Yin, Yuan, Lower bounds and nearly optimal algorithms in distributed learning with communication
    compression, arXiv 2206.03665, Algorithm 1.

    Examples
    --------
    >>> from commeff.compressors import TopK
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> same(neolithic(SGD, TopK(k=5), rounds=1), double_squeeze(SGD, TopK(k=5)))
    True
    >>> payloads(double_squeeze(SGD, TopK(k=5))), payloads(neolithic(SGD, TopK(k=5), rounds=3))
    ([50], [150])
    """
    local = Local(optimizer)
    messages = Repeated(compressor, rounds) if rounds > 1 else compressor
    encode = ErrorFeedback if ef else contractive
    through = ThroughServer(up=encode(messages), down=encode(messages))
    return Strategy(local, Scaled(local, served(through, server)), accumulate=rounds)


def power_sgd(optimizer: OptimizerFactory, rank: int = 2) -> Strategy:
    """PowerSGD: gradients of matrices are averaged as products of two thin factors, by one power iteration a step.

    For each (a, b) matrix, with the error of before added, M_i = G_i + E_i:

        P = orth((1/n) sum_j M_j Q);  Q = (1/n) sum_j M_j^T P;  x <- x - gamma P Q^T;  E_i = M_i - P Q^T

    Momentum and weight decay act after the reduction.

    Memory: E_i, and the last Q, from which the next step starts. Sends at every step: r (a + b) numbers for a matrix by
    two all-reduces; one-dimensional tensors as they are.

    When: large matrices and an all-reduce: its factors are summed in flight, so it saves as much on the wire as in
    payload, on any number of workers.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    rank
        r, columns of P and Q, at least 1; r = min(a, b) loses nothing. 2 is a default of this package.

    References
    ----------
    Vogels, Karimireddy, Jaggi, PowerSGD, arXiv 1905.13727, Algorithms 1 and 2.

    Examples
    --------
    Matrices of (8, 8) and (4, 8) and a vector of 4 take 4 ((16 + 12) 2 + 4) bytes instead of 400:

    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(power_sgd(SGD, rank=2))
    [240]
    >>> same(power_sgd(SGD, rank=8), psgd(SGD))
    True
    """
    return Strategy(Local(optimizer), gradients=BatchedPowerSGD(rank))
