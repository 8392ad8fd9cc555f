"""Activations that are computed anew in backward instead of kept (arXiv 1604.06174, 2205.05198)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from commeff import require
from commeff.sharding.collectives import ALONG, Axis
from commeff.sharding.layers import Layers

Store = Callable[[Axis], AbstractContextManager[Any]]


class Recomputation(NamedTuple):
    """The part that is computed anew, and where the inputs that it begins with lie meanwhile.

    Attributes
    ----------
    attention : bool
        Whether only the attention of each layer is; else all of it.
    alike : bool
        All tensor ranks must have the same inputs of layers.
    store : callable, optional
        Takes the tensor axis to a context in which inputs are saved elsewhere.
    """

    attention: bool = False
    alike: bool = False
    store: Store = lambda _: nullcontext()


def on_host(_: Axis) -> AbstractContextManager[Any]:
    """Inputs wait in the host's memory; those on the meta device have no numbers to move."""
    host = save_on_cpu(pin_memory=torch.cuda.is_available())
    return saved_tensors_hooks(
        lambda x: x if x.is_meta else host.pack_hook(x),
        lambda packed: host.unpack_hook(packed) if isinstance(packed, tuple) else packed,
    )


def in_parts(axis: Axis) -> AbstractContextManager[Any]:
    """Each tensor rank keeps its part of the positions of inputs that all have alike (arXiv 1910.02054, section 6.1).

    A gather of (b, t, d) for each layer in backward brings them together.
    """

    def pack(x: Tensor) -> tuple[Tensor, bool]:
        divided = axis.size > 1 and x.is_floating_point() and x.ndim > 1
        return (axis.part(x, ALONG).clone() if divided else x), divided

    def unpack(packed: tuple[Tensor, bool]) -> Tensor:
        x, divided = packed
        return axis.gather(x, ALONG) if divided else x

    return saved_tensors_hooks(pack, unpack)


RECOMPUTATIONS = {
    "none": None,
    "selective": Recomputation(attention=True),
    "full": Recomputation(),
    "offloaded": Recomputation(store=on_host),
    "partitioned": Recomputation(alike=True, store=in_parts),
}


def recompute(model: nn.Module, layers: Layers, kind: str, tensor: Axis | None = None) -> None:
    """Let the layers of a model keep less for backward, in place; gradients are the same bit by bit.

    Apply it after `split` and before `Pipeline`. torch.compile leaves layers that tensor ranks share alone then: it
    would compute more anew. Where t tokens of width d pass f wide feed-forwards, h heads and e wide keys on T tensor
    ranks, a rank keeps for a token of a Llama, and each of its layers,

        none         6 d + (2 d + 2 e + 4 f + h) / T      with sequence parallelism   2 d + (6 d + 2 e + 4 f + h) / T
        selective    6 d + 4 f / T                                                    2 d + (4 d + 4 f) / T
        full         d                                                                d / T
        partitioned  d / T

    numbers: of each norm what comes in, what it is normalised to and what goes out, which sequence parallelism divides
    but for the last of them, gathered; queries, keys and values (e is d where a GPU cannot share keys), and what
    attention makes of them; gate, its SiLU, the other half and the product; the logarithm of each head's sum. After the
    layers come 3 d + V / T, with sequence parallelism d + (2 d + V) / T: the same of a norm, and the logits'
    exponentials. All of it for each micro-batch in flight.

    Parameters
    ----------
    model : nn.Module
        Whole, or split over tensor ranks.
    layers : Layers
        How its modules follow each other.
    kind : str
        "none", "selective" (attention alone), "full", "offloaded" (full, and the inputs of layers wait on the host), or
        "partitioned" (full, and each tensor rank keeps a part of these inputs).
    tensor : Axis, optional
        The tensor ranks, for "partitioned".

    Examples
    --------
    >>> net = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    >>> recompute(net, Layers("0", lambda net, x: x, lambda net, x: net[1](x), (), ("1",)), "full")
    >>> net(torch.ones(1, 2)).backward()

    Raises
    ------
    ValueError
        There is no such kind, or it does not fit the model.
    """
    chosen = require.choose(RECOMPUTATIONS, recompute=kind)
    if chosen is None:
        return
    if chosen.alike and any(getattr(parameter, "sequence", False) for parameter in model.parameters()):
        raise ValueError(
            f"recompute={kind} must be without sequence parallelism, got both: it has divided the inputs of layers "
            "already; give recompute=full"
        )
    axis = Axis("tensor") if tensor is None else tensor
    for layer in model.get_submodule(layers.name).children():
        module = layer.get_submodule(layers.attention) if chosen.attention else layer
        again = partial(_again, module.forward, chosen.store, axis)
        if axis.size > 1:  # torch.compile would choose what is computed anew, and send that again
            again = torch.compiler.disable(again)
        module.forward = again


def _again(forward: Callable[..., Any], store: Store, tensor: Axis, *inputs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    with store(tensor):
        return checkpoint(forward, *inputs, use_reentrant=False)
