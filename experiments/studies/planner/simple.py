"""The lectures' simplified formulas, by name, exactly as printed. `predict` uses none of them.

l layers, h hidden, a heads, s sequence, v vocabulary, b batch; T tokens, P parameters, N GPUs, F peak FLOP/s.
"""

from __future__ import annotations


def parameters(layers: int, hidden: int, vocab: int, tied: bool = False) -> int:
    """12 l h^2 + 2 v h; with tied embeddings one v h.

    Examples
    --------
    >>> parameters(32, 4096, 32000)
    6704594944
    """
    return 12 * layers * hidden**2 + (1 if tied else 2) * vocab * hidden


def state_bytes(parameters: float, width: int = 4) -> float:
    """Weights, gradients and two moments, 4 P numbers of `width` bytes: 16 P in fp32, 8 P in 16 bits.

    Examples
    --------
    >>> state_bytes(7e9) / 1e9, state_bytes(10e9, width=2) / 1e9
    (112.0, 80.0)
    """
    return 4.0 * parameters * width


def activation_numbers(layers: int, hidden: int, heads: int, sequence: int, batch: int = 1) -> int:
    """b l (2 s^2 a + 14 s h), an older count than `commeff.planner.memory`'s.

    Examples
    --------
    >>> round(4 * activation_numbers(96, 12288, 96, 2048) / 1e9, 1)
    444.5
    """
    return batch * layers * (2 * sequence**2 * heads + 14 * sequence * hidden)


def utilisation(
    tokens: float, parameters: float, gpus: int, peak: float, seconds: float, recompute: bool = True
) -> float:
    """U = 8 T P / (N F t); without recomputation 6 T P / (N F t).

    Examples
    --------
    >>> round(utilisation(300e9, 175e9, 1024, 312e12, 35 * 86400), 3)       # printed 0.44
    0.435
    >>> round(utilisation(1.4e12, 65e9, 2048, 312e12, 21 * 86400), 3)       # printed 0.3, which does not follow
    0.628
    """
    return (8 if recompute else 6) * tokens * parameters / (gpus * peak) / seconds


def idle_share(stages: int, micro_batches: int) -> float:
    """(N - 1)/m, idle time over ideal time of a pipeline of equal stages.

    Examples
    --------
    >>> idle_share(4, 8)
    0.375
    """
    return (stages - 1) / micro_batches


def traffic_numbers(parameters: float, ranks: int, zero: int = 0) -> float:
    """What each rank sends for a step of one micro-batch: an all-reduce of gradients, 2 (N-1)/N Psi, about 2 Psi, or
    with ZeRO-3 two all-gathers of weights and a reduce-scatter, about 3 Psi.

    Examples
    --------
    >>> traffic_numbers(1.0, 1000), traffic_numbers(1.0, 1000, zero=3)
    (1.998, 2.997)
    """
    return (3 if zero == 3 else 2) * (ranks - 1) / ranks * parameters
