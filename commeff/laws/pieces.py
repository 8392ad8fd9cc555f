"""Rows that lie in pieces on several ranks: a method over them is the method over whole rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.compressors.laws.pieces import Thread, on_threads
from commeff.compressors.layout import Peers
from commeff.core.strategy import Strategy
from commeff.laws.order import order_of_sums
from commeff.laws.problem import STEPS, WORKERS, MethodCase, elsewhere
from commeff.sharding import Axis, Shard
from commeff.sharding.layout import ShardedLayout
from commeff.sharding.parts import Part, joined, parts_of, ranks_in_words
from commeff.sharding.pieces import exact, on_pieces
from commeff.sharding.shard import cut_evenly
from commeff.sharding.zero import part_of

WHOLE = Layout.of({"matrix.rows": (4, 3), "vector": (5,), "matrix.columns": (3, 4), "matrix.copied": (3, 3)}.items())
CUT = ((0, "rows"), (1, "columns"))
SHARD, TENSOR = 2, 2


def held(rank: int) -> dict[str, Shard]:
    """What a tensor rank holds: half of the rows of a matrix, half of the columns of another, and two copies."""
    shapes = {field.name: field.shape for field in WHOLE.fields}
    halves = {f"matrix.{name}": cut_evenly(shapes[f"matrix.{name}"], dim, TENSOR, rank) for dim, name in CUT}
    return {name: halves.get(name, Shard.of_all(shape, TENSOR)) for name, shape in shapes.items()}


def acts_on_pieces(case: MethodCase) -> None:
    """On ranks that hold pieces of rows, a method does what it does on whole rows, or on the parts in which they lie;
    what several ranks hold stays equal to the bit.
    """
    ranks = [case.build(WORKERS) for _ in range(SHARD * TENSOR)]
    ranks_axes = [(Axis("shard", SHARD, i), Axis("tensor", TENSOR, j)) for j in range(TENSOR) for i in range(SHARD)]
    parts = joined(_held(shard, tensor, (tensor,)) for shard, tensor in ranks_axes)
    if not exact(ranks[0].local, parts):
        return  # it is refused over pieces
    expected = _drive(on_pieces(case.build(WORKERS), parts), WHOLE)
    seen = torch.full_like(expected, torch.nan)
    for places, trajectory in on_threads((SHARD, TENSOR), lambda axes: _on_rank(ranks, axes)):
        difference = float((trajectory - expected[..., places]).abs().max())
        assert difference <= 1e-12, (
            f"{case.name}: over {TENSOR} tensor and {SHARD} shard ranks, each with a piece of the rows, the trajectory "
            f"differs by {difference:.1e}: "
            + (
                order_of_sums(case, difference)
                or "what needs more of a row than coordinates says so, by Traits(scope='whole')"
            )
        )
        copied = ~seen[0, 0, places].isnan()
        assert torch.equal(trajectory[..., copied], seen[..., places[copied]]), (
            f"{case.name}: what two ranks hold differs after {STEPS} steps: it took another scale or choice at each"
        )
        seen[..., places] = trajectory
    assert not seen.isnan().any(), "a coordinate is at no rank"


def _held(shard: Axis, tensor: Axis, sharding: Sequence[Peers]) -> tuple[ShardedLayout, tuple[Part, ...]]:
    """The layout of what a rank updates, and its parts."""
    layout = ShardedLayout.of_shards(held(tensor.rank), sharding)
    layout = layout.pick([part_of(0, layout.d, shard)])
    return layout, parts_of(layout, ranks_in_words(layout, tensor, shard))


def _on_rank(ranks: list[Strategy], axes: tuple[Thread, ...]) -> tuple[Tensor, Tensor]:
    """The places of a rank's columns, and their trajectory."""
    shard, tensor = Axis("shard", SHARD, axes[0].rank), Axis("tensor", TENSOR, axes[1].rank)
    layout, parts = _held(shard, tensor, axes)
    strategy = on_pieces(ranks[shard.rank * TENSOR + tensor.rank], parts)
    return _columns(layout), _drive(strategy, layout)


def _columns(layout: Layout) -> Tensor:
    return torch.arange(layout.d) if layout.places is None else layout.places.of(0, layout.d)


def _drive(strategy: Strategy, layout: Layout) -> Tensor:
    """(steps, w, d): the trajectory of the rows, or of their pieces."""
    columns, communicator = _columns(layout), Communicator(workers=WORKERS, seed=3)
    x = torch.linspace(-1, 2, layout.size, dtype=torch.float64)[columns].expand(WORKERS, -1).clone()
    strategy.start(x, layout, communicator)
    trajectory = []
    for communicator.step in range(STEPS):
        gradients = elsewhere(communicator.step, columns=columns)
        x = strategy.step(x, gradients(x), communicator, gradients)
        trajectory.append(x.clone())
    return torch.stack(trajectory)
