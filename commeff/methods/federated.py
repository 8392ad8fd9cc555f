"""Many local steps on data of each worker's own: averages, control variates, and servers that are optimizers."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch

from commeff.core.corrections import ControlVariate, Proximal, Shifted
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.methods.outer import diloco
from commeff.transforms import Average, Every, ServerVariates, Sometimes, Weighted

ADAM: OptimizerFactory = partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), eps=1e-3)


def fedavg(optimizer: OptimizerFactory, period: int = 8, weights: list[float] | None = None) -> Strategy:
    """FedAvg: local SGD whose average counts each worker by its data.

        x_i <- x_i - gamma g_i;  at every `period`-th step then  x_i <- sum_j p_j x_j,  p_j = n_j / sum_l n_l

    n_j are the training samples of worker j; the sums are over the workers that take part, so that where some are
    absent the weights of the others are divided by their sum. It minimises sum_j p_j f_j, the mean over all samples.
    Each row of the mixing matrix is p. Workers are sampled by ``participation=`` (docs/participation.md).

    Memory: the optimizer's, local, not reset. Sends: x_i by all-reduce every `period` steps.

    When: as `local_sgd` where workers have unequal amounts of data.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, steps from one average to the next, at least 1.
    weights
        One for each worker, more than 0. Unless given they are the numbers of samples that the run's task has; in a
        loop of your own set ``communicator.context.samples``. With equal ones it is `local_sgd`.

    References
    ----------
    McMahan et al., Communication-efficient learning of deep networks from decentralized data, arXiv 1602.05629,
    Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, payloads, same
    >>> from commeff.methods import local_sgd
    >>> same(fedavg(SGD, period=2), local_sgd(SGD, period=2))
    True
    >>> payloads(fedavg(SGD, period=2, weights=[3, 1, 1, 1]), steps=4)
    [0, 400, 0, 400]
    """
    return Strategy(Local(optimizer), parameters=Every(period, Weighted(Average(), weights)))


def scaffnew(optimizer: OptimizerFactory, probability: float = 0.125) -> Strategy:
    """Scaffnew (ProxSkip): local steps with control variates, averaged at random steps that all workers know.

        y_i = x_i - gamma (g_i - h_i);  x_i <- (1/n) sum_j y_j  with probability p, the same coin for all, else y_i
        h_i <- h_i + (p/gamma)(x_i - y_i),  h_i = 0 at first

    The h_i sum to 0, so that the mean of x moves by the mean gradient; they become the gradients at the optimum, and
    with p = 1/sqrt(condition number) a run needs a root fewer averages than gradient descent. p = 1 is `psgd`.

    Memory: h_i, and y_i. Sends: x_i by all-reduce where the coin says so, every 1/p steps on average. Bytes of a run
    vary with its seed.

    When: as `scaffold`, for smooth problems with exact or nearly exact gradients.

    Parameters
    ----------
    optimizer
        The worker's own optimizer, best without momentum: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its
        lr is gamma, one for all coordinates.
    probability
        p, in (0, 1]. One average in 8 steps is a default of this package.

    References
    ----------
    Mishchenko, Malinovsky, Stich, Richtarik, ProxSkip, arXiv 2202.09357, Algorithm 2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, bias, payloads, same
    >>> from commeff.methods import local_sgd, psgd
    >>> same(scaffnew(SGD, probability=1.0), psgd(SGD))
    True
    >>> bias(scaffnew(SGD, probability=0.25)) < 1e-12 < bias(local_sgd(SGD, period=4))
    True
    >>> payloads(scaffnew(SGD, probability=0.25), steps=8)
    [0, 0, 400, 0, 400, 0, 0, 0]
    """
    local = Shifted(Local(optimizer), probability)
    return Strategy(local, parameters=Sometimes(probability, Average()))


def fedprox(optimizer: OptimizerFactory, period: int = 8, mu: float = 0.01) -> Strategy:
    """FedProx: local SGD on f_i(x) + mu/2 |x - a|^2, where a is what the period began with.

        x_i <- x_i - gamma (g_i + mu (x_i - a));  at every `period`-th step then  x_i <- (1/n) sum_j x_j

    All workers take part, and take `period` steps.

    Memory: a. Sends: x_i by all-reduce every `period` steps.

    When: long periods on heterogeneous data: the pull keeps workers near, and slows them.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    period
        H, local steps from one average to the next, at least 1.
    mu
        The pull towards a, at least 0, in units of curvature; 0 is `local_sgd`. 0.01 is a default of this package:
        tune it.

    References
    ----------
    Li et al., Federated optimization in heterogeneous networks, arXiv 1812.06127, Algorithm 2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same
    >>> from commeff.methods import local_sgd
    >>> same(fedprox(SGD, period=2, mu=0.0), local_sgd(SGD, period=2))
    True
    """
    return Strategy(Proximal(Local(optimizer), mu, period), parameters=Every(period, Average()))


def scaffold(optimizer: OptimizerFactory, period: int = 8, option: Literal["one", "two"] = "two") -> Strategy:
    """SCAFFOLD: local SGD whose steps are corrected by control variates, so that heterogeneous data leave no bias.

        y_i <- y_i - gamma (g_i - c_i + c), from y_i = x;  at every `period`-th step, K = `period`, then
        x' = (1/n) sum_j y_j;  c_i <- c_i - c + (x - y_i)/(K gamma);  c = (1/n) sum_j c_j

    This is option II with all workers and a global learning rate of 1. Only c - c_i enters, and it moves by
    (y_i - x')/(K gamma), which a worker knows from x' alone: control variates need not be sent, half of the published
    bytes. gamma is the mean learning rate of the period. With option I

        c_i <- g_i(x);  c = (1/n) sum_j c_j      (used in the next period)

    x being the server's model, where the period begins: its first gradient serves, and c is sent.

    Memory: c - c_i, with option I that of the next period too. Sends: x_i by all-reduce every `period` steps, with
    option I also g_i.

    When: long periods on heterogeneous data without a bias, with SGD inside.

    Parameters
    ----------
    optimizer
        The worker's own optimizer, best without momentum: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its
        lr is gamma, one for all coordinates.
    period
        K, local steps from one average to the next, at least 1.
    option
        "one": control variates are gradients at the server's model; "two": what the worker moved. One is the more
        stable, with gradients of large batches; two costs half as much.

    References
    ----------
    Karimireddy et al., SCAFFOLD, arXiv 1910.06378, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> from commeff.methods import local_sgd
    >>> bias(scaffold(SGD, period=4)) < 1e-12 < bias(local_sgd(SGD, period=4))
    True
    >>> bias(scaffold(SGD, period=4, option="one")) < 1e-12
    True
    >>> payloads(scaffold(SGD, period=2), steps=4), payloads(scaffold(SGD, period=2, option="one"), steps=4)
    ([0, 400, 0, 400], [400, 400, 400, 400])
    """
    if option not in ("one", "two"):
        raise ValueError(f"option must be 'one' or 'two', got {option!r}")
    if option == "one":
        return Strategy(Local(optimizer), ServerVariates(Average(), period), Every(period, Average()))
    return Strategy(ControlVariate(Local(optimizer), period), parameters=Every(period, Average()))


def fedopt(optimizer: OptimizerFactory, period: int = 8, server: OptimizerFactory = ADAM) -> Strategy:
    """FedOpt: the workers' mean move in a period is the gradient of the server's optimizer (FedAdam, FedAdagrad, ...).

        at every `period`-th step  a <- server(a, a - (1/n) sum_j x_j);  x_i <- a

    The default server, with Delta = a - (1/n) sum_j x_j, m and v zero at first, t = 1, 2, ... its steps:

        m = 0.9 m + 0.1 Delta;  v = 0.99 v + 0.01 Delta^2
        a <- a - eta (m / (1 - 0.9^t)) / (sqrt(v / (1 - 0.99^t)) + tau)

    That is FedAdam but for the corrections 1 - 0.9^t and 1 - 0.99^t of torch's Adam. `optimizers.FedAdam` has none, and
    v = tau^2 at first, as published; `optimizers.FedYogi` moves v by additions. All workers that take part have equal
    weights. It is `diloco` with another optimizer: its memory and messages are the same.

    When: as `diloco` where the periods' moves differ much in scale between coordinates, so that the server should
    adapt.

    Parameters
    ----------
    optimizer
        The worker's own (inner) optimizer: a factory such as ``partial(torch.optim.AdamW, lr=4e-4)``.
    period
        H, local steps from one server step to the next, at least 1.
    server
        A factory as `optimizer` is. The default is Adam with lr eta = 0.01, betas (0.9, 0.99) and eps = tau = 1e-3;
        betas and tau are quoted as the paper's, the lr is a default of this package. The paper's own are
        ``partial(FedAdam, lr=0.01)`` and ``partial(FedYogi, lr=0.01)`` of `commeff.optimizers`, and, with beta_1 = 0,
        ``partial(torch.optim.Adagrad, lr=0.1, initial_accumulator_value=1e-6, eps=1e-3)``. SGD with lr 1 is
        `local_sgd`.

    References
    ----------
    Reddi et al., Adaptive federated optimization, arXiv 2003.00295, Algorithm 2.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, same
    >>> from commeff.methods import local_sgd
    >>> from commeff.methods.outer import PLAIN
    >>> same(fedopt(SGD, period=2, server=PLAIN), local_sgd(SGD, period=2))
    True
    """
    return diloco(optimizer, period, outer=server)
