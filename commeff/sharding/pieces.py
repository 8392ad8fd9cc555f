"""A vector in pieces on several ranks: the columns that the same ranks hold are a vector of their own."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.compressors import Compressor, Layout
from commeff.core.addresses import Address
from commeff.core.properties import contents, kind_of, scope_of
from commeff.core.strategy import Stages, Stateful, Strategy, Traits, Transform, agrees, stages_of, with_transforms
from commeff.sharding.parts import Part


class Pieces(Transform):
    """v -> (inner(v[:, p]) for each part p): what selects, scales or factors does so within a part.

    A rank that holds sharded columns and copied ones must not let one selection or one scale span both: the ranks would
    select differently for the same copy, and copies drift apart without an error. Where a whole vector is simulated in
    one process, the same parts give the same results.
    Memory and messages: those of the inner transform, for each part.

    Parameters
    ----------
    inner : Transform
        What works on each part; every part has a copy of its own.
    partition : sequence of Part
        The parts, which have every column once.
    """

    traits = Traits(scope="whole", rowwise=True)

    def __init__(self, inner: Transform, partition: Sequence[Part]) -> None:
        self._inner, self._partition = inner, tuple(partition)
        self.each: tuple[Transform, ...] = ()

    @property
    def content(self) -> Stateful:
        """The transform that works on each part; the parts are the mesh's."""
        return self._inner

    def agrees(self, step: int | None) -> bool:
        return agrees(self._inner, step)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        covered = sorted(span for part in self._partition for span in part.spans)
        if [a for a, _ in covered] != [0, *(b for _, b in covered[:-1])] or covered[-1][1] != layout.d:
            raise ValueError(f"the parts must have each of the {layout.d} columns once, got spans {covered[:8]} ...")
        self.each = tuple(copy.deepcopy(self._inner) for _ in self._partition)
        for transform, part in zip(self.each, self._partition, strict=True):
            transform.start(part.read(v), part.layout, view(communicator.child(part.name), None))

    def address(self, part: str, at: Address) -> Address:
        piece = self._partition[int(part.removeprefix("each."))]
        return replace(at.part(piece.spans), piece=piece.name)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        out = torch.empty_like(vectors, memory_format=torch.contiguous_format)
        for transform, part in zip(self.each, self._partition, strict=True):
            columns = part.read(vectors)
            part.write(out, (yield from stages_of(transform, columns, view(communicator.child(part.name), None))))
        return out


def exact_on_pieces(part: Stateful) -> bool:
    """Whether a row may lie in pieces on several ranks: each, started with the layout of its own, gives its piece of
    what comes of the whole row.
    """
    compressors = (value.exact_on_pieces for value in vars(part).values() if isinstance(value, Compressor))
    return part.traits.exact and all(compressors) and all(map(exact_on_pieces, contents(part)))


def exact(part: Stateful | Compressor, partition: Sequence[Part]) -> bool:
    """Whether it gives on rows in these parts what it gives on whole ones."""
    scope = scope_of(part) if isinstance(part, Stateful) else part.scope
    exact_itself = exact_on_pieces(part) if isinstance(part, Stateful) else part.exact_on_pieces
    return exact_itself or (scope == "tensor" and not any(piece.sharded for piece in partition))


def inexact(part: Stateful | Compressor, partition: Sequence[Part]) -> Iterator[tuple[str, str]]:
    """The things inside that need more than a piece: the name of each, and what it works on."""
    held = [value for value in vars(part).values() if isinstance(value, (Compressor, Stateful))]
    held += [value for _, value in part.parts()] if isinstance(part, Stateful) else []
    faults = [fault for value in held if not exact(value, partition) for fault in inexact(value, partition)]
    scope = scope_of(part) if isinstance(part, Stateful) else part.scope
    yield from faults or [(kind_of(part), "whole tensors" if scope == "tensor" else "whole vectors")]


def on_pieces(strategy: Strategy, partition: Sequence[Part]) -> Strategy:
    """The strategy whose transforms act on each part by itself, unless they are exact on pieces anyway."""
    gradients, parameters = (
        slot if exact(slot, partition) else Pieces(slot, partition)
        for slot in (strategy.gradients, strategy.parameters)
    )
    return with_transforms(strategy, gradients, parameters)


def fitted(strategy: Strategy, partition: Sequence[Part], pieces: Literal["own"] | None) -> Strategy:
    """The strategy over what a process updates of a model, not in buckets and not clipped yet.

    Parameters
    ----------
    strategy : Strategy
        The method.
    partition : sequence of Part
        What the process updates, by the ranks that hold it; empty where it is a whole model.
    pieces : {"own"}, optional
        Let what selects, scales or factors do so within a part.

    Raises
    ------
    ValueError
        The strategy cannot act on parts.
    """
    if not partition:
        return strategy
    slots = [slot for slot in (strategy.gradients, strategy.parameters) if not exact(slot, partition)]
    faults = []
    for name, unit in {fault: 0 for slot in slots if pieces != "own" for fault in inexact(slot, partition)}:
        faults.append(
            f"a method over a model that is split must be exact on pieces, got one with {name}, which works on {unit}, "
            "of which a process holds a piece: give pieces='own' to let each piece count as a vector of its own, or "
            "choose psgd, gossip, local SGD, DiLoCo or power_sgd, or a compressor of one scale or one common choice"
        )
    if slots and not all(part.alike for part in partition):
        faults.append(
            "pieces must be null where shard ranks share the states of a pipeline with tied tensors, got own: its ends "
            "would count other pieces of their copies as vectors; choose zero=0, an untied model, or a method that is "
            "exact on pieces"
        )
    for name, unit in inexact(strategy.local, partition) if not exact(strategy.local, partition) else ():
        faults.append(
            f"the optimizer over a model that is split must work on coordinates one by one, got {name}, which works on "
            f"{unit}, of which a process holds a piece: choose SGD, Adam or AdamW"
        )
    if faults:
        raise ValueError("\n".join(faults))
    return on_pieces(strategy, partition)
