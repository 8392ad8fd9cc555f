"""Talk rarely: methods whose workers go alone for a while, or share a part at a time."""

from __future__ import annotations

from commeff.compressors import RandomK
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.transforms import After, Average, Delayed, Every, Partial, Pulled, Shrinking


def local_sgd(optimizer: OptimizerFactory, period: int = 8) -> Strategy:
    """Local SGD (FedAvg): workers go alone, and average their parameters every `period` steps.

        x_i <- x_i - gamma g_i;  at every `period`-th step then  x_i <- (1/n) sum_j x_j

    Memory: the optimizer's, local, not reset. Sends: x_i by all-reduce every `period` steps.

    When: slow links, or latency: the simplest way to talk H times less. Long periods drift apart on heterogeneous data.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, steps from one average to the next, at least 1; 1 is `psgd` (with an optimizer without memory).

    References
    ----------
    Stich, Local SGD converges fast and communicates little, arXiv 1805.09767, Algorithm 1; McMahan et al., arXiv
    1602.05629, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> payloads(local_sgd(SGD, period=2), steps=4)
    [0, 400, 0, 400]
    >>> same(local_sgd(SGD, period=1), psgd(SGD))
    True
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average()))


def post_local_sgd(optimizer: OptimizerFactory, period: int = 16, begin: int = 0) -> Strategy:
    """Post-local SGD: parallel SGD for `begin` steps, local SGD from there on.

        x_i <- x_i - gamma g_i;  then  x_i <- (1/n) sum_j x_j  at every step k < begin, and later at those with
        (k + 1 - begin) mod H = 0: the first local period has H steps, as all others

    Parameters are averaged in both parts, momentum stays local.

    Memory: the optimizer's. Sends: x_i by all-reduce at every step before `begin`, then every `period` steps.

    When: as `local_sgd` where the beginning of training does not bear it: large learning rates come first, in step.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, steps from one average to the next in the second part, at least 1.
    begin
        The first step of the second part; usually the first drop of the learning rate. 0 is `local_sgd`.

    References
    ----------
    Lin, Stich, Patel, Jaggi, Don't use large mini-batches, use local SGD, arXiv 1808.07217, Algorithm 2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(post_local_sgd(SGD, period=2, begin=3), steps=6)
    [400, 400, 400, 0, 400, 0]
    >>> same(post_local_sgd(SGD, period=2, begin=0), local_sgd(SGD, period=2))
    True
    """
    return Strategy(Local(optimizer), parameters=After(begin, Every(period, Average(), offset=-begin), Average()))


def ada_comm(optimizer: OptimizerFactory, period: int = 16, interval: int = 100, decay: float = 0.5) -> Strategy:
    """AdaComm: local SGD whose period shrinks as the loss falls.

        as `local_sgd`;  after an average, if `interval` steps have passed since the last change,
        tau <- ceil(sqrt(F/F_0 gamma_0/gamma) tau_0),  or decay tau if that is no less and gamma is as before

    F is the mean of the workers' minibatch losses, which they average to agree on tau, F_0 that of the first step. With
    interval = infinity it is `local_sgd`. The authors change tau every 60 seconds; steps are the same in every run.

    Memory: the optimizer's, local, not reset. Sends: x_i by all-reduce once a period, with one number more. How often
    depends on the losses: profiles give the most, an average at every step.

    When: as `local_sgd`, where long periods save time early and short ones are needed for the last digits.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        tau_0, the first period, at least 1.
    interval
        The fewest steps between two changes, at least 1; 100 is a default of this package. In a loop of your own set
        ``communicator.context.losses``, (w,), before each step: where nobody says the loss, tau stays.
    decay
        In (0, 1).

    References
    ----------
    Wang, Joshi, Adaptive communication strategies to achieve the best error-runtime trade-off in local-update SGD,
    arXiv 1810.08313, section 4.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, payloads, same
    >>> same(ada_comm(SGD, period=2), local_sgd(SGD, period=2))        # nobody says the loss
    True
    """
    local = Local(optimizer)
    return Strategy(local, parameters=Shrinking(period, Average(), interval, decay, local))


def dasgd(optimizer: OptimizerFactory, period: int = 8, delay: int = 1) -> Strategy:
    """DaSGD: local SGD whose average arrives `delay` steps later, hidden behind them.

        x_i <- x_i - gamma g_i;  then  x_i <- x_i + ((1/n) sum_j x_j - x_i as they were `delay` steps ago), where due

    Memory: the optimizer's, local, and the corrections under way. Sends: x_i by all-reduce every `period` steps.

    When: averages that should cost no waiting at all, and a model that bears parameters that are some steps old.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, steps from one average to the next, at least 1.
    delay
        Steps between the sending of an average and its use, at least 0; 0 is `local_sgd`. As many as the all-reduce
        takes hide it.

    References
    ----------
    Zhou et al., DaSGD, arXiv 2006.00441.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same
    >>> same(dasgd(SGD, period=2, delay=0), local_sgd(SGD, period=2))
    True
    """
    return Strategy(Local(optimizer), parameters=Delayed(Every(period, Average()), delay))


def overlap_local_sgd(optimizer: OptimizerFactory, period: int = 8, pull: float = 0.6, beta: float = 0.7) -> Strategy:
    """Overlap-Local-SGD: workers are drawn to an anchor, whose average travels during a whole period.

        x_i <- x_i - gamma g_i;  at every `period`-th step then  x_i <- x_i - pull (x_i - z)
        and a period later, in time for the next pull,  v <- beta v + ((1/n) sum_j x_j - z);  z <- z + v

    where x_j are as they were pulled, z = x and v = 0 at first.

    Memory: z, v, and the average under way; the optimizer's, local. Sends: x_i by all-reduce every `period` steps.

    When: as `dasgd`, with averages that may take as long as a period and workers that are never set back at once.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        tau, steps from one pull to the next, at least 1; as many as the all-reduce takes hide it.
    pull
        How far a worker goes to the anchor, in (0, 1].
    beta
        The anchor's momentum, in [0, 1). 0.6 and 0.7 are quoted as the paper's pull and beta.

    References
    ----------
    Wang, Liang, Joshi, Overlap local-SGD, arXiv 2002.09539, equations 3, 4 and, with momentum, 10, 11.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, payloads
    >>> payloads(overlap_local_sgd(SGD, period=2), steps=4)
    [0, 400, 0, 400]
    """
    return Strategy(Local(optimizer), parameters=Every(period, Pulled(Average(), pull, beta)))


def sparta(optimizer: OptimizerFactory, ratio: float = 0.005) -> Strategy:
    """SPARTA: after every step a random share of the coordinates, the same for all workers, is averaged.

        x_i <- x_i - gamma g_i;  for the coordinates c of the step then  x_i[c] <- (1/n) sum_j x_j[c]

    The mean of x moves by exact SGD.

    Memory: the optimizer's, local. Sends: ratio d numbers by all-reduce at every step; the seed says
    which.

    When: a thin, steady stream instead of rare bursts: any share of the bytes, and an all-reduce.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    ratio
        The share of the coordinates, in (0, 1]; half a percent unless given. 1 is `psgd` (with an optimizer without
        memory).

    References
    ----------
    EXO Labs, SPARTA: distributed training with sparse parameter averaging, 2025.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import psgd
    >>> payloads(sparta(SGD, ratio=0.05)), same(sparta(SGD, ratio=1.0), psgd(SGD))
    ([20], True)
    """
    return Strategy(Local(optimizer), parameters=Partial(RandomK(ratio=ratio, scaled=False, shared=True)))
