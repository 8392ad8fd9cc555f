"""Seconds of one transformer layer, and of embedding and head, on one rank: products, element-wise work, collectives.

Every count of bytes is for 16-bit activations and the fused kernels of Megatron-LM, and is spelt out where it stands;
activations in fp32 and tf32 are twice as wide.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commeff.cluster import collectives
from commeff.planner.experts import exchange_seconds, feed_forwards, routed_tokens
from commeff.planner.gemm import gemm_seconds, seconds_per_flop
from commeff.planner.memory import checkpoint_bytes, key_bytes, query_bytes
from commeff.planner.passes import Pass
from commeff.planner.policies import RECOMPUTES, Count, Numbers, Policies, PolicySetting

HEAD = 32  # flash kernels pad the width of a head to a multiple of it
VECTOR = 14  # fp32 operations for each score: scaled, its maximum, exponential (8), sum, rounded to 16 bits
CAST = 6  # bytes for each number that becomes fp8: read for its maximum, read, written, and written transposed
FORWARD_KERNELS, BACKWARD_KERNELS, TENSOR_KERNELS = 16, 36, 2  # of a GPT layer; the last for collectives, each way
ROUTER_KERNELS = 12  # more, each way: scores, top k, counts, copies laid out, exchanged, ordered by expert, and back


def layer_pass(policies: Policies, setting: PolicySetting) -> Pass:
    """Seconds of one micro-batch through one layer, the mean one where every k-th has experts."""
    every = setting.model.expert_every
    layer = _layer_pass(policies, setting, setting.model.experts > 1)
    if every > 1:
        dense = np.broadcast_arrays(*vars(_layer_pass(policies, setting, False)).values())
        layer = Pass(*(a + (b - a) / every for a, b in zip(dense, vars(layer).values(), strict=True)))
    return _beside_host(layer, policies, setting) if policies.offload_checkpoints.any() else layer


def _beside_host(layer: Pass, policies: Policies, setting: PolicySetting) -> Pass:
    """The pass with inputs that go to the host forward and come back backward. Engines of their own copy them beside
    all that the pass does, so it lasts as long as the copy at least. Gradients of weights beside which inputs come back
    are not done later.
    """
    moved = policies.offload_checkpoints & (policies.recompute == RECOMPUTES.index("full"))
    rate = setting.cluster.gpu.host_bandwidth or np.inf
    copy = moved * policies.wide / 2 * checkpoint_bytes(policies, setting) / policies.recompute_every / rate
    ahead, back = np.maximum(copy - layer.forward_total, 0), np.maximum(copy - layer.backward_total, 0)
    weights = np.minimum(layer.weights, np.maximum(layer.backward_total - copy, 0))
    return replace(layer, weights=weights, host_forward=ahead, host_backward=back)


def _layer_pass(policies: Policies, setting: PolicySetting, routed: bool) -> Pass:
    """Seconds through a dense layer, or through one with experts.

    What tensor ranks send hides behind the gradients of weights, or, with overlap="full", behind any product; what
    context ranks send in a ring behind attention to the keys that have come, which is all of it but the last of c
    blocks. All-to-alls hide with overlap="full" alone, behind what tensor ranks leave of the products.
    """
    constants = setting.constants
    dense, dense_input, dense_weights = _products(policies, setting, routed)
    core, core_back = _attention(policies, setting)
    light, light_back = _light(policies, setting, routed)
    between = tensor_seconds(policies, setting, routed)
    to_heads = heads_seconds(policies, setting)
    exchange = to_heads + (exchange_seconds(policies, setting) if routed else 0.0)
    kernels = (TENSOR_KERNELS * (policies.tensor > 1) + ROUTER_KERNELS * routed) * constants.kernel_seconds
    issue = FORWARD_KERNELS * constants.kernel_seconds + kernels
    issue_back = BACKWARD_KERNELS * constants.kernel_seconds + kernels
    forward, inputs = busy(dense + core + light, issue), busy(dense_input + core_back + light_back, issue_back)
    backward = busy(dense_input + dense_weights + core_back + light_back, issue_back)
    products, weights = forward - busy(core + light, issue), backward - inputs  # what these add to the pass
    share = policies.hidden("tensor", constants)
    most = policies.hidden("pipeline", constants)
    hidden = most * np.minimum(between + exchange, products)
    hidden_back = share * np.minimum(between, weights)
    hidden_back = hidden_back + most * np.minimum(exchange, weights - hidden_back)
    ring, first, first_back = ring_seconds(policies, setting), core / policies.context, core_back / policies.context
    others = busy(core + light, issue) - busy(first + light, issue)
    others_back = inputs - busy(dense_input + first_back + light_back, issue_back)
    in_ring, in_ring_back = share * np.minimum(ring, others), share * np.minimum(2 * ring, others_back)
    selective, full = (policies.recompute == RECOMPUTES.index(name) for name in ("selective", "full"))
    often = 1 / policies.recompute_every
    again = often * np.select([full, selective], [forward, core], 0.0)
    ahead, behind = hidden + in_ring, hidden_back + in_ring_back
    exposed, exposed_back = between + exchange + ring - ahead, between + exchange + 2 * ring - behind
    once_more = often * np.select([full, selective], [exposed, ring - in_ring + to_heads], 0.0)
    hidden_total = behind + often * np.select([full, selective], [ahead, in_ring], 0.0)
    exposed_total = exposed + exposed_back + once_more
    return Pass(forward, backward, weights - hidden_back, again, exposed_total, exposed, ahead, hidden_total)


def ring_seconds(policies: Policies, setting: PolicySetting) -> Numbers:
    """Keys and values of one layer and micro-batch round c ranks, forward: c - 1 messages of 4 b s/c bytes for each
    number of a key. Backward their gradients go with them, twice as much (Liu 2023, arXiv 2310.01889). Attention that
    is recomputed gets them once more.
    """
    size = policies.wide * key_bytes(policies, setting)
    return (policies.head_ranks == policies.tensor) * collectives.all_gather(
        policies.ring(setting.cluster), size, "one_ring"
    )


def heads_seconds(policies: Policies, setting: PolicySetting) -> Count:
    """Queries, keys and values of one layer and micro-batch go to ranks that have all parts of a sequence for some
    heads, and the context comes back: four all-to-alls each way (Jacobs 2023, arXiv 2309.14509), and forward once more
    where attention is recomputed. Keys of a head that several ranks need are sent to each of them.
    """
    to_heads, groups = policies.head_ranks > policies.tensor, policies.ring(setting.cluster)
    if not to_heads.any():
        return 0.0
    sizes = (policies.wide / 2 * of(policies, setting) for of in (query_bytes, key_bytes))
    return to_heads * 2 * sum(collectives.all_to_all(groups, size) for size in sizes)


def busy(work: Numbers, issue: Numbers) -> Numbers:
    """Seconds of kernels that take `work` on the GPU and `issue` on the CPU that launches them: sqrt(work^2 + issue^2).

    The slower of the two where they are far apart, and 1.4 times either where they are equal: some kernels of a pass
    wait for the CPU and others for the GPU.
    """
    return np.sqrt(work**2 + issue**2)


def tensor_seconds(policies: Policies, setting: PolicySetting, routed: bool = False) -> Numbers:
    """Two all-reduces of b s h numbers each way (Shoeybi 2019); with sequence parallelism each is an all-gather and a
    reduce-scatter, of the same bytes (Korthikanti 2022). The one around experts that are spread over ranks is of all
    copies of tokens that a rank was sent; shared experts have one of their own.
    """
    model, tokens = setting.model, policies.tokens(setting)
    once = _around(policies, setting, tokens)
    if not routed:
        return 2 * once
    copies = np.where(policies.expert > 1, routed_tokens(policies, setting), tokens)
    return (1 + (model.shared_experts > 0)) * once + _around(policies, setting, copies)


def _around(policies: Policies, setting: PolicySetting, tokens: Numbers) -> Numbers:
    groups, size = policies.splitting(setting.cluster), policies.wide * tokens * setting.model.hidden
    split = 2 * collectives.reduce_scatter(groups, size)
    return np.where(policies.sequence_parallel, split, collectives.all_reduce(groups, size))


def head_pass(policies: Policies, setting: PolicySetting) -> Pass:
    """Logits and cross-entropy over a vocabulary split over the tensor ranks (padded to a multiple of 8 t).

    Element-wise bytes for each logit: forward 30 (to fp32 6, maximum 4, shift and exponential 12, sum 4, division 4
    and a bit), backward 14 (softmax minus target 8, to 16 bits 6).
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    columns = np.where(t > 1, 8 * np.ceil(model.vocab / (8 * t)), model.vocab)
    h, groups = model.hidden, policies.splitting(setting.cluster)
    shapes: tuple[tuple[Count, Count, Count], ...] = ((tokens, columns, h), (tokens, h, columns), (columns, h, tokens))
    products = [_gemms(policies, setting, *shape) for shape in shapes]
    logits = tokens * columns / setting.memory_rate
    exchange = 2 * collectives.all_reduce(groups, 4.0 * tokens)  # maxima and sums
    gradient = collectives.all_reduce(groups, policies.wide * tokens * h)
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
    """
    numbers = policies.tokens(setting) * setting.model.hidden
    seconds = 5.0 * policies.wide * numbers / setting.memory_rate
    exchange = collectives.all_reduce(policies.splitting(setting.cluster), policies.wide * numbers)
    zero = np.zeros_like(seconds)
    return Pass(seconds, seconds, zero, zero, exchange, exchange)


def _products(policies: Policies, setting: PolicySetting, routed: bool) -> tuple[Numbers, Numbers, Numbers]:
    """Seconds of the matrices with weights: forward, gradients of inputs, gradients of weights.

    They alone are computed in fp8: inputs and weights are cast forward, gradients of outputs backward. Experts are
    products at once.
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    keys = np.maximum(model.key_width / t, model.head_width)  # below one head they are replicated
    gates = 2 if model.gated else 1
    shapes: list[tuple[Count, Count, Count, Count]] = [
        (tokens, model.hidden, model.query_width / t + 2 * keys, 1),
        (tokens, model.query_width / t, model.hidden, 1),
    ]
    for rows, width, count in feed_forwards(policies, setting, routed):
        shapes += [(rows, model.hidden, gates * width, count), (rows, width, model.hidden, count)]

    def total(*products: tuple[Count, Count, Count, Count]) -> Numbers:
        seconds = [_gemms(policies, setting, *product, linear=True) for product in products]
        return np.sum(np.broadcast_arrays(*seconds), axis=0)

    cast = CAST * (policies.precision == "fp8") / setting.memory_rate
    read = sum(count * (rows + out) * into for rows, into, out, count in shapes)
    written = sum(count * rows * out for rows, _, out, count in shapes)
    forward = total(*((rows, out, into, count) for rows, into, out, count in shapes))
    inputs = total(*((rows, into, out, count) for rows, into, out, count in shapes))
    weights = total(*((into, out, rows, count) for rows, into, out, count in shapes))
    return forward + cast * read, inputs + cast * written, weights


def _attention(policies: Policies, setting: PolicySetting) -> tuple[Numbers, Numbers]:
    """Seconds of scores, softmax, dropout and context, forward and backward.

    Bytes for each of the a s^2 b / t scores: softmax 4 and dropout 5 forward; 6 and 5 backward.

    A flash kernel moves none of them, skips the masked half, and computes the scores once more in its backward pass
    (Dao 2023): two products forward and five backward. Between them the tensor cores wait for `VECTOR` operations on
    each score, backward twice as many, which narrow heads feel most.
    """
    model = setting.model
    s, width = model.sequence, model.head_width
    heads = policies.micro_batch * model.heads / policies.tensor
    if model.flash_attention:
        gpu, precision = setting.cluster.gpu, _narrow(policies.precision)
        padded = HEAD * np.ceil(width / HEAD) + setting.constants.gemm_ramp
        product = 2 * padded * seconds_per_flop(gpu, precision, setting.constants)
        vector = VECTOR / gpu.peak_flops.get("fp32", gpu.peak_flops[precision] / 16)
        seen = s * s / 2 * heads / policies.context
        return seen * (2 * product + vector), seen * (5 * product + 2 * vector)
    whole = policies.head_ranks // policies.tensor
    rows, heads = s / (policies.context // whole), heads / whole
    scores, values = _gemms(policies, setting, rows, s, width, heads), _gemms(policies, setting, rows, width, s, heads)
    byte = policies.wide / 2 * rows * s * heads / setting.memory_rate
    return scores + values + 9 * byte, 2 * scores + values + values + 11 * byte


def _light(policies: Policies, setting: PolicySetting, routed: bool) -> tuple[Numbers, Numbers]:
    """Seconds of everything else that is element-wise, forward and backward.

    Bytes for each number of b s h: two norms 4 forward, 6 backward each; two (bias, dropout, residual) 7 forward, 11
    backward each: these are done by every tensor rank unless sequence_parallel. Split over the ranks: the context is
    laid out anew, 4 each way; GeLU moves 4 forward, 6 backward for each of f numbers, a gate 6 and 10. Each number of
    the copies that go to experts is laid out, 4, and added up, 4, each way.
    """
    model, t, tokens = setting.model, policies.tensor, policies.tokens(setting)
    shared = tokens * model.hidden / np.where(policies.sequence_parallel, t, 1)
    forward, backward = (6, 10) if model.gated else (4, 6)
    inner = sum(rows * width * count for rows, width, count in feed_forwards(policies, setting, routed))
    split = 4 * tokens * model.query_width / t
    if routed:
        split = split + 8 * routed_tokens(policies, setting) * model.hidden
    rate = 2 / policies.wide * setting.memory_rate
    return (22 * shared + split + forward * inner) / rate, (34 * shared + split + backward * inner) / rate


def _gemms(
    policies: Policies,
    setting: PolicySetting,
    rows: Count,
    columns: Count,
    inner: Count,
    count: Count = 1,
    linear: bool = False,
) -> Numbers:
    precision = policies.precision if linear else _narrow(policies.precision)
    return gemm_seconds(rows, columns, inner, count, setting.cluster.gpu, precision, setting.constants)


def _narrow(precision: str) -> str:
    """The precision of products that are no layer with weights."""
    return "bf16" if precision == "fp8" else precision
