"""Talk rarely, with a second optimizer: what the workers moved in a period is its gradient."""

from __future__ import annotations

from functools import partial

import torch

from commeff import require
from commeff.compressors import Int4, Int8
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Keep, Strategy
from commeff.transforms import (
    After,
    Average,
    Every,
    Exchange,
    Fragments,
    InUnitsOf,
    MixedIn,
    NamedFragments,
    OnHost,
    Outer,
    Since,
)

NESTEROV: OptimizerFactory = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
PLAIN: OptimizerFactory = partial(torch.optim.SGD, lr=1.0)
AT_ONCE = Exchange()


def slowmo(optimizer: OptimizerFactory, period: int = 8, beta: float = 0.5, alpha: float = 1.0) -> Strategy:
    """SlowMo: local SGD with a slow momentum on what all workers moved together in a period.

        at every `period`-th step  u <- beta u + (a - (1/n) sum_j x_j)/gamma;  a <- a - alpha gamma u;  x_i <- a

    Memory: the anchor a and the slow momentum u. Sends: a - x_i by all-reduce every `period` steps.

    When: as `local_sgd`, whose accuracy it lifts by a momentum over periods, at no cost in messages.

    Parameters
    ----------
    optimizer
        The worker's own optimizer, best without momentum: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its
        lr is gamma, one for all coordinates.
    period
        H, local steps from one average to the next, at least 1.
    beta
        The slow momentum, in [0, 1): the share of u that the next period keeps.
    alpha
        The slow learning rate, 1 in public implementations. beta = 0 and alpha = 1 is `local_sgd`.

    References
    ----------
    Wang, Tantia, Ballas, Rabbat, SlowMo, arXiv 1910.00643, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same
    >>> from commeff.methods import local_sgd
    >>> same(slowmo(SGD, period=2, beta=0.0, alpha=1.0), local_sgd(SGD, period=2))
    True
    """
    local = Local(optimizer)
    outer = InUnitsOf(local, partial(torch.optim.SGD, lr=alpha, momentum=beta))
    return Strategy(local, parameters=Every(period, Outer(outer, Average())))


def diloco(
    optimizer: OptimizerFactory,
    period: int = 16,
    outer: OptimizerFactory = NESTEROV,
    begin: int = 0,
    exchange: Exchange = AT_ONCE,
    host: bool = False,
) -> Strategy:
    """DiLoCo: the workers' mean move in a period is the gradient of an outer optimizer.

        at every `period`-th step  a <- outer(a, (1/n) sum_j C(a - x_j));  x_i <- a

    C is the identity, or rounds to 8 or 4 bits. From step `begin` on; before that it is parallel SGD,

        x_i <- x_i - gamma (1/n) sum_j g_j

    and a is x as it is when that ends. With a delay the averages of step k travel during the steps that follow:

        at step k + delay  a <- outer(a, (1/n) sum_j C(a - x_j^k));  x_i <- mixing x_i + (1 - mixing) a

    Memory: the anchor a, the outer and the inner optimizers' states (inner ones local, not reset), and x^k while its
    average travels. Sends: a - x_i by all-reduce every `period` steps, by all-gather if it is rounded; before `begin`
    g_i by all-reduce at every step.

    When: language models over slow links: AdamW inside, and hundreds of steps between messages.

    Parameters
    ----------
    optimizer
        The worker's own (inner) optimizer: a factory such as ``partial(torch.optim.AdamW, lr=4e-4)``.
    period
        H, inner steps from one outer step to the next, at least 1. For language models hundreds are usual;
        500 is quoted as the paper's.
    outer
        A factory as `optimizer` is. The default is that of public implementations: Nesterov SGD, lr 0.7, momentum
        0.9. SGD with lr 1 is `local_sgd`.
    begin
        The first step of DiLoCo. From random parameters a start in step helps much; 0 is none.
    exchange
        How averages travel, ``Exchange(delay=0, mixing=0.0, bits=None, ahead=0)`` unless given.
        delay: steps from the sending of an average to its use, less than `period`; as many as it takes hide it.
        mixing: the weight of a worker's own x where the outer step's result arrives, in [0, 1]; 0 takes a alone, 1
        leaves the workers alone and moves a. With a delay Douillard et al. (arXiv 2501.18512) use 0.5.
        bits: 8 or 4; numbers are rounded, without bias, to that many, with a scale for each 256 or 64 of them (`Int8`,
        `Int4`). As they are unless given.
        ahead: by how many steps averages are sent earlier, less than `period`; as many as `delay` let them arrive where
        they would be due without a delay, as torchft has it.
    host
        On a GPU: the anchor and the outer optimizer's state lie in the host's memory but for the outer step.

    References
    ----------
    Douillard et al., DiLoCo, arXiv 2311.08105, Algorithm 1; delay, mixing and bits: arXiv 2501.18512.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same, payloads
    >>> from commeff.methods import local_sgd
    >>> payloads(diloco(SGD, period=2), steps=4)
    [0, 400, 0, 400]
    >>> payloads(diloco(SGD, period=2, begin=1, exchange=Exchange(bits=8)), steps=5)  # a byte each, and a scale
    [400, 0, 104, 0, 104]
    >>> same(diloco(SGD, period=2, outer=PLAIN), local_sgd(SGD, period=2))
    True
    """
    every = _outer_steps(period, outer, begin, exchange, host)
    return warm_start(Strategy(Local(optimizer), parameters=every), begin)


def streaming_diloco(
    optimizer: OptimizerFactory,
    period: int = 16,
    fragments: int | list[list[str]] = 4,
    outer: OptimizerFactory = NESTEROV,
    begin: int = 0,
    exchange: Exchange = AT_ONCE,
    host: bool = False,
) -> Strategy:
    """Streaming DiLoCo: DiLoCo on each of some groups of tensors, the fragments, which take turns.

        once in `period` steps, for fragment f:  a_f <- outer(a_f, (1/n) sum_j C(a_f - x_{j,f}));  x_{i,f} <- a_f

    Every fragment is averaged every `period` steps, each at another of them, so that the most that travels at once is
    one fragment, and as much in all. The paper's is ``Exchange(delay=5, mixing=0.5, bits=4)``, its numbers of 4 bits
    being of another kind; unless one is given, the outer step is taken when the fragment is averaged.

    Memory: that of `diloco`. Sends: a - x_i of one fragment when it is due, as `diloco` does.

    When: as `diloco` where the peak of the link counts, not only the mean, and averages are to hide behind steps.

    Parameters
    ----------
    optimizer
        The worker's own (inner) optimizer: a factory such as ``partial(torch.optim.AdamW, lr=4e-4)``.
    period
        H, steps from one outer step of a fragment to its next, at least as many as there are fragments.
    fragments
        How many groups of neighbouring tensors of about equal size, at least 1; 1 is `diloco`. Tensors are not cut. Or
        the names of the modules in each: ``[["tokens", "blocks.0"], ["blocks.1", "norm", "head"]]``, in which ``*``
        stands for anything. The first is due when all would be if there were one.
    outer
        The outer optimizer, as in `diloco`.
    begin
        The first step of streaming DiLoCo, parallel SGD before it, as in `diloco`.
    exchange, host
        As in `diloco`, for each fragment.

    References
    ----------
    Douillard et al., Streaming DiLoCo with overlapping communication, arXiv 2501.18512, Algorithm 2.

    Examples
    --------
    Tensors of 64, 32 and 4 numbers take turns:

    >>> from commeff.laws.examples import SGD, same, payloads
    >>> payloads(streaming_diloco(SGD, period=3, fragments=3), steps=6)
    [16, 128, 256, 16, 128, 256]
    >>> payloads(streaming_diloco(SGD, period=2, fragments=[["wide"], ["square", "bias"]]), steps=4)
    [272, 128, 272, 128]
    >>> same(streaming_diloco(SGD, period=2, fragments=1), diloco(SGD, period=2))
    True
    """
    every = _outer_steps(period, outer, begin, exchange, host)
    turns = NamedFragments(every, fragments) if isinstance(fragments, list) else Fragments(every, fragments)
    return warm_start(Strategy(Local(optimizer), parameters=turns), begin)


def _outer_steps(period: int, outer: OptimizerFactory, begin: int, exchange: Exchange, host: bool) -> Every | MixedIn:
    """a <- outer(a, (1/n) sum_j C(a - x_j)) once a period, from step `begin` on."""
    require.count(period=period)
    require.instance(Exchange, exchange=exchange)
    delay, bits, ahead = exchange.delay, exchange.bits, exchange.ahead
    if bits not in (None, 4, 8):
        raise ValueError(f"bits must be 8 or 4, or None, got {bits!r}")
    if type(ahead) is not int or not 0 <= ahead < period:
        raise ValueError(
            f"ahead must be a whole number from 0 to {period - 1}, got {ahead!r}: it is a part of the period; give as "
            "many steps as delay has"
        )
    step = Outer(Local(outer), {None: Average(), 8: Average(Int8()), 4: Average(Int4())}[bits])
    every = Every(period, OnHost(step) if host else step, offset=ahead - begin)
    return MixedIn(every, delay, exchange.mixing) if delay or exchange.mixing else every


def warm_start(strategy: Strategy, begin: int) -> Strategy:
    """Parallel SGD until step `begin`, then the strategy, whose transform of parameters begins with what they are."""
    if begin == 0:
        return strategy
    return Strategy(strategy.local, After(begin, Keep(), Average()), Since(begin, strategy.parameters, Keep()))
