"""Talk rarely: methods whose workers go alone for a while, or share a part at a time."""

from __future__ import annotations

from functools import partial

import torch

from commeff.compressors import Compressor, RandomK
from commeff.core.corrections import ControlVariate, Proximal
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.transforms import (
    After,
    Average,
    Delayed,
    ErrorFeedback,
    Every,
    Fragments,
    InUnitsOf,
    Outer,
    Partial,
)

NESTEROV: OptimizerFactory = partial(torch.optim.SGD, lr=0.7, momentum=0.9, nesterov=True)
ADAM: OptimizerFactory = partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), eps=1e-3)
PLAIN: OptimizerFactory = partial(torch.optim.SGD, lr=1.0)


def local_sgd(optimizer: OptimizerFactory, period: int = 8) -> Strategy:
    """Local SGD (FedAvg):  x_i <- x_i - gamma g_i;  every `period` steps x_i <- mean x_j.

    Memory: the optimizer's, local, not reset. Sends: x_i by all-reduce every `period` steps.
    Source: Stich, arXiv 1805.09767; McMahan et al., arXiv 1602.05629.
    """
    return Strategy(Local(optimizer), parameters=Every(period, Average()))


def post_local_sgd(optimizer: OptimizerFactory, period: int = 16, begin: int = 0) -> Strategy:
    """Post-local SGD: parallel SGD for `begin` steps, local SGD with this period from there on.

    Usually `begin` is the first drop of the learning rate. Models are averaged in both parts, momentum stays local.
    Memory: the optimizer's. Sends: x_i by all-reduce at every step, then every `period` steps.
    Source: Lin, Stich, Patel, Jaggi, arXiv 1808.07217, Algorithm 2.
    """
    return Strategy(Local(optimizer), parameters=After(begin, Every(period, Average()), before=Average()))


def fedprox(optimizer: OptimizerFactory, period: int = 8, mu: float = 0.01) -> Strategy:
    """FedProx: local SGD on f_i(x) + mu/2 |x - a|^2, where a is what the period began with.

    mu = 0 is local SGD. All workers take part, and take `period` steps. Memory: a. Sends: x_i by all-reduce when due.
    Source: Li et al., arXiv 1812.06127, Algorithm 2.
    """
    return Strategy(Proximal(Local(optimizer), mu, period), parameters=Every(period, Average()))


def scaffold(optimizer: OptimizerFactory, period: int = 8) -> Strategy:
    """SCAFFOLD:  y_i <- y_i - gamma (g_i - c_i + c), from y_i = x;  every `period` = K steps  x' = mean y_j,
    c_i <- c_i - c + (x - y_i)/(K gamma),  c = mean c_j  (option II, all workers, global learning rate 1).

    Local SGD without the drift of heterogeneous data: it reaches the optimum. Only c - c_i enters, and it moves by
    (y_i - x')/(K gamma), which a worker knows from x' alone: control variates need not be sent, half of the published
    bytes. gamma is the mean learning rate of the period.
    Memory: c - c_i. Sends: x_i by all-reduce when due.
    Source: Karimireddy et al., arXiv 1910.06378, Algorithm 1.
    """
    return Strategy(ControlVariate(Local(optimizer), period), parameters=Every(period, Average()))


def dasgd(optimizer: OptimizerFactory, period: int = 8, delay: int = 1) -> Strategy:
    """DaSGD: local SGD whose average arrives `delay` steps later, hidden behind them:
    x_i <- x_i + (mean x_j - x_i) of `delay` steps ago.

    delay = 0 is local SGD. Memory: the optimizer's, local, and the corrections under way. Sends: x_i by all-reduce
    every `period` steps.
    Source: Zhou et al., arXiv 2006.00441.
    """
    return Strategy(Local(optimizer), parameters=Delayed(Every(period, Average()), delay))


def slowmo(optimizer: OptimizerFactory, period: int = 8, beta: float = 0.5, alpha: float = 1.0) -> Strategy:
    """SlowMo: every `period` steps,  u <- beta u + (a - mean x_j) / gamma;  a <- a - alpha gamma u;  x_i <- a.

    beta = 0, alpha = 1 is local SGD. Memory: the anchor a and the slow momentum u. Sends: a - x_i by all-reduce when
    due.
    Source: Wang, Tantia, Ballas, Rabbat, arXiv 1910.00643, Algorithm 1.
    """
    local = Local(optimizer)
    outer = InUnitsOf(local, partial(torch.optim.SGD, lr=alpha, momentum=beta))
    return Strategy(local, parameters=Every(period, Outer(outer, Average())))


def diloco(optimizer: OptimizerFactory, period: int = 16, outer: OptimizerFactory = NESTEROV) -> Strategy:
    """DiLoCo: every `period` steps the mean move a - mean x_j is the gradient of an outer optimizer on the anchor a,
    and x_i <- a.

    Memory: the anchor, the outer and the inner optimizers' states (inner ones local, not reset). Sends: a - x_i by
    all-reduce when due.
    Source: Douillard et al., arXiv 2311.08105, Algorithm 1 (outer Nesterov SGD, lr 0.7, momentum 0.9).
    """
    return Strategy(Local(optimizer), parameters=Every(period, Outer(Local(outer), Average())))


def fedopt(optimizer: OptimizerFactory, period: int = 8, server: OptimizerFactory = ADAM) -> Strategy:
    """FedOpt: every `period` steps the mean move a - mean x_j is the gradient of the server's optimizer on the model a,
    and x_i <- a. With Adam it is FedAdam, with Adagrad FedAdagrad, with SGD(1) local SGD.

    All workers take part. Torch's Adam corrects the bias of its first steps, which the paper's does not.
    Memory and messages are those of diloco, which is the same with another optimizer.
    Source: Reddi et al., arXiv 2003.00295, Algorithm 2.
    """
    return diloco(optimizer, period, outer=server)


def streaming_diloco(
    optimizer: OptimizerFactory, period: int = 16, fragments: int = 4, outer: OptimizerFactory = NESTEROV
) -> Strategy:
    """Streaming DiLoCo: diloco on each of `fragments` groups of neighbouring tensors, which take turns.

    Every fragment is averaged every `period` steps, each at another of them, so that the most that travels at once is
    one fragment, and as much in all. fragments = 1 is diloco. Nothing is delayed or quantised here: the outer step is
    taken when the fragment is averaged.
    Memory: that of diloco. Sends: a - x_i of one fragment by all-reduce when it is due.
    Source: Douillard et al., arXiv 2501.18512, Algorithm 2.
    """
    return Strategy(Local(optimizer), parameters=Fragments(Outer(Local(outer), Average()), period, fragments))


def sparse_loco(
    optimizer: OptimizerFactory,
    compressor: Compressor,
    period: int = 16,
    decay: float = 0.95,
    outer: OptimizerFactory = PLAIN,
) -> Strategy:
    """SparseLoCo: diloco that sends C(e_i) of the decayed error feedback  e_i <- decay e_i + (a - x_i);  e_i <- e_i -
    C(e_i),  and steps by  a <- outer(a, mean C(e_j)).

    Published with top-k of 1 to 3 % in chunks, 2 bits a value, and no outer momentum. C = I is local SGD at the outer
    learning rate, for any decay; decay = 1 is Qsparse-local-SGD (arXiv 1906.02367).
    Memory: the anchor a, e_i and the outer optimizer's. Sends: C(e_i) when due.
    Source: Sarfi et al., arXiv 2508.15706.
    """
    sent = Average(ErrorFeedback(compressor, decay))
    return Strategy(Local(optimizer), parameters=Every(period, Outer(Local(outer), sent)))


def sparta(optimizer: OptimizerFactory, ratio: float = 0.005) -> Strategy:
    """SPARTA: after every step a random share of the coordinates, the same for all workers, is averaged.

    ratio = 1 is parallel SGD (with an optimizer that remembers nothing). The mean of x moves by exact SGD.
    Memory: the optimizer's, local. Sends: ratio d numbers by all-reduce; who is averaged follows from the seed.
    Source: EXO Labs, "SPARTA: distributed training with sparse parameter averaging" (2025).
    """
    return Strategy(Local(optimizer), parameters=Partial(RandomK(ratio=ratio, scaled=False, shared=True)))
