"""The tensors of the part of a model that one rank holds: what its method is played on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from commeff.compressors import Layout
from commeff.planner.model import Model
from commeff.planner.policies import Count, Numbers, distinct


class ModelPart(NamedTuple):
    """Layers and embedding matrices on one of `tensor` ranks.

    Attributes
    ----------
    tensor : ranks that share every matrix.
    layers, embeddings : whole ones, of which the rank has its share.
    """

    tensor: int
    layers: int
    embeddings: int

    def layout(self, model: Model) -> Layout:
        """Names and shapes of the rank's tensors.

        >>> model = Model(layers=2, hidden=8, heads=2, sequence=4, vocab=10)
        >>> ModelPart(1, 2, 1).layout(model).d == 2 * model.layer_parameters + model.embedding_parameters
        True
        >>> [field.shape for field in ModelPart(2, 1, 1).layout(model).fields if len(field.shape) == 2]
        [(4, 8), (4, 8), (4, 8), (8, 4), (16, 8), (8, 16), (5, 8)]
        """
        layers = [list(_layer(model, self.tensor, routed)) for routed in (False, model.experts > 1)]
        last = [(i + 1) % model.expert_every == 0 for i in range(self.layers)]
        tensors = [(f"layer{i}.{name}", shape) for i, end in enumerate(last) for name, shape in layers[end]]
        tensors += [(f"embedding{i}", (-(-model.vocab // self.tensor), model.hidden)) for i in range(self.embeddings)]
        return Layout.of(tensors)


def _layer(model: Model, tensor: int, routed: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Queries, keys, values and the way into the feed-forward are cut by rows, the ways out of both by columns. What
    belongs to the rows is cut with them; norms and biases of what is added up are on every rank.

    Where a layer is `routed`, the matrices of all its experts lie one below the other in three (Megatron-LM's grouped
    ones); which ranks they are spread over makes no difference to what all of a worker's ranks send together.
    """
    h, queries = model.hidden, -(-model.query_width // tensor)
    keys = max(-(-model.key_width // tensor), model.head_width)  # below one head they are replicated
    matrices = {"query": (queries, h), "key": (keys, h), "value": (keys, h), "output": (h, queries)}
    biases = {name: shape[:1] for name, shape in matrices.items()}
    feed_forwards = {"": (1, model.ffn_width)}
    if routed:
        shared = {"shared.": (1, model.shared_experts * model.expert_width)} if model.shared_experts else {}
        feed_forwards = {"experts.": (model.experts, model.expert_width), **shared}
    for name, (count, width) in feed_forwards.items():
        inner = -(-width // tensor)
        matrices |= {f"{name}up": (count * inner, h)} | ({f"{name}gate": (count * inner, h)} if model.gated else {})
        matrices[f"{name}down"] = (count * h, inner)
        biases |= {f"{name}up": (count * inner,), f"{name}down": (count * h,)}
    matrices |= {"router": (model.experts, h)} if routed else {}
    yield from matrices.items()
    yield from ((f"{norm}.scale", (h,)) for norm in ("norm1", "norm2"))
    if not model.gated:
        yield from ((f"{norm}.shift", (h,)) for norm in ("norm1", "norm2"))
        yield from ((f"{name}.bias", shape) for name, shape in biases.items())


def part_numbers(model: Model, tensor: Numbers, layers: Count, embeddings: Count) -> Numbers:
    """`ModelPart(tensor, layers, embeddings).layout(model).d` of many parts; a fraction of a layer has that fraction of
    its numbers.

    Examples
    --------
    >>> model = Model(layers=2, hidden=12, heads=3, sequence=4, vocab=10, kv_heads=1)
    >>> int(part_numbers(model, np.array([3]), 2, 1)[0]) == ModelPart(3, 2, 1).layout(model).d
    True
    """
    degrees, inverse = distinct(np.ravel(tensor))
    one = [ModelPart(int(t), model.expert_every, 0).layout(model).d / model.expert_every for t in degrees[:, 0]]
    ends = -(-model.vocab // degrees[:, 0]) * model.hidden
    inverse = inverse.reshape(np.shape(tensor))
    return np.asarray(layers * np.array(one)[inverse] + embeddings * ends.astype(float)[inverse])
