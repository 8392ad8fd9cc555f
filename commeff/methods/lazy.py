"""Say nothing that others know: a worker sends its gradient only where that has changed enough."""

from __future__ import annotations

from typing import Literal

from commeff import require
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.transforms import IfBatchChanged, IfChanged, IfMoved, LazyMean


def lag(
    optimizer: OptimizerFactory,
    rule: Literal["worker", "server"] = "worker",
    threshold: float = 0.1,
    memory: int = 10,
    smoothness: float = 1.0,
) -> Strategy:
    """LAG: lazily aggregated gradients; a worker whose gradient has changed little lets its last one stand.

        worker (LAG-WK)  i is silent where |g_i - h_i|^2 <= (xi / gamma^2) sum_{d=1}^D |x^{k+1-d} - x^{k-d}|^2
        server (LAG-PS)  where L^2 |y_i - x^k|^2 <= the same, y_i being where it last sent
        who is not:      h_i <- g_i;      x <- x - gamma (1/n) sum_j h_j

    The change that is let stand is of the size of the steps, so that the rate is that of exact gradients. With noise
    gradients always change: take `lasg`. The paper's step is that of the sum of all f_i, here it is that of their mean.

    Memory: h_i, x^{k-1}; D numbers; y_i for the rule server; h, one row. Sends: a byte to all, whether a worker sends;
    g_i - h_i to the server, by those who do; the mean of these from it, if anybody does. The ledger has those who did,
    a profile the most, which is that all do. The paper's server tells only those who have to compute where x is
    (LAG-PS); here all get its answer, so that all have the model.

    When: full gradients, and workers whose data differ in difficulty: those with smooth losses speak seldom.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma, one for all
        coordinates.
    rule
        "worker" or "server", by what it is decided.
    threshold
        xi, at least 0; 0 is `psgd`. In the paper 0.1 for the rule worker, 1 for the rule server.
    memory
        D, the steps that are summed, at least 1; 10 in the paper.
    smoothness
        L, above 0, for the rule server: how much gradients change where x does.

    References
    ----------
    Chen, Giannakis, Sun, Yin, LAG: lazily aggregated gradient for communication-efficient distributed learning,
    arXiv 1805.09965, Algorithms 1 and 2.

    Examples
    --------
    All send 400 bytes at first and get as many; then each says that it sends nothing, until two of four do:

    >>> from commeff.laws.examples import SGD, bias, payloads, same
    >>> from commeff.methods import psgd
    >>> payloads(lag(SGD), steps=8)
    [801, 1, 1, 1, 1, 601, 1, 601]
    >>> same(lag(SGD, threshold=0.0), psgd(SGD)), bias(lag(SGD)) < 1e-12
    (True, True)
    """
    local = Local(optimizer)
    rules = {
        "worker": IfChanged(local, threshold, memory),
        "server": IfMoved(local, threshold, memory, smoothness),
    }
    return Strategy(local, comparison=require.choose(rules, rule=rule), gradients=LazyMean())


def lasg(optimizer: OptimizerFactory, threshold: float = 0.1, memory: int = 10, longest: int = 50) -> Strategy:
    """LASG: LAG for stochastic gradients, which compares both points on the same minibatch.

        i is silent where |g_i(x^k) - g_i(y_i)|^2 <= (xi / gamma^2) sum_{d=1}^D |x^{k+1-d} - x^{k-d}|^2
        who is not, or has been silent for so many steps:  h_i <- g_i(x^k), y_i <- x^k;   x <- x - gamma (1/n) sum_j h_j

    y_i is where worker i last sent, g_i the gradient of this step's minibatch, whose noise is in both. This is
    LASG-WK2; the noise of a gradient stays in h_i until the next. gamma in the threshold is that of this
    step: gamma^2 |change|^2 is compared with xi times the sum, whatever a schedule makes of the rate.

    Memory: h_i, y_i, x^{k-1}, D numbers; h, one row. Sends as `lag` does. A step takes two gradients (`oracle`), so
    that workers have to lie on one process each, in 32 bits.

    When: as `lag` where gradients are of minibatches.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma, one for all
        coordinates.
    threshold
        xi, at least 0; 0 is `psgd`. 0.1 is a default of this package, as of `lag`.
    memory
        D, the steps that are summed, at least 1.
    longest
        The steps after which a worker sends in any case, at least 1; 1 is `psgd`. 50 is a default of this package.

    References
    ----------
    Chen, Sun, Yin, LASG: lazily aggregated stochastic gradients, arXiv 2002.11360, Algorithm 1, rule WK2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, payloads, same
    >>> from commeff.methods import psgd
    >>> payloads(lasg(SGD), steps=8)
    [801, 1, 1, 1, 1, 601, 1, 601]
    >>> same(lasg(SGD, threshold=0.0), psgd(SGD)), same(lasg(SGD, longest=1), psgd(SGD))
    (True, True)
    """
    local = Local(optimizer)
    return Strategy(local, comparison=IfBatchChanged(local, threshold, memory, longest), gradients=LazyMean())
