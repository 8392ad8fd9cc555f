"""A strategy over a model of which this process holds a piece."""

from __future__ import annotations

from typing import Literal

from torch import nn

from commeff.compressors import Layout
from commeff.core.strategy import Strategy
from commeff.parallelism import Axis, Mesh
from commeff.parallelism.partition import of_piece
from commeff.parallelism.zero import SharedRow
from commeff.replicas.stacked import trainable
from commeff.transforms import on_pieces


def fitted(
    strategy: Strategy, model: nn.Module, layout: Layout, mesh: Mesh | None, pieces: Literal["own"] | None
) -> tuple[Strategy, Layout, SharedRow]:
    """The strategy, the layout of what this process updates, and how it shares the model's row with others.

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
        return strategy, layout, SharedRow(layout.d, Axis("shard"))
    if mesh.degrees["pipeline"] > 1:
        raise ValueError(f"pipeline must be 1, got {mesh.degrees['pipeline']}: pipelines are not there yet")
    tensor, shard = mesh.axis("tensor"), mesh.axis("shard")
    if tensor.size > 1 and None in cuts:
        raise ValueError(f"the model must be split over the {tensor.size} tensor ranks: call split(...) first")
    row = SharedRow(layout.d, shard)
    if tensor.size * shard.size > 1:
        copies = [1 if cut is None else cut.copies for cut in cuts]
        layout = layout.in_pieces(copies, lambda own: tensor.reduce(shard.reduce(own))).slice(row.start, row.stop)
        if strategy.scope != "coordinate" and pieces != "own":
            unit = {"whole": "whole vectors", "tensor": "whole tensors"}[strategy.scope]
            raise ValueError(
                "a method over a model that is split must work on coordinates one by one, got one that works on "
                f"{unit}, of which a process holds a piece: give pieces='own' to let each piece count as a vector of "
                "its own, or choose psgd, gossip, local SGD or DiLoCo"
            )
        strategy = on_pieces(strategy, of_piece(layout, tensor, shard))
    return strategy, layout, row
