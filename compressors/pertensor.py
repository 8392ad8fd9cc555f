"""One compressor on every tensor of a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from commeff.compressors.base import Compressor, Scope, largest, smallest
from commeff.compressors.layout import Field, Layout
from commeff.compressors.message import ConcatenatedMessage, Message
from commeff.compressors.quantised import QSGD
from commeff.compressors.random import WorkerRandom
from commeff.compressors.topk import TopK


@dataclass(frozen=True)
class PerTensor(Compressor):
    """Each tensor of the layout is a vector of its own. Needs `bind`.

    omega and delta are the worst over the tensors. Sends what the compressor sends for every tensor.

    When: tensors whose numbers differ in scale: each gets its own choice or scale.

    Parameters
    ----------
    compressor
        What compresses each tensor.
    layout, bound
        Where the tensors lie, and the compressor bound to each: filled in by `bind`.

    Examples
    --------
    >>> import torch
    >>> layout = Layout.of([("weight", (2, 3)), ("bias", (2,))])
    >>> message = PerTensor(TopK(k=1)).bind(layout).compress(torch.arange(8.0)[None], WorkerRandom(0, [0]))
    >>> message.decode().tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 7.0]]
    """

    compressor: Compressor
    layout: Layout | None = None
    bound: tuple[Compressor, ...] = ()

    scope: ClassVar[Scope] = "tensor"

    @property
    def summable(self) -> bool:
        return self.compressor.summable

    def bind(self, layout: Layout) -> Self:
        if not layout.fields:
            raise ValueError(
                "PerTensor: the layout must have at least one tensor, got none: there is nothing to compress"
            )
        tensors = (Layout((field._replace(start=0, stop=field.stop - field.start),)) for field in layout.fields)
        return replace(self, layout=layout, bound=tuple(self.compressor.bind(tensor) for tensor in tensors))

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Message:
        if vectors.is_meta:  # without numbers, what is sent of tensors of one shape is the same
            kinds = {(field.shape, compressor): field for field, compressor in self._tensors()}
            alike = {
                (shape, compressor): compressor.compress(vectors[:, field.start : field.stop], random)
                for (shape, compressor), field in kinds.items()
            }
            return ConcatenatedMessage.of([alike[field.shape, compressor] for field, compressor in self._tensors()])
        pieces = [
            compressor.compress(vectors[:, field.start : field.stop], random.shifted(field.start))
            for field, compressor in self._tensors()
        ]
        return ConcatenatedMessage.of(pieces)

    def omega(self, d: int) -> float | None:
        return largest(compressor.omega(field.stop - field.start) for field, compressor in self._tensors())

    def delta(self, d: int) -> float | None:
        return smallest(compressor.delta(field.stop - field.start) for field, compressor in self._tensors())

    def _tensors(self) -> Iterator[tuple[Field, Compressor]]:
        if self.layout is None:
            raise ValueError(
                "PerTensor must be bound before it is used, got no layout: it needs the tensors; call bind(layout)"
            )
        return zip(self.layout.fields, self.bound, strict=True)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(TopK(ratio=0.25)), cls(QSGD(4))]
