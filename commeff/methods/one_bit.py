"""Say less of Adam: its momentum is compressed, since Adam of compressed gradients is another method."""

from __future__ import annotations

from commeff.compressors import Assumed, Compressor, ScaledSign
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy, Transform
from commeff.methods.compressed import Place, served
from commeff.transforms import Doubling, ErrorFeedback, OneBitAdam, Thinning, ThroughServer, ZeroOneAdam

SIGNS = Assumed(ScaledSign("l2"), contraction=0.5)
UPDATES, MEETINGS = Thinning(), Doubling()


def both_ways(compressor: Compressor, server: Place) -> Transform:
    """An average through a server, with error feedback at the workers and there."""
    return served(ThroughServer(up=ErrorFeedback(compressor), down=ErrorFeedback(compressor)), server)


def one_bit_adam(
    optimizer: OptimizerFactory,
    compressor: Compressor = SIGNS,
    warmup: int = 100,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-5,
    server: Place = "row",
) -> Strategy:
    """1-bit Adam: Adam until its variance is known, then momentum SGD that it scales, with a compressed momentum.

        k < warmup:  m <- beta1 m + (1 - beta1) (1/n) sum_j g_j;  v <- beta2 v + (1 - beta2) ((1/n) sum_j g_j)^2
        after it:    m_i = beta1 m + (1 - beta1) g_i;  m <- C((1/n) sum_j C(m_j + e_j) + e), e_j and e what C drops
        always:      x <- x - gamma m / (sqrt(v) + eps)

    As published and in DeepSpeed nothing is corrected for m = v = 0 at first, so that first steps are longer than those
    of torch's Adam. A warm-up without end is parallel Adam without bias correction. Where v is 0, x stays (DeepSpeed's
    mask): messages err there too.

    Memory: m and v, e_i at each worker, e at the server. Sends: g_i by all-reduce until `warmup`; then C at every step
    to the server and from it.

    When: models that need Adam, on links that are slow: a bit each way for each number. The warm-up, 15 to 20 % of the
    steps in the paper, is dense, and decides how much is saved.

    Parameters
    ----------
    optimizer
        What steps along m / (sqrt(v) + eps): plain SGD, ``partial(torch.optim.SGD, lr=0.001)``; its lr is gamma, of
        Adam's size. Its weight decay is then AdamW's.
    compressor
        C; unless given signs with the scale |v| / sqrt(d), DeepSpeed's.
    warmup
        The steps before v is frozen, at least 1.
    beta1, beta2
        The shares of m and v that are kept, each in [0, 1).
    eps
        Above 0. DeepSpeed has 1e-8; 1e-5 is a default of this package: what C drops is as large where gradients are
        next to nothing, and divided by their sqrt(v) it leads far away.
    server
        Where the server's part runs, as in `double_squeeze`: "row", or "sharded" (DeepSpeed's).

    References
    ----------
    Tang et al., 1-bit Adam, arXiv 2102.02888, Algorithm 1.

    Examples
    --------
    100 numbers, then as many signs and a scale up and down:

    >>> from functools import partial
    >>> from commeff.compressors import Dense
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> from commeff.optimizers import UncorrectedAdam
    >>> payloads(one_bit_adam(SGD, warmup=2), steps=4)
    [400, 400, 34, 34]
    >>> same(one_bit_adam(SGD), psgd(partial(UncorrectedAdam, lr=0.1, eps=1e-5)))
    True
    """
    adam = OneBitAdam(both_ways(compressor, server), warmup, (beta1, beta2), eps)
    return Strategy(Local(optimizer), gradients=adam)


def zero_one_adam(
    optimizer: OptimizerFactory,
    compressor: Compressor = SIGNS,
    updates: Thinning = UPDATES,
    meetings: Doubling = MEETINGS,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-5,
    server: Place = "row",
) -> Strategy:
    """0/1 Adam: 1-bit Adam whose variance is frozen more and more, without a warm-up, and that later talks rarely too.

        m_i <- beta1 m_i + (1 - beta1) g_i;  u_i <- u_i + gamma m_i;  x_i <- x_i - gamma m_i / (sqrt(v) + eps)
        at some steps  u = C((1/n) sum_j C(u_j + e_j) + e);  m_i <- u / (sum of gamma since the last of them)
                       x_i <- x - u / (sqrt(v) + eps), x as it was then;  u_i <- 0

    v is updated by the mean gradient in the first kappa + 1 steps, then in kappa of every 2nd step, of every 4th, and
    so on, until step `freeze` of `updates`: update j + 1 comes 2^floor(j / kappa) steps after update j, as in the
    paper. The step goes by the new v, and m_i by the same mean gradient, which is all that such a step sends, as in
    DeepSpeed; Algorithm 1 sends u_i in the same step too. Where v is 0, x stays. All other steps before `freeze`
    average u_i; from then on every H-th, H doubling from 1 every `doubling` steps of `meetings` up to `longest`.
    Workers' x_i are equal after an average, up to rounding, with plain SGD.

    Memory: m_i, v, u_i, e_i at each worker, e at the server. Sends: g_i by all-reduce where v is updated; else, where
    workers meet, C to the server and from it.

    When: as `one_bit_adam` for long runs: dense messages thin out early, and in the end most steps send nothing.

    Parameters
    ----------
    optimizer
        What steps along m_i / (sqrt(v) + eps): SGD, ``partial(torch.optim.SGD, lr=0.001)``; its lr is gamma, of Adam's
        size, one for all coordinates. Anything but plain SGD is refused: averages take back its steps, and what
        momentum or weight decay moved besides would keep workers apart for good.
    compressor
        C; unless given signs with the scale |v| / sqrt(d), DeepSpeed's.
    updates
        T_v, the steps that update v: `freeze`, from which on v stays, where DeepSpeed's 100,000 is of runs a hundred
        times as long as ours; and `kappa`, how many gaps between two updates are equal before they double, 16 in the
        paper. Each is at least 1.
    meetings
        T_u, the steps that average u_i, from `freeze` on: `doubling`, the steps after which H doubles, 32,768 in the
        paper; and `longest`, the largest H, 16 in the paper; 1: workers never go alone. Each is at least 1.
    beta1, beta2
        The shares of m and v that are kept, each in [0, 1).
    eps
        Above 0. DeepSpeed has 1e-8; 1e-5 is a default of this package: what C drops is as large where gradients are
        next to nothing, and divided by their sqrt(v) it leads far away.
    server
        Where the server's part runs, as in `double_squeeze`: "row", or "sharded" (DeepSpeed's).

    References
    ----------
    Lu, Li, Zhang, De Sa, He, Maximizing communication efficiency for large-scale training via 0/1 Adam,
    arXiv 2202.06009, Algorithm 1.

    Examples
    --------
    Gradients at steps 0, 1, 2 and 4, signs at step 3, and two steps of everybody's own:

    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(zero_one_adam(SGD, updates=Thinning(freeze=5, kappa=2), meetings=Doubling(doubling=2)), steps=9)
    [400, 400, 400, 34, 400, 34, 34, 0, 34]
    >>> same(zero_one_adam(SGD, updates=Thinning(freeze=3), meetings=Doubling(longest=1)), one_bit_adam(SGD, warmup=3))
    True
    """
    local, through = Local(optimizer), both_ways(compressor, server)
    return Strategy(local, gradients=ZeroOneAdam(local, through, updates, meetings, (beta1, beta2), eps))
