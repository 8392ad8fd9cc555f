"""A strategy over a model of which this process holds a piece."""

from __future__ import annotations

from typing import Literal

from torch import nn

from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.parallelism import Mesh
from commeff.parallelism.partition import of_piece
from commeff.replicas.stacked import trainable
from commeff.transforms import on_pieces


def fitted(
    strategy: Strategy, model: nn.Module, layout: Layout, mesh: Mesh | None, pieces: Literal["own"] | None
) -> tuple[Strategy, Layout]:
    """The strategy and the layout of the model's row, where both know of which whole the row is a piece.

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
        return strategy, layout
    for name in ("pipeline", "shard"):
        if mesh.degrees[name] > 1:
            raise ValueError(f"{name} must be 1, got {mesh.degrees[name]}: models are split over tensor ranks so far")
    axis = mesh.axis("tensor")
    if axis.size == 1:
        return strategy, layout
    held = [cut for cut in cuts if cut is not None]
    if len(held) < len(cuts):
        raise ValueError(f"the model must be split over the tensor axis of {axis.size} ranks: call split(...) first")
    if strategy.scope != "coordinate":
        if pieces != "own":
            unit = {"whole": "whole vectors", "tensor": "whole tensors"}[strategy.scope]
            raise ValueError(
                "a method over a model that is split must work on coordinates one by one, got one that works on "
                f"{unit}, of which a process holds a piece: give pieces='own' to let each piece count as a vector of "
                "its own, or choose psgd, gossip, local SGD or DiLoCo"
            )
        strategy = on_pieces(strategy, of_piece(layout, held, axis))
    return strategy, layout.in_pieces([cut.copies for cut in held], axis.reduce)
