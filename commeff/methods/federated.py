"""Many local steps on data of each worker's own: averages, control variates, and servers that are optimizers."""

from __future__ import annotations

from functools import partial

import torch

from commeff.core.corrections import ControlVariate, Proximal
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Strategy
from commeff.methods.outer import diloco
from commeff.transforms import Average, Every

ADAM: OptimizerFactory = partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.99), eps=1e-3)


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


def scaffold(optimizer: OptimizerFactory, period: int = 8) -> Strategy:
    """SCAFFOLD: local SGD whose steps are corrected by control variates, so that heterogeneous data leave no bias.

        y_i <- y_i - gamma (g_i - c_i + c), from y_i = x;  at every `period`-th step, K = `period`, then
        x' = (1/n) sum_j y_j;  c_i <- c_i - c + (x - y_i)/(K gamma);  c = (1/n) sum_j c_j

    This is option II with all workers and a global learning rate of 1. Only c - c_i enters, and it moves by
    (y_i - x')/(K gamma), which a worker knows from x' alone: control variates need not be sent, half of the published
    bytes. gamma is the mean learning rate of the period.

    Memory: c - c_i. Sends: x_i by all-reduce every `period` steps.

    When: long periods on heterogeneous data without a bias, with SGD inside.

    Parameters
    ----------
    optimizer
        The worker's own optimizer, best without momentum: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its
        lr is gamma, one for all coordinates.
    period
        K, local steps from one average to the next, at least 1.

    References
    ----------
    Karimireddy et al., SCAFFOLD, arXiv 1910.06378, Algorithm 1.

    Examples
    --------
    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> from commeff.methods import local_sgd
    >>> bias(scaffold(SGD, period=4)) < 1e-12 < bias(local_sgd(SGD, period=4))
    True
    >>> payloads(scaffold(SGD, period=2), steps=4)
    [0, 400, 0, 400]
    """
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
