"""Let momenta differ: only what changes fast in them is averaged."""

from __future__ import annotations

from typing import Literal

from commeff import require
from commeff.compressors import RandomK
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy, Transform
from commeff.transforms import Average, CosineMomentum, ErrorFeedback, Scaled, Signed, Striding


def demo(
    optimizer: OptimizerFactory,
    replicator: Literal["dct", "striding", "random"] = "dct",
    k: int = 32,
    chunk: int = 64,
    ratio: float = 1 / 32,
    beta: float = 0.999,
    sign: bool = True,
) -> Strategy:
    """DeMo: decoupled momentum; workers average the fast part of their momenta and keep the rest to themselves.

        m_i <- beta m_i + gamma g_i;  q_i = the fast part of m_i;  m_i <- m_i - q_i
        x <- x - gamma sign(mean of the q_j)

    The fast part, which a *replicator* finds: *dct*, the k largest cosine coefficients of each chunk of a matrix or
    vector, and of each coefficient the mean is that of those who sent it; *striding*, every (1/ratio)-th coordinate,
    others at each step, and *random*, that share drawn anew, the same for all (the paper's of hybrid sharding has both
    beside DeMo's). What has been sent leaves m: a k of everything leaves no momentum, and is sign SGD of the mean
    gradient, or without signs `psgd`.

    Memory: m_i. Sends: k values and k indices a chunk, by all-gather; or ratio d numbers, by all-reduce.

    When: training from scratch over slow links where sign SGD does; tensors of which neighbouring numbers are related.

    Parameters
    ----------
    optimizer
        What steps along the signs: plain SGD, ``partial(torch.optim.SGD, lr=0.001)``; its lr is gamma, one for all
        coordinates. Its weight decay is decoupled, as in the authors' code.
    replicator
        What finds the fast part.
    k
        For dct, the coefficients of a chunk, at least 1; 32 in the authors' code.
    chunk
        For dct, the longest side of a chunk, at most 4096; sides divide those of the tensor. 64 in the authors' code.
    ratio
        For the others, the share of the coordinates, in (0, 1]; 1/32 is a default of this package.
    beta
        The share of m that is kept, in [0, 1]; 0.999 in the authors' code.
    sign
        Whether the step is along the signs, or along the mean itself.

    References
    ----------
    Peng, Quesnelle, Kingma, DeMo: decoupled momentum optimization, arXiv 2411.19870, Algorithm 1; From, Nielsen,
    Galke, Schneider-Kamp, DeToNATION (FlexDeMo), arXiv 2502.06728, for other replicators.

    Examples
    --------
    Chunks of 64, 32 and 4 numbers, with indices of 6, 5 and 2 bits, or every fourth number:

    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> payloads(demo(SGD, k=2)), payloads(demo(SGD, "striding", ratio=0.25))
    ([29], [100])
    >>> same(demo(SGD, k=4096, sign=False), psgd(SGD)), same(demo(SGD, "striding", ratio=1.0, sign=False), psgd(SGD))
    (True, True)
    """
    require.within("(0, 1]", ratio=ratio)
    replicators: dict[str, Transform] = {
        "dct": CosineMomentum(k, chunk, beta),
        "striding": Striding(round(1 / ratio), beta),
        "random": Average(ErrorFeedback(RandomK(ratio=ratio, scaled=False, shared=True), decay=beta)),
    }
    local = Local(optimizer)
    fast = Scaled(local, require.choose(replicators, replicator=replicator))
    return Strategy(local, gradients=Signed(fast) if sign else fast)
