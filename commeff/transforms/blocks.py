"""Blocks of columns: the same transform over each block, each with its own memory."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, view
from commeff.compressors import Layout
from commeff.core.addresses import Address
from commeff.core.components import Flow
from commeff.core.properties import scope_of
from commeff.core.strategy import Keep, Stages, Strategy, Traits, Transform, agrees, stages_of, with_transforms

BUCKET_MB = 25.0  # of gradients that travel together, as in DistributedDataParallel


class Blocks(Transform):
    """v -> (inner(v[:, b]) for each block b): buckets, shards, fragments. `cuts` are the columns at which a new block
    begins.

    The partition must respect what the inner transform works on (its scope): any columns for `coordinate`, whole
    tensors for `tensor`, and nothing for `whole`. Where rows lie in pieces on several ranks, blocks are those of the
    whole rows, of which a rank may have no column. Memory and messages are those of the inner transform, per block.
    Blocks go out from the last to the first, as gradients come; a block whose columns are `ready` goes out at once.

    Parameters
    ----------
    inner : Transform
        What works on each block; every block has a copy of its own.
    cuts : sequence of int
        The columns at which a new block begins.
    """

    traits = Traits(scope="whole", exact_on_pieces=True, rowwise=True)

    def __init__(self, inner: Transform, cuts: Sequence[int]) -> None:
        self._inner, self.cuts = inner, tuple(cuts)
        self.blocks: tuple[Transform, ...] = ()

    def agrees(self, step: int | None) -> bool:
        return all(agrees(block, step) for block in self.blocks or (self._inner,))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        blocks = self._cut(v, layout, communicator)
        self._held, layouts = [spans for spans, _ in blocks], [piece for _, piece in blocks]
        spans = [span for held in self._held for span in held]
        self._order = sorted(range(len(spans)), key=lambda i: spans[i])
        # What lies in one span each, in the order of the columns, can be sent as soon as it is ready.
        self._spans = spans if len(spans) == len(blocks) and self._order == list(range(len(spans))) else []
        self._places = [piece.places for piece in layouts]
        self.blocks = tuple(self._twin(i) for i in range(len(blocks)))
        for i, piece in enumerate(layouts):
            self.blocks[i].start(self._read(v, i), piece, self._below(i, communicator))
        self._begin_anew()

    def _cut(self, v: Tensor, layout: Layout, communicator: Communicator) -> list[tuple[list[tuple[int, int]], Layout]]:
        """The columns that each block has here, and their layout."""
        spans = self._partition(layout.whole, communicator)
        return [(layout.spans(start, stop), layout.within(start, stop)) for start, stop in spans]

    def _read(self, v: Tensor, block: int) -> Tensor:
        """(w, d) -> (w, columns of the block)."""
        spans = self._held[block]
        return v[:, slice(*spans[0])] if len(spans) == 1 else torch.cat([v[:, :0], *(v[:, a:b] for a, b in spans)], 1)

    def _write(self, pieces: list[Tensor]) -> Tensor:
        """The blocks' results as one, in the order of the columns."""
        joined = _side_by_side(pieces)
        if self._order == list(range(len(self._order))):
            return joined
        parts = joined.split([b - a for spans in self._held for a, b in spans], 1)
        return _side_by_side([parts[i] for i in self._order])

    def _partition(self, layout: Layout, communicator: Communicator) -> list[tuple[int, int]]:
        """The blocks of the whole rows."""
        bounds = (0, *self.cuts, layout.d)
        if list(bounds) != sorted(set(bounds)):
            raise ValueError(
                f"cuts must increase and lie strictly between 0 and {layout.d}, got {list(self.cuts)}: "
                "they are the columns at which a new block begins"
            )
        spans = list(pairwise(bounds))
        between_tensors = not any(layout.cuts_tensor(a, b) for a, b in spans)
        fine = {"coordinate": True, "tensor": between_tensors, "whole": not self.cuts}
        scope = scope_of(self._inner)
        if not fine[scope]:
            unit = {"tensor": "whole tensors", "whole": "the whole vector"}[scope]
            raise ValueError(
                f"a block must not cut {unit}, got blocks beginning at columns {list(self.cuts)}: "
                f"{type(self._inner).__name__} works on {unit}; "
                "cut nowhere finer, or choose a compressor of narrower scope (PerTensor, Blockwise)"
            )
        return spans

    def _twin(self, block: int) -> Transform:
        """The transform of a block."""
        return copy.deepcopy(self._inner)

    def _below(self, block: int, communicator: Communicator) -> Communicator:
        places = self._places[block]
        return view(communicator, self._held[block][0][0] if places is None else places)

    def address(self, part: str, at: Address) -> Address:
        return at.block(part, self._held[int(part.removeprefix("blocks."))])

    def _begin_anew(self) -> None:
        self._missing = [b - a for a, b in self._spans]
        self._flows: dict[int, Flow] = {}

    def drain(self) -> None:
        for flow in self._flows.values():
            flow.finish()
        self._begin_anew()

    def awaited(self) -> Sequence[tuple[int, int]]:
        return self._spans if len(self._spans) > 1 else ()  # behind one, nothing is left to hide it

    def ready(self, vectors: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
        touched = bisect_right(self._spans, (start, self._spans[-1][1])) - 1
        while start < stop:
            end = min(self._spans[touched][1], stop)
            self._missing[touched] -= end - start
            start, touched = end, touched + 1
        # In one order, whatever the order in which gradients come: it is the same on every process.
        i = len(self._spans) - 1 - len(self._flows)
        with communicator.transport.together(linger=True):
            while i >= 0 and not self._missing[i]:
                self._begin(i, vectors, communicator)
                i -= 1
        return bool(self._flows)

    def _begin(self, i: int, vectors: Tensor, communicator: Communicator) -> None:
        self._flows[i] = Flow(stages_of(self.blocks[i], self._read(vectors, i), self._below(i, communicator)))

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        return self._through(vectors, communicator)

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return Flow(self._through(vectors, communicator, given=True)).finish()

    def _through(self, vectors: Tensor, communicator: Communicator, given: bool = False) -> Stages:
        """The stages; the result may take the memory of vectors where it is given."""
        if len(self.blocks) == 1:
            return (yield from stages_of(self.blocks[0], vectors, self._below(0, communicator)))
        with communicator.transport.together():
            for i in reversed(range(len(self.blocks))):
                if i not in self._flows:
                    self._begin(i, vectors, communicator)
        flows = self._flows
        self._begin_anew()
        while waiting := [(flow, flow.handle) for flow in flows.values() if flow.handle is not None]:
            arrived = []
            for _, handle in waiting:
                arrived.append((yield handle))
            with communicator.transport.together():
                for (flow, _), value in zip(waiting, arrived, strict=True):
                    flow.send(value)
        pieces = [flows[i].finish() for i in range(len(flows))]
        visible = self._spans and not vectors.is_meta  # on which is_set_to is not defined
        if visible and all(piece.is_set_to(self._read(vectors, i)) for i, piece in enumerate(pieces)):
            return vectors  # a lone worker's mean
        if not (given and visible and len(vectors) == 1):  # equal rows are views of one
            return self._write(pieces)
        for (start, stop), piece in zip(self._spans, pieces, strict=True):
            vectors[:, start:stop] = piece
        return vectors


class Sharded(Blocks):
    """n blocks of equal width, the server's row of each with another worker: a server that no single link carries.

    A shard is a vector of its own: compressors see one at a time.

    Parameters
    ----------
    inner : Transform
        What works on each shard.
    """

    def __init__(self, inner: Transform) -> None:
        super().__init__(inner, ())

    def _partition(self, layout: Layout, communicator: Communicator) -> list[tuple[int, int]]:
        n, d = communicator.n, layout.d
        spans = [(d * i // n, d * (i + 1) // n) for i in range(n)]
        if d < n:
            raise ValueError(f"a server in {n} shards needs at least {n} coordinates, got {d}: use server='row'")
        if scope_of(self._inner) == "tensor" and any(layout.cuts_tensor(a, b) for a, b in spans):
            raise ValueError(
                f"a server in {n} shards needs a compressor that may cut tensors, got one that works on whole tensors: "
                "use server='row', or a compressor that needs no shapes"
            )
        return spans

    def _below(self, block: int, communicator: Communicator) -> Communicator:
        return view(super()._below(block, communicator), home=block)


class Buckets(Blocks):
    """Blocks that change nothing but when things are sent: whole tensors, about `megabytes` together.

    The bucket that goes first, that of the last tensors, holds at most 1 MB where there are several. What works on the
    whole vector stays in one bucket. The saved state does not know of buckets.

    Parameters
    ----------
    inner : Transform
        What works on each bucket.
    megabytes : float
        About how large a bucket is.
    """

    def __init__(self, inner: Transform, megabytes: float) -> None:
        require.within("(0, inf]", bucket_mb=megabytes)
        super().__init__(inner, ())
        self.megabytes = megabytes

    @property
    def content(self) -> Transform:
        """The transform of each bucket, which decides the results."""
        return self._inner

    def _cut(self, v: Tensor, layout: Layout, communicator: Communicator) -> list[tuple[list[tuple[int, int]], Layout]]:
        return [([span], layout.slice(*span)) for span in self.spans(v, layout)]

    def spans(self, v: Tensor, layout: Layout) -> list[tuple[int, int]]:
        """The buckets of rows like v."""
        most = self.megabytes * 1e6 / v.element_size()
        scope = scope_of(self._inner)
        if scope == "whole" or (layout.shards_tensors and scope != "coordinate"):
            return [(0, layout.d)]
        return layout.blocks(most, last=1e6 / v.element_size())

    def address(self, part: str, at: Address) -> Address:
        return at.part([self._spans[int(part.removeprefix("blocks."))]])


def _side_by_side(pieces: list[Tensor]) -> Tensor:
    """The blocks' results as one; views of one row stay that."""
    if len(pieces) == 1:
        return pieces[0]
    if all(piece.stride(0) == 0 for piece in pieces):
        return torch.cat([piece[:1] for piece in pieces], dim=1).expand(len(pieces[0]), -1)
    return torch.cat(pieces, dim=1)


def bucketed(strategy: Strategy, megabytes: float, x: Tensor | None = None, layout: Layout | None = None) -> Strategy:
    """The strategy whose gradients travel in buckets while others are still computed; 0: in one piece, afterwards.

    Where rows like x make one bucket, which nothing is left to hide, it stays as it is; without x, `start` sees that.
    """
    if not megabytes or isinstance(strategy.gradients, Keep):
        return strategy
    buckets = Buckets(strategy.gradients, megabytes)
    if x is not None and layout is not None and len(buckets.spans(x, layout)) == 1:
        return strategy
    return with_transforms(strategy, buckets, strategy.parameters)


def blocked(strategy: Strategy, cuts: Sequence[int]) -> Strategy:
    """The strategy with both transforms run block by block."""
    return with_transforms(strategy, Blocks(strategy.gradients, cuts), Blocks(strategy.parameters, cuts))
