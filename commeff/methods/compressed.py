"""Say less: methods that average compressed gradients. Parallel SGD is the one that compresses nothing."""

from __future__ import annotations

from typing import Literal

from commeff.compressors import Compressor, Dense, Repeated, contractive
from commeff.core.local import Local, OptimizerFactory
from commeff.core.strategy import Chain, Encoder, Strategy, Transform
from commeff.transforms import (
    EF21,
    Average,
    Diana,
    ErrorFeedback,
    PowerSGD,
    Scaled,
    Sharded,
    Smooth,
    ThroughServer,
    Warmup,
)

Place = Literal["row", "sharded"]


def psgd(optimizer: OptimizerFactory) -> Strategy:
    """Parallel SGD:  x <- x - gamma (1/n) sum_j g_j.

    Memory: the optimizer's. Sends: g_i by all-reduce at every step, d numbers of payload.

    >>> from functools import partial
    >>> import torch
    >>> psgd(partial(torch.optim.SGD, lr=0.1)).gradients.scope
    'coordinate'
    """
    return Strategy(Local(optimizer), gradients=Average(Dense()))


def compressed_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """QSGD and its kin:  x <- x - gamma (1/n) sum_j C(g_j).

    Memory: the optimizer's. Sends: C(g_i), by all-reduce if messages sum and all-gather otherwise. With a C of variance
    omega it needs gamma L omega / n small, and does not reach the optimum of heterogeneous data at constant gamma.
    Source: Alistarh et al., arXiv 1610.02132, Algorithm 1.
    """
    return Strategy(Local(optimizer), gradients=Average(compressor))


def mem_sgd(optimizer: OptimizerFactory, compressor: Compressor) -> Strategy:
    """MEM-SGD (EF-SGD):  q_i = gamma g_i + e_i;  x <- x - (1/n) sum_j C(q_j);  e_i = q_i - C(q_i).

    The virtual iterate x - mean e_i follows exact SGD for every schedule, since e_i is kept in units of gamma g.
    Memory: e_i. Sends: C(q_i).
    Source: Stich, Cordonnier, Jaggi, arXiv 1809.07599, Algorithm 1.
    """
    local = Local(optimizer)
    return Strategy(local, gradients=Scaled(local, Average(ErrorFeedback(compressor))))


def double_squeeze(optimizer: OptimizerFactory, compressor: Compressor, server: Place = "row") -> Strategy:
    """DoubleSqueeze: workers send C(gamma g_i + e_i), the server answers C(mean + e); both remember what they did not
    say.

    server "row": one server, whose link carries n messages up and down. "sharded": worker b is the server of the b-th
    of n equal blocks of coordinates, which are compressed one by one.
    Memory: e_i at each worker, e at the server. Sends: one message up and one down (n small ones, if sharded).
    Source: Tang et al., arXiv 1905.05957, Algorithm 1.
    """
    return neolithic(optimizer, compressor, rounds=1, server=server)


def neolithic(
    optimizer: OptimizerFactory, compressor: Compressor, rounds: int = 2, ef: bool = True, server: Place = "row"
) -> Strategy:
    """NEOLITHIC: DoubleSqueeze with `rounds` messages of C(v - what was said so far) in the place of one.

    Gradients are averaged over `rounds` minibatches, so that one costs as many bytes as in DoubleSqueeze. Both sides
    carry error feedback, the reading in which rounds = 1 is DoubleSqueeze; ef=False is the other one, without.
    Memory, messages and `server` as there, rounds-fold.
    Source: Huang, Chen, Yin, Yuan, arXiv 2206.03665, Algorithm 1.
    """
    local = Local(optimizer)
    said = Repeated(compressor, rounds) if rounds > 1 else compressor
    encode = ErrorFeedback if ef else contractive
    through = ThroughServer(up=encode(said), down=encode(said))
    servers: dict[str, Transform] = {"row": through, "sharded": Sharded(through)}
    if server not in servers:
        raise ValueError(f"server must be one of {', '.join(map(repr, servers))}, got {server!r}")
    return Strategy(local, Scaled(local, servers[server]), accumulate=rounds)


def _changes(compressor: Compressor, first: Literal["dense", "compressed"]) -> Encoder | Compressor:
    """What an EF21 sends: C of the contraction, with a dense first message if g_i^0 is to be known exactly."""
    choices: dict[str, Encoder | Compressor] = {
        "dense": Warmup(Dense(), 1, contractive(compressor)),
        "compressed": contractive(compressor),
    }
    if first not in choices:
        raise ValueError(
            f"first must be one of {', '.join(map(repr, choices))}, got {first!r}: it says how the first message "
            "travels"
        )
    return choices[first]


def ef21(
    optimizer: OptimizerFactory, compressor: Compressor, first: Literal["dense", "compressed"] = "dense"
) -> Strategy:
    """EF21:  c_i = C(g_i - h_i);  h_i <- h_i + c_i;  h <- h + mean c_j;  x <- x - gamma h.

    Memory: h_i (what all know of g_i) and h = mean h_i. Sends: c_i; at the first step g_i itself unless
    first="compressed".
    Source: Richtarik, Sokolov, Fatkhullin, arXiv 2106.05203, Algorithm 2.
    """
    return Strategy(Local(optimizer), gradients=EF21(_changes(compressor, first)))


def ef21_sgdm(
    optimizer: OptimizerFactory,
    compressor: Compressor,
    eta: float = 0.1,
    first: Literal["dense", "compressed"] = "dense",
) -> Strategy:
    """EF21-SGDM:  v_i <- (1 - eta) v_i + eta g_i;  then EF21 on v_i. eta = 1 is EF21.

    Memory: v_i (starting at the first gradient), h_i and h. Sends: C(v_i - h_i).
    Source: Fatkhullin, Tyurin, Richtarik, arXiv 2305.15155, Algorithm 1.
    """
    return Strategy(Local(optimizer), gradients=Chain(Smooth(eta), EF21(_changes(compressor, first))))


def diana(optimizer: OptimizerFactory, compressor: Compressor, alpha: float | None = None) -> Strategy:
    """DIANA:  m_i = C(g_i - h_i);  x <- x - gamma (h + mean m_j);  h_i <- h_i + alpha m_i;  h <- h + alpha mean m_j.

    Unlike compressed_sgd it reaches the optimum of heterogeneous data, as what is compressed vanishes there. C must be
    unbiased; alpha is 1 / (1 + omega) unless given, and alpha = 0 is compressed_sgd.
    Memory: h_i (what all know of g_i) and h = mean h_i. Sends: m_i.
    Source: Mishchenko, Gorbunov, Takac, Richtarik, arXiv 1901.09269, Algorithm 1.
    """
    return Strategy(Local(optimizer), gradients=Diana(compressor, alpha))


def power_sgd(optimizer: OptimizerFactory, rank: int = 2) -> Strategy:
    """PowerSGD: per matrix, P = orth(mean M_i Q), Q = mean M_i^T P, x <- x - gamma P Q^T, e_i = M_i - P Q^T with M_i =
    g_i + e_i.

    Momentum and weight decay act after the reduction. Memory: e_i, and the last Q. Sends: r(a + b) numbers for an (a,
    b) matrix, by two all-reduces; one-dimensional tensors as they are.
    Source: Vogels, Karimireddy, Jaggi, arXiv 1905.13727, Algorithms 1 and 2.
    """
    return Strategy(Local(optimizer), gradients=PowerSGD(rank))
