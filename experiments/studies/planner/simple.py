"""The lectures' simplified formulas, by name, exactly as printed. `predict` uses none of them.

l layers, h hidden, a heads, s sequence, v vocabulary, b batch; T tokens, P parameters, N GPUs, F peak FLOP/s.
"""

from __future__ import annotations


def parameters(layers: int, hidden: int, vocab: int, tied: bool = False) -> int:
    """12 l h^2 + 2 v h; with tied embeddings one v h.

    Parameters
    ----------
    layers : layers of the model.
    hidden : hidden size.
    vocab : tokens in the vocabulary.
    tied : whether input and output embeddings are one matrix.

    Examples
    --------
    >>> parameters(32, 4096, 32000)
    6704594944
    """
    return 12 * layers * hidden**2 + (1 if tied else 2) * vocab * hidden


def state_bytes(parameters: float, width: int = 4) -> float:
    """Weights, gradients and two moments, 4 P numbers of `width` bytes: 16 P in fp32, 8 P in 16 bits.

    Parameters
    ----------
    parameters : numbers in the model.
    width : bytes of a number.

    Examples
    --------
    >>> state_bytes(7e9) / 1e9, state_bytes(10e9, width=2) / 1e9
    (112.0, 80.0)
    """
    return 4.0 * parameters * width


def activation_numbers(layers: int, hidden: int, heads: int, sequence: int, batch: int = 1) -> int:
    """b l (2 s^2 a + 14 s h), an older count than `commeff.planner.memory`'s.

    Parameters
    ----------
    layers : layers of the model.
    hidden : hidden size.
    heads : attention heads.
    sequence : tokens in a sequence.
    batch : sequences.

    Examples
    --------
    >>> round(4 * activation_numbers(96, 12288, 96, 2048) / 1e9, 1)
    444.5
    """
    return batch * layers * (2 * sequence**2 * heads + 14 * sequence * hidden)


def memory_bytes(layers: int, hidden: int, heads: int, sequence: int, batch: int = 1, width: int = 4) -> int:
    """(48 l h^2 + b l (2 s^2 a + 14 s h)) x width: four times the layers' weights, and the activations.

    Parameters
    ----------
    layers : layers of the model.
    hidden : hidden size.
    heads : attention heads.
    sequence : tokens in a sequence.
    batch : sequences.
    width : bytes of a number.
    """
    return width * (48 * layers * hidden**2 + activation_numbers(layers, hidden, heads, sequence, batch))


def data_parallel_numbers(parameters: float, activations: float, batch: int, workers: int) -> float:
    """4 Phi + (b/N) Theta on each of N workers, with Theta the activations of one sequence.

    Parameters
    ----------
    parameters : numbers in the model.
    activations : of one sequence.
    batch : sequences.
    workers : number of workers.
    """
    return 4 * parameters + batch / workers * activations


def training_seconds(
    tokens: float, parameters: float, gpus: int, peak: float, utilisation: float, recompute: bool = True
) -> float:
    """8 T P / (N F U); without recomputation 6 T P / (N F U).

    Parameters
    ----------
    tokens : tokens that are trained on.
    parameters : numbers in the model.
    gpus : number of GPUs.
    peak : peak FLOP/s of a GPU.
    utilisation : share of the peak that is reached.
    recompute : whether the forward pass is computed again.
    """
    return (8 if recompute else 6) * tokens * parameters / (gpus * peak * utilisation)


def utilisation(
    tokens: float, parameters: float, gpus: int, peak: float, seconds: float, recompute: bool = True
) -> float:
    """U = 8 T P / (N F t); without recomputation 6 T P / (N F t).

    Parameters
    ----------
    tokens : tokens that are trained on.
    parameters : numbers in the model.
    gpus : number of GPUs.
    peak : peak FLOP/s of a GPU.
    seconds : that the training took.
    recompute : whether the forward pass is computed again.

    Examples
    --------
    >>> round(utilisation(300e9, 175e9, 1024, 312e12, 35 * 86400), 3)       # printed 0.44
    0.435
    >>> round(utilisation(1.4e12, 65e9, 2048, 312e12, 21 * 86400), 3)       # printed 0.3, which does not follow
    0.628
    """
    return training_seconds(tokens, parameters, gpus, peak, 1.0, recompute) / seconds


def idle_share(stages: int, micro_batches: int) -> float:
    """(N - 1)/m, idle time over ideal time of a pipeline of equal stages.

    Parameters
    ----------
    stages : stages of the pipeline.
    micro_batches : micro-batches of each rank in a step.

    Examples
    --------
    >>> idle_share(4, 8)
    0.375
    """
    return (stages - 1) / micro_batches


def traffic_numbers(parameters: float, ranks: int, zero: int = 0) -> float:
    """What each rank sends for a step of one micro-batch: an all-reduce of gradients, 2 (N-1)/N Psi, about 2 Psi, or
    with ZeRO-3 two all-gathers of weights and a reduce-scatter, about 3 Psi.

    Parameters
    ----------
    parameters : numbers in the model.
    ranks : data-parallel ranks.
    zero : stage of ZeRO, 0 for none.

    Examples
    --------
    >>> traffic_numbers(1.0, 1000), traffic_numbers(1.0, 1000, zero=3)
    (1.998, 2.997)
    """
    return (3 if zero == 3 else 2) * (ranks - 1) / ranks * parameters
