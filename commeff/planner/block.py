"""Seconds of one transformer layer, and of embedding and head, on one rank: products, element-wise work, collectives.

Matrix products have a roofline with tiles and waves.
Every count of bytes is for 16-bit activations and the fused kernels of Megatron-LM, and is spelt out where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commeff.cluster import GPU, collectives
from commeff.planner.constants import Constants
from commeff.planner.policies import RECOMPUTES, Count, Numbers, Policies, PolicySetting

TILE = 128  # edge of the output tile that one multiprocessor works on
MULTIPROCESSORS = {
    "V100": 80,
    "A100": 108,
    "H100": 132,
    "H200": 132,
}  # tiles at a time, data sheets of SXM parts; 1 if not known
WIDTHS = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}  # bytes of an operand
ALIGNMENT = 16  # bytes: rows that are not multiples of it are loaded at half the width
FORWARD_KERNELS, BACKWARD_KERNELS, TENSOR_KERNELS = 16, 36, 2  # of a GPT layer; the last for collectives, each way


@dataclass(frozen=True, eq=False)
class Pass:
    """Seconds of one micro-batch through one piece of the model, forward and backward.

    Attributes
    ----------
    forward : forward pass without communication.
    backward : backward pass without communication and without what is recomputed.
    weights : of `backward`: gradients of weights that hide nothing, which a zero-bubble schedule may do later.
    recomputed : what the backward pass computes again.
    tensor : exposed tensor-parallel communication, both ways and recomputed.
    tensor_forward : of `tensor`, in the forward pass.
    hidden_forward, hidden_backward : tensor-parallel communication that the computing of a pass hides.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers
    recomputed: Numbers
    tensor: Numbers
    tensor_forward: Numbers
    hidden_forward: Count = 0.0
    hidden_backward: Count = 0.0

    def __getitem__(self, where: NDArray[np.int64]) -> Pass:
        """Those at some places."""
        return Pass(*(np.broadcast_to(each, self.shape)[where] for each in vars(self).values()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all of them."""
        return np.broadcast_shapes(*(np.shape(each) for each in vars(self).values()))

    @property
    def forward_total(self) -> Numbers:
        """The whole forward pass."""
        return self.forward + self.tensor_forward

    @property
    def backward_total(self) -> Numbers:
        """The whole backward pass."""
        return self.backward + self.recomputed + self.tensor - self.tensor_forward

    @property
    def total(self) -> Numbers:
        """Both passes."""
        return self.forward_total + self.backward_total

    @property
    def backward_room(self) -> Numbers:
        """Computing of the backward pass that hides nothing yet."""
        return self.backward + self.recomputed - self.hidden_backward


def layer_pass(policies: Policies, setting: PolicySetting) -> Pass:
    """Seconds of one micro-batch through one layer.

    Parameters
    ----------
    policies : the policies to be priced.
    setting : the model, and where it is trained.
    """
    constants = setting.constants
    dense, dense_input, dense_weights = _products(policies, setting)
    core, core_back = _attention(policies, setting)
    light, light_back = _light(policies, setting)
    between = tensor_seconds(policies, setting)
    kernels = TENSOR_KERNELS * (policies.tensor > 1) * constants.kernel_seconds
    issue = FORWARD_KERNELS * constants.kernel_seconds + kernels
    issue_back = BACKWARD_KERNELS * constants.kernel_seconds + kernels
    forward, inputs = busy(dense + core + light, issue), busy(dense_input + core_back + light_back, issue_back)
    backward = busy(dense_input + dense_weights + core_back + light_back, issue_back)
    products, weights = forward - busy(core + light, issue), backward - inputs  # what these add to the pass
    hidden = policies.hidden(0.0) * np.minimum(between, products)
    hidden_back = policies.hidden(constants.hidden_share) * np.minimum(between, weights)
    selective, full = (policies.recompute == RECOMPUTES.index(name) for name in ("selective", "full"))
    often = 1 / policies.recompute_every
    again = often * np.select([full, selective], [forward, core], 0.0)
    exposed, exposed_back = between - hidden, between - hidden_back
    there, back = (1 + often * full) * exposed + exposed_back, hidden_back + often * full * hidden
    return Pass(forward, backward, weights - hidden_back, again, there, exposed, hidden, back)


def busy(work: Numbers, issue: Numbers) -> Numbers:
    """Seconds of kernels that take `work` on the GPU and `issue` on the CPU that launches them: sqrt(work^2 + issue^2).

    The slower of the two where they are far apart, and 1.4 times either where they are equal: some kernels of a pass
    wait for the CPU and others for the GPU.

    Parameters
    ----------
    work : seconds on the GPU.
    issue : seconds on the CPU.
    """
    return np.sqrt(work**2 + issue**2)


def tensor_seconds(policies: Policies, setting: PolicySetting) -> Numbers:
    """Two all-reduces of b s h numbers each way (Shoeybi 2019); with sequence parallelism each is an all-gather and a
    reduce-scatter, of the same bytes (Korthikanti 2022).

    Parameters
    ----------
    policies : the policies to be priced.
    setting : the model, and where it is trained.
    """
    groups, size = policies.splitting(setting.cluster), 2 * policies.tokens(setting) * setting.model.hidden
    split = 2 * collectives.reduce_scatter(groups, size)
    return 2 * np.where(policies.sequence_parallel, split, collectives.all_reduce(groups, size))


def head_pass(policies: Policies, setting: PolicySetting) -> Pass:
    """Logits and cross-entropy over a vocabulary split over the tensor ranks (padded to a multiple of 8 t).

    Element-wise bytes for each logit: forward 30 (to fp32 6, maximum 4, shift and exponential 12, sum 4, division 4
    and a bit), backward 14 (softmax minus target 8, to 16 bits 6).

    Parameters
    ----------
    policies : the policies to be priced.
    setting : the model, and where it is trained.
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    columns = np.where(t > 1, 8 * np.ceil(model.vocab / (8 * t)), model.vocab)
    h, groups = model.hidden, policies.splitting(setting.cluster)
    shapes: tuple[tuple[Count, Count, Count], ...] = ((tokens, columns, h), (tokens, h, columns), (columns, h, tokens))
    products = [_gemms(policies, setting, *shape) for shape in shapes]
    logits = tokens * columns / setting.memory_rate
    exchange = 2 * collectives.all_reduce(groups, 4.0 * tokens)  # maxima and sums
    gradient = collectives.all_reduce(groups, 2 * tokens * h)
    zero = np.zeros_like(logits)
    return Pass(
        forward=products[0] + 30 * logits,
        backward=products[1] + products[2] + 14 * logits,
        weights=products[2],
        recomputed=zero,
        tensor=exchange + gradient,
        tensor_forward=exchange,
    )


def embedding_pass(policies: Policies, setting: PolicySetting) -> Pass:
    """Lookup, positions and dropout: about 10 bytes for each number of b s h each way; an all-reduce over the tensor
    ranks forward.

    Parameters
    ----------
    policies : the policies to be priced.
    setting : the model, and where it is trained.
    """
    numbers = policies.tokens(setting) * setting.model.hidden
    seconds = 10.0 * numbers / setting.memory_rate
    exchange = collectives.all_reduce(policies.splitting(setting.cluster), 2.0 * numbers)
    zero = np.zeros_like(seconds)
    return Pass(seconds, seconds, zero, zero, exchange, exchange)


def _products(policies: Policies, setting: PolicySetting) -> tuple[Numbers, Numbers, Numbers]:
    """Seconds of the matrices with weights: forward, gradients of inputs, gradients of weights."""
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    keys = np.maximum(model.key_width / t, model.head_width)  # below one head they are replicated
    gates = 2 if model.gated else 1
    shapes = (
        (model.hidden, model.query_width / t + 2 * keys),
        (model.query_width / t, model.hidden),
        (model.hidden, gates * model.ffn_width / t),
        (model.ffn_width / t, model.hidden),
    )

    def total(*products: tuple[Count, Count, Count]) -> Numbers:
        seconds = [_gemms(policies, setting, *product) for product in products]
        return np.sum(np.broadcast_arrays(*seconds), axis=0)

    forward = total(*((tokens, out, into) for into, out in shapes))
    inputs = total(*((tokens, into, out) for into, out in shapes))
    weights = total(*((into, out, tokens) for into, out in shapes))
    return forward, inputs, weights


def _attention(policies: Policies, setting: PolicySetting) -> tuple[Numbers, Numbers]:
    """Seconds of scores, softmax, dropout and context, forward and backward.

    Bytes for each of the a s^2 b / t scores: softmax 4 and dropout 5 forward; 6 and 5 backward. A flash kernel moves
    none of them, skips the masked half, and computes the scores once more in its backward pass.
    """
    model = setting.model
    s, width = model.sequence, model.head_width
    heads = policies.micro_batch * model.heads / policies.tensor
    if model.flash_attention:
        tile = 2.0 * s * s * (width + setting.constants.gemm_ramp) * heads
        half = tile / 2 * seconds_per_flop(setting.cluster.gpu, policies.precision, setting.constants)
        return 2 * half, 5 * half
    scores, context = _gemms(policies, setting, s, s, width, heads), _gemms(policies, setting, s, width, s, heads)
    byte = s * s * heads / setting.memory_rate
    return scores + context + 9 * byte, 2 * scores + context + context + 11 * byte


def _light(policies: Policies, setting: PolicySetting) -> tuple[Numbers, Numbers]:
    """Seconds of everything else that is element-wise, forward and backward.

    Bytes for each number of b s h: two norms 4 forward, 6 backward each; two (bias, dropout, residual) 7 forward, 11
    backward each: these are done by every tensor rank unless sequence_parallel. Split over the ranks: the context is
    laid out anew, 4 each way; GeLU moves 4 forward, 6 backward for each of f numbers, a gate 6 and 10.
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    shared = tokens * model.hidden / np.where(policies.sequence_parallel, t, 1)
    there, back = (6, 10) if model.gated else (4, 6)
    inner, context = tokens * model.ffn_width / t, tokens * model.query_width / t
    rate = setting.memory_rate
    return (22 * shared + 4 * context + there * inner) / rate, (34 * shared + 4 * context + back * inner) / rate


def _gemms(
    policies: Policies, setting: PolicySetting, rows: Count, columns: Count, inner: Count, count: Count = 1
) -> Numbers:
    return gemm_seconds(rows, columns, inner, count, setting.cluster.gpu, policies.precision, setting.constants)


def seconds_per_flop(gpu: GPU, precision: str, constants: Constants) -> float:
    """1/(peak efficiency) + (width/T) / (operand_ratio x memory bandwidth): a tile of T x T loads 2 T operands for
    every 2 T^2 FLOPs.

    Parameters
    ----------
    gpu : the GPU.
    precision : of the operands.
    constants : what a real machine reaches of its data sheet.

    Examples
    --------
    >>> from commeff.cluster import Cluster
    >>> from commeff.planner.constants import MEASURED
    >>> for name in ("a100_selene", "h100_400g"):
    ...     gpu = Cluster.named(name).gpu
    ...     print(name, round(1 / seconds_per_flop(gpu, "fp16", MEASURED) / gpu.peak_flops["fp16"], 1))
    a100_selene 0.7
    h100_400g 0.6
    """
    feed = constants.operand_ratio * gpu.memory_bandwidth
    return 1 / (gpu.peak_flops[precision] * constants.gemm_efficiency) + WIDTHS[precision] / TILE / feed


def gemm_seconds(
    rows: Count, columns: Count, inner: Count, count: Count, gpu: GPU, precision: str, constants: Constants
) -> Numbers:
    """`count` products of (rows x inner) and (inner x columns) at once.

        tiles = count ceil(rows/T) ceil(columns/T),   waves = ceil(tiles / multiprocessors)
        arithmetic = waves multiprocessors 2 T^2 (inner + ramp) x seconds_per_flop
        memory     = width (rows inner + inner columns + rows columns) count / (bandwidth efficiency)
        seconds    = max(arithmetic, memory)

    All multiprocessors wait for the last wave, edges of tiles are computed in vain, and every tile pays a ramp. Rows
    of memory that are not a multiple of 16 bytes halve the rate (a vocabulary of 50257 is slower than one of 50304).

    Parameters
    ----------
    rows : of the first matrix.
    columns : of the second matrix.
    inner : columns of the first matrix, which are rows of the second.
    count : products that run at once.
    gpu : the GPU.
    precision : of the operands.
    constants : what a real machine reaches of its data sheet.
    """
    units, width = MULTIPROCESSORS.get(gpu.name.split("-")[0], 1), WIDTHS[precision]
    tiles = count * np.ceil(rows / TILE) * np.ceil(columns / TILE)
    waves = np.ceil(tiles / units)
    odd = (np.asarray(rows) * width % ALIGNMENT) + (columns * width % ALIGNMENT) + (inner * width % ALIGNMENT)
    flops = waves * units * 2 * TILE**2 * (inner + constants.gemm_ramp)
    arithmetic = flops * np.where(odd > 0, 2.0, 1.0) * seconds_per_flop(gpu, precision, constants)
    moved = width * count * (rows * inner + inner * columns + rows * columns)
    return np.maximum(arithmetic, moved / (gpu.memory_bandwidth * constants.memory_efficiency))
