"""Send what changed: methods whose compressed messages are differences, which vanish at the optimum."""

from __future__ import annotations

from typing import Literal

from commeff import require
from commeff.compressors import Compressor, Dense, contractive
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Chain, Encoder, Strategy
from commeff.transforms import EF21, Diana, Differences, ErrorControl, Marina, Smooth, Warmup


def _changes(changes: Encoder | Compressor, first: Literal["dense", "compressed"]) -> Encoder | Compressor:
    """What an EF21 sends: C of the contraction, with a dense first message if g_i^0 is to be known exactly."""
    choices: dict[str, Encoder | Compressor] = {"dense": Warmup(Dense(), 1, changes), "compressed": changes}
    return require.choose(choices, first=first)


def ef21(
    optimizer: OptimizerFactory, compressor: Compressor, first: Literal["dense", "compressed"] = "dense"
) -> Strategy:
    """EF21: workers send the compressed change of their gradient, and everyone keeps the sum of all changes.

        c_i = C(g_i - h_i);  h_i <- h_i + c_i;  h <- h + (1/n) sum_j c_j;  x <- x - gamma h

    It reaches the optimum of heterogeneous data with any contractive C, at constant gamma.

    Memory: h_i (what all know of g_i) and h = mean h_i. Sends: c_i at every step, by all-reduce if messages can be
    summed and by all-gather otherwise.

    When: heterogeneous data and biased compression at a constant learning rate, with gradients of little noise.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    first
        How the first message travels. "dense": g_i itself, so that h_i starts exact. "compressed": C(g_i), as small as
        all others.

    References
    ----------
    Richtarik, Sokolov, Fatkhullin, EF21, arXiv 2106.05203, Algorithm 2.

    Examples
    --------
    >>> from commeff.compressors import TopK
    >>> from commeff.laws.examples import SGD, bias, payloads
    >>> from commeff.methods import compressed_sgd
    >>> payloads(ef21(SGD, TopK(k=10)), steps=3)                        # the first message is dense
    [400, 49, 49]
    >>> bias(ef21(SGD, TopK(k=10))) < 1e-12 < bias(compressed_sgd(SGD, TopK(k=10)))
    True
    """
    return Strategy(Local(optimizer), gradients=EF21(_changes(contractive(compressor), first)))


def ef21_sgdm(
    optimizer: OptimizerFactory,
    compressor: Compressor,
    eta: float = 0.1,
    first: Literal["dense", "compressed"] = "dense",
) -> Strategy:
    """EF21-SGDM: EF21 on an exponential average of the gradients, which noise does not blow up.

        v_i <- (1 - eta) v_i + eta g_i;  c_i = C(v_i - h_i);  then as in EF21

    Memory: v_i (starting at the first gradient), h_i and h. Sends: c_i at every step.

    When: as `ef21` with small minibatches: noise is averaged before it is compressed.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    eta
        The weight of the newest gradient, in (0, 1]; 1 is EF21. 0.1 is the momentum of 0.9 that SGD commonly has.
    first
        How the first message travels. "dense": g_i itself, so that h_i starts exact. "compressed": C(g_i), as small as
        all others.

    References
    ----------
    Fatkhullin, Tyurin, Richtarik, Momentum provably improves error feedback, arXiv 2305.15155, Algorithm 1.

    Examples
    --------
    >>> from commeff.compressors import TopK
    >>> from commeff.laws.examples import SGD, same
    >>> same(ef21_sgdm(SGD, TopK(k=10), eta=1.0), ef21(SGD, TopK(k=10)))
    True
    """
    return Strategy(Local(optimizer), gradients=Chain(Smooth(eta), EF21(_changes(contractive(compressor), first))))


def econtrol(
    optimizer: OptimizerFactory,
    compressor: Compressor,
    eta: float = 0.1,
    first: Literal["dense", "compressed"] = "dense",
) -> Strategy:
    """EControl: EF21 that also remembers what its messages have missed, and sends a share eta of it each time.

        c_i = C(g_i - h_i + eta e_i);  e_i <- e_i + g_i - h_i - c_i;  h_i <- h_i + c_i;  h <- h + (1/n) sum_j c_j
        x <- x - gamma h

    Behind a dense first message x - gamma mean e_i follows exact SGD at constant gamma, as with error feedback, and the
    bias of heterogeneous data goes, as in EF21: eta controls how strongly errors are fed back.

    Memory: e_i, h_i (what all know of g_i) and h = mean h_i. Sends: c_i at every step, by all-reduce if messages can be
    summed and by all-gather otherwise.

    When: as `ef21` with small minibatches: noise does not stay in what everybody knows of a gradient.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C. An unbiased one with variance omega is divided by 1 + omega, which makes it contractive (`contractive`).
    eta
        The share of the error that is sent each time, in [0, 1]; 0 is EF21. In theory of the order of delta; 0.1 is a
        default of this package.
    first
        How the first message travels. "dense": g_i itself, so that h_i starts exact. "compressed": C(g_i), as small as
        all others.

    References
    ----------
    Gao, Islamov, Stich, EControl: fast distributed optimization with compression and error control, arXiv 2311.05645,
    Algorithm 2.

    Examples
    --------
    >>> from commeff.compressors import Dense, TopK
    >>> from commeff.laws.examples import SGD, bias, same, payloads
    >>> from commeff.methods import psgd
    >>> same(econtrol(SGD, TopK(k=10), eta=0.0), ef21(SGD, TopK(k=10))), same(econtrol(SGD, Dense()), psgd(SGD))
    (True, True)
    >>> bias(econtrol(SGD, TopK(k=10), eta=0.05), steps=1500) < 1e-12
    True
    """
    return Strategy(Local(optimizer), gradients=EF21(_changes(ErrorControl(compressor, eta), first)))


def diana(optimizer: OptimizerFactory, compressor: Compressor, alpha: float | None = None) -> Strategy:
    """DIANA: workers send the compressed difference of their gradient to a shift, which learns the gradient.

        m_i = C(g_i - h_i);  x <- x - gamma (h + (1/n) sum_j m_j)
        h_i <- h_i + alpha m_i;  h <- h + alpha (1/n) sum_j m_j

    Unlike `compressed_sgd` it reaches the optimum of heterogeneous data, as what is compressed vanishes there.

    Memory: h_i (what all know of g_i) and h = mean h_i. Sends: m_i at every step.

    When: heterogeneous data with an unbiased compressor, where `compressed_sgd` stops at a bias.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C, which must be unbiased; others are refused (use `ef21`).
    alpha
        The share of m_i by which the shift moves, in [0, 1]. None: 1 / (1 + omega), the largest that the theory allows;
        0 is `compressed_sgd`.

    References
    ----------
    Mishchenko, Gorbunov, Takac, Richtarik, Distributed learning with compressed gradient differences, arXiv 1901.09269,
    Algorithm 1.

    Examples
    --------
    >>> from commeff.compressors import Natural
    >>> from commeff.laws.examples import SGD, bias, same
    >>> from commeff.methods import compressed_sgd
    >>> same(diana(SGD, Natural(), alpha=0.0), compressed_sgd(SGD, Natural()))
    True
    >>> bias(diana(SGD, Natural())) < 1e-12 < bias(compressed_sgd(SGD, Natural()))
    True
    """
    return Strategy(Local(optimizer), gradients=Diana(compressor, alpha))


def marina(optimizer: OptimizerFactory, compressor: Compressor, probability: float = 0.1) -> Strategy:
    """MARINA: an estimate of the mean gradient that moves by compressed differences, and now and then is whole.

        h = (1/n) sum_j g_j(x^k)                              with probability p, the same coin for all, and at first
        h <- h + (1/n) sum_j C(g_j(x^k) - g_j(x^{k-1}))       else, both gradients of the same minibatch
        x <- x - gamma h

    It reaches the optimum of heterogeneous data, where gradients carry no noise at gamma up to
    1 / (L (1 + sqrt((1 - p) omega / (p n)))), which does not shrink with omega for enough workers. h is biased between
    whole gradients. With noise the published variant takes large minibatches for these; here all are of one size, and
    the noise of a whole gradient stays in h until the next.

    Memory: x^{k-1}, and h, one row. Sends: g_i by all-reduce at first and with probability p, else C of the difference:
    on average p d + (1 - p) k numbers, for a C that sends k; `profile` says the mean of the first steps' coins. A step
    takes two gradients (`oracle`), so that workers have to lie on one process each, in 32 bits.

    When: gradients of little noise, many workers and strong unbiased compression.

    Parameters
    ----------
    optimizer
        The worker's own optimizer: a factory such as ``partial(torch.optim.SGD, lr=0.1)``; its lr is gamma.
    compressor
        C, which must be unbiased; others are refused (use `ef21`).
    probability
        p, in (0, 1]; 1 is `psgd`. The paper takes the share of a dense message that C sends; 0.1 is a default of this
        package.

    References
    ----------
    Gorbunov, Burlachenko, Li, Richtarik, MARINA: faster non-convex distributed learning with compression,
    arXiv 2102.07845, Algorithm 1.

    Examples
    --------
    Without noise nothing is lost by differences that arrive as they are:

    >>> from commeff.compressors import Dense, RandomK
    >>> from commeff.laws.examples import SGD, bias, same, payloads
    >>> from commeff.methods import psgd
    >>> same(marina(SGD, RandomK(k=10), probability=1.0), psgd(SGD)), same(marina(SGD, Dense()), psgd(SGD))
    (True, True)
    >>> payloads(marina(SGD, RandomK(k=10), probability=0.3), steps=7)
    [400, 48, 48, 48, 400, 48, 48]
    >>> bias(marina(SGD, RandomK(k=50), probability=0.3)) < 1e-12
    True
    """
    return Strategy(Local(optimizer), comparison=Differences(probability), gradients=Marina(compressor, probability))
