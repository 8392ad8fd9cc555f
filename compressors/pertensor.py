"""One compressor on every tensor of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import ClassVar, Self

from torch import Tensor

from commeff.compressors.base import Compressor, Scope, check_least, largest, smallest
from commeff.compressors.dense import Dense
from commeff.compressors.layout import Field, Layout
from commeff.compressors.message import ConcatenatedMessage, Message
from commeff.compressors.quantised import QSGD
from commeff.compressors.random import WorkerRandom
from commeff.compressors.topk import TopK


@dataclass(frozen=True)
class PerTensor(Compressor):
    """Each tensor of the layout is a vector of its own, and may have a compressor of its own. Needs `bind`.

    omega and delta are the worst over the tensors. Sends what its compressor sends for every tensor.

    When: tensors whose numbers differ in scale: each gets its own choice or scale; small ones dense, another ratio a
    layer.

    Parameters
    ----------
    compressor
        What compresses each tensor that nothing below names.
    _layout, _bound
        Where the tensors lie, and the compressor bound to each: filled in by `bind`.
    below
        Tensors of fewer elements travel as they are: biases and norms cost more in error than in bytes. 0, the default:
        none.
    rules
        Pairs of a pattern and a compressor, for tensors whose names match the pattern as those of files do ("*" is any
        text): the first that matches decides, before ``below`` does. In a configuration a list of lists.

    Examples
    --------
    >>> import torch
    >>> layout = Layout.of([("weight", (2, 3)), ("bias", (2,))])
    >>> message = PerTensor(TopK(k=1)).bind(layout).compress(torch.arange(8.0)[None], WorkerRandom(0, [0]))
    >>> message.decode().tolist()
    [[0.0, 0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 7.0]]
    >>> policy = PerTensor(TopK(k=1), below=3, rules=[("wei*", TopK(k=2))])
    >>> policy.bind(layout).compress(torch.arange(8.0)[None], WorkerRandom(0, [0])).decode().tolist()
    [[0.0, 0.0, 0.0, 0.0, 4.0, 5.0, 6.0, 7.0]]
    """

    compressor: Compressor
    _layout: Layout | None = None
    _bound: tuple[Compressor, ...] = ()
    below: int = 0
    rules: Sequence[tuple[str, Compressor]] = ()

    scope: ClassVar[Scope] = "tensor"

    def __post_init__(self) -> None:
        check_least("PerTensor: below", self.below, 0)
        for rule in self.rules:
            if len(rule) != 2 or not isinstance(rule[0], str) or not isinstance(rule[1], Compressor):
                raise ValueError(
                    f"PerTensor: rules must be pairs of a pattern and a compressor, got {rule!r}; give such as "
                    '("*.bias", Dense())'
                )
        object.__setattr__(self, "rules", tuple((pattern, compressor) for pattern, compressor in self.rules))

    @property
    def summable(self) -> bool:
        return self.compressor.summable and all(compressor.summable for _, compressor in self.rules)

    def bind(self, layout: Layout) -> Self:
        if not layout.fields:
            raise ValueError("PerTensor: the layout must have at least one tensor, got none")
        tensors = [(f, Layout((f._replace(start=0, stop=f.stop - f.start),))) for f in layout.fields]
        return replace(self, _layout=layout, _bound=tuple(self._of(field).bind(tensor) for field, tensor in tensors))

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

    def _of(self, field: Field) -> Compressor:
        """The compressor that a tensor gets."""
        named = (compressor for pattern, compressor in self.rules if fnmatchcase(field.name, pattern))
        return next(named, Dense() if field.stop - field.start < self.below else self.compressor)

    def _tensors(self) -> Iterator[tuple[Field, Compressor]]:
        if self._layout is None:
            raise ValueError("PerTensor must be bound before it is used, got no layout: call bind(layout)")
        return zip(self._layout.fields, self._bound, strict=True)

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(TopK(ratio=0.25)), cls(QSGD(4), below=8, rules=(("gain", QSGD(1)),))]
