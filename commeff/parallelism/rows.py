"""A worker's row at each of its ranks: which columns a rank updates, and what it knows of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from commeff.compressors import Layout
from commeff.compressors.parts import Part
from commeff.parallelism.collectives import Axis
from commeff.parallelism.layers import homes_of
from commeff.parallelism.mesh import Mesh
from commeff.parallelism.partition import of_piece
from commeff.parallelism.zero import SharedRow


class Row(Protocol):
    """What a rank does with the row (1, d) of the parameters that it computes with; see `SharedRow`.

    Attributes
    ----------
    start, stop : int
        The columns that this rank updates.
    """

    start: int
    stop: int

    def own(self, row: Tensor) -> Tensor:
        """(1, d) -> this rank's columns, in the same memory."""

    def begin(self, tensor: Tensor) -> None:
        """Make a tensor that of the first rank, at all."""

    def reduce(self, gradient: Tensor) -> Tensor:
        """This rank's columns of the mean gradient (1, d) of all ranks, each of which has seen a share of the batch."""

    def spread(self, updated: Tensor, row: Tensor) -> None:
        """Write this rank's updated columns, and those of all others, into the row (1, d)."""


class CopiedRow:
    """Stage 0: every rank updates the whole row, by the mean gradient of all.

    A step costs an all-reduce of gradients, 2 (n-1)/n d numbers.

    Parameters
    ----------
    d : int
        Length of the row.
    axis : Axis
        The ranks.
    """

    def __init__(self, d: int, axis: Axis) -> None:
        self._axis, self.start, self.stop = axis, 0, d

    def own(self, row: Tensor) -> Tensor:
        """(1, d) -> all of it."""
        return row

    def begin(self, tensor: Tensor) -> None:
        """Make a tensor that of the first rank, at all."""
        self._axis.broadcast(tensor)

    def reduce(self, gradient: Tensor) -> Tensor:
        """The mean gradient (1, d) of all ranks."""
        return self._axis.reduce(gradient) / self._axis.size if self._axis.size > 1 else gradient

    def spread(self, updated: Tensor, row: Tensor) -> None:
        """Write the updated row into `row`."""
        if updated.data_ptr() != row.data_ptr():
            row.copy_(updated)


STAGES: Mapping[int, Callable[[int, Axis], Row]] = {0: CopiedRow, 1: SharedRow}


class Dealt(NamedTuple):
    """What this rank updates of its worker's model.

    Attributes
    ----------
    row : Row
        Which columns of those that it computes with.
    layout : Layout
        Of these columns.
    partition : tuple of Part
        These columns by the ranks that hold them; empty where they are a whole model.
    """

    row: Row
    layout: Layout
    partition: tuple[Part, ...] = ()


def dealt(layout: Layout, parameters: Mapping[str, nn.Parameter], mesh: Mesh | None, zero: int = 1) -> Dealt:
    """Which part of its worker's model this rank updates.

    Parameters
    ----------
    layout : Layout
        Of the parameters that this rank computes with.
    parameters : dict of str to nn.Parameter
        Those, in its order; pieces have a `cut`.
    mesh : Mesh, optional
        The ranks; None where each process is a worker.
    zero : int
        The stage of ZeRO.

    Raises
    ------
    ValueError
        The model is split and its mesh is not given, or the other way round.
    """
    cuts = [getattr(parameter, "cut", None) for parameter in parameters.values()]
    if mesh is None:
        if any(cuts):
            raise ValueError(
                "mesh must be given for a model that is split, got none: it says which processes hold the same piece; "
                "give mesh=Mesh(worker=..., tensor=...)"
            )
        return Dealt(CopiedRow(layout.d, Axis("shard")), layout)
    pipeline, shard, tensor = (mesh.axis(name) for name in ("pipeline", "shard", "tensor"))
    if tensor.size > 1 and None in cuts:
        raise ValueError(f"the model must be split over the {tensor.size} tensor ranks: call split(...) first")
    for ranks in (getattr(parameter, "ranks", None) for parameter in parameters.values()):
        if ranks is not None and ranks != tensor.ranks and max(len(ranks), tensor.size) > 1:
            raise ValueError(
                f"the model must be split over the tensor ranks of its mesh, {tensor.ranks}, got one that is split "
                f"over {ranks}: give split(...) an axis of the mesh that it is optimised with"
            )
    row = STAGES[zero](layout.d, shard)
    shared = shard if zero else Axis("shard")  # ranks of stage 0 hold copies, and need not tell each other
    if pipeline.size * tensor.size * shared.size == 1:
        return Dealt(row, layout)
    homes = {name: homes_of(parameter, pipeline) for name, parameter in parameters.items()}
    copies = [
        max(1, len(home)) * (1 if cut is None else cut.copies) for home, cut in zip(homes.values(), cuts, strict=True)
    ]
    pieces = layout.in_pieces(copies, lambda own: pipeline.reduce(tensor.reduce(shared.reduce(own))))
    pieces = pieces.slice(row.start, row.stop)
    return Dealt(row, pieces, of_piece(pieces, tensor, shared, homes))
