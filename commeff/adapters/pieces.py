"""The layout of a model of which this process holds a piece."""

from __future__ import annotations

from functools import reduce

from torch import Tensor, nn

from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.parallelism import AXES, Mesh
from commeff.replicas.stacked import trainable


def layout_of(model: nn.Module, layout: Layout, strategy: Strategy, mesh: Mesh | None) -> Layout:
    """The layout of a model's row, where a row may be a piece of a worker's.

    Raises
    ------
    ValueError
        The model is split and its mesh is not given, or the strategy cannot act on pieces.
    """
    cuts = [getattr(parameter, "cut", None) for parameter in trainable(model).values()]
    if mesh is None:
        if any(cuts):
            raise ValueError(
                "mesh must be given for a model that is split, got none: it says which processes hold the same piece; "
                "give mesh=Mesh(worker=..., tensor=...)"
            )
        return layout
    hidden = [mesh.axis(name) for name in AXES[1:] if mesh.degrees[name] > 1]
    if not hidden:
        return layout
    if strategy.scope != "coordinate":
        unit = {"whole": "whole vectors", "tensor": "whole tensors"}[strategy.scope]
        raise ValueError(
            f"a method over a model that is split must work on coordinates one by one, got one that works on {unit}: a "
            "process holds a piece of them, and pieces would drift apart; choose psgd, gossip, local SGD or DiLoCo"
        )

    def add(values: Tensor) -> Tensor:
        return reduce(lambda total, axis: axis.reduce(total), hidden, values)

    return layout.in_pieces([cut.copies if cut else 1 for cut in cuts], add)
