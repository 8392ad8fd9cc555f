"""What a worker puts on the wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, Self

import torch
from torch import Tensor

from commeff.compressors.compiled import pieces
from commeff.compressors.scratch import bands

_ENTRIES = 1 << 22


@dataclass(frozen=True, eq=False)
class Message(ABC):
    """The vectors of w workers, compressed.

    Attributes
    ----------
    parts : every tensor that travels, truly packed, with a leading row axis: row i of each part is what worker i sends.
    d : coordinates of a decoded row.
    dtype : of the vectors that were compressed, and of those that `decode` returns.

    All other fields are static: the receiver knows them beforehand. A new kind of message is a frozen dataclass with
    its own static fields and its `decode`; its docstring gives the wire format. Numbers travel little endian.
    """

    parts: tuple[Tensor, ...]
    d: int
    dtype: torch.dtype

    @abstractmethod
    def decode(self) -> Tensor:
        """(w, d): what a receiver reads. It may share memory with ``parts``: read only."""

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(), for ``out`` (r, d) and ``weights`` (r, w), decoding a few rows at a time."""
        if out.is_meta:
            return
        chunk = max(1, _ENTRIES // max(1, self.d))
        for first in range(0, self.rows, chunk):
            rows = slice(first, first + chunk)
            out.addmm_(weights[:, rows].to(out), self.select(rows).decode().to(out))

    def add_rows(self, out: Tensor, sign: Literal[1, -1] = 1) -> None:
        """out += sign * decode(), row by row, for ``out`` (w, d) that shares no memory with ``parts``."""
        out.add_(self.decode(), alpha=sign)

    @property
    def rows(self) -> int:
        """Number of workers, w."""
        return len(self.parts[0])

    @property
    def wire_bytes(self) -> Tensor:
        """(w,) int64: bytes that each worker sends."""
        return torch.full((self.rows,), self.row_bytes, dtype=torch.int64)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; parts are rectangular, so all rows have as many."""
        return sum(_row_bytes(part) for part in self.parts)

    @property
    def summable(self) -> bool:
        """Whether messages of this kind may be added part by part on the way: decode(sum) = sum of the decoded."""
        return False

    @property
    def lengths(self) -> tuple[int, ...]:
        """The sizes that values decide, those of the longest row; none where the settings tell."""
        return ()

    def stretched(self, lengths: Sequence[int]) -> Self:
        """The same, filled up to ``lengths``, none of which is less than here: what travels beside longer messages."""
        return self

    @property
    def count(self) -> int:
        """The number of messages, one after the other, that this one stands for."""
        return 1

    @property
    def form(self) -> Self:
        """The message with no rows: everything that a receiver knows beforehand."""
        return self.with_parts([part.new_empty(0, *part.shape[1:]) for part in self.parts])

    def with_parts(self, parts: Sequence[Tensor]) -> Self:
        """The message of the same kind with other rows: what a receiver builds."""
        return replace(self, parts=tuple(parts))

    def select(self, rows: slice | list[int] | Tensor) -> Self:
        """Some of the rows."""
        return self.with_parts([part[rows] for part in self.parts])

    def to_buffer(self) -> Tensor:
        """(w, bytes) uint8: row i is exactly what worker i sends."""
        if not self.rows:
            return torch.empty(0, self.row_bytes, dtype=torch.uint8, device=self.parts[0].device)
        pieces = [part.reshape(len(part), prod(part.shape[1:])).view(torch.uint8) for part in self.parts]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)

    def from_buffer(self, buffer: Tensor) -> Self:
        """The message of this kind whose rows were received as ``buffer`` (r, bytes); the inverse of `to_buffer`."""
        pieces = buffer.split([_row_bytes(part) for part in self.parts], 1)
        return self.with_parts([_read(piece, part) for piece, part in zip(pieces, self.parts, strict=True)])


def agreed(messages: Sequence[Message]) -> list[Message]:
    """The messages as long as the longest of them."""
    lengths = [max(sizes) for sizes in zip(*(message.lengths for message in messages), strict=True)]
    return [message.stretched(lengths) for message in messages]


def _row_bytes(part: Tensor) -> int:
    return prod(part.shape[1:]) * part.element_size()


def _read(piece: Tensor, like: Tensor) -> Tensor:
    """The bytes ``piece`` (r, bytes) as rows of the kind of ``like``; not copied where they lie as they should."""
    flat = piece.flatten()
    aligned = flat if len(flat) and flat.data_ptr() % like.element_size() == 0 else flat.clone()
    return aligned.view(like.dtype).view(len(piece), *like.shape[1:])


@dataclass(frozen=True, eq=False)
class Tiled(Message, ABC):
    """A message of which any rectangle can be decoded alone, in the cache."""

    @property
    def fused(self) -> bool:
        """Whether a rectangle is one call of a function that may be compiled."""
        return True

    @abstractmethod
    def tile(self, rows: slice, columns: slice) -> Tensor:
        """The decoded rectangle, in any float type; columns are cut at multiples of ``grain``."""

    @property
    def grain(self) -> int:
        """Coordinates that can only be decoded together."""
        return 8

    def decode(self) -> Tensor:
        shape = self.parts[0].new_empty((), dtype=self.dtype).expand(self.rows, self.d)
        places = [] if shape.is_meta or not shape.numel() else pieces(shape, self.grain, self.fused)
        if len(places) == 1:
            return self.tile(*places[0]).to(self.dtype).contiguous()
        out = torch.empty(shape.shape, dtype=self.dtype, device=shape.device)
        for rows, columns in places:
            out[rows, columns] = self.tile(rows, columns)
        return out

    def add_rows(self, out: Tensor, sign: Literal[1, -1] = 1) -> None:
        for rows, columns in [] if out.is_meta else pieces(out, self.grain, self.fused):
            out[rows, columns].add_(self.tile(rows, columns).to(self.dtype), alpha=sign)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(), decoding some columns of all rows at a time."""
        weights = weights.to(out)
        for columns in bands(self.rows, self.d, out.device, grain=self.grain):
            out[:, columns].addmm_(weights, self.tile(slice(None), columns).to(self.dtype).to(out))


@dataclass(frozen=True, eq=False)
class DenseMessage(Tiled):
    """Every coordinate as it is. Wire format: d numbers, in the dtype of ``parts[0]``."""

    @classmethod
    def of(cls, vectors: Tensor, dtype: torch.dtype | None = None) -> DenseMessage:
        """The message of all the numbers, which travel in their own dtype or in another.

        They are copied only if that differs, or if those of one row do not lie side by side.
        """
        values = vectors if dtype is None else vectors.to(dtype)
        together = values.stride(1) == 1 or values.shape[1] < 2
        return cls((values if together else values.contiguous(),), vectors.shape[1], vectors.dtype)

    @property
    def summable(self) -> bool:
        return True

    def tile(self, rows: slice, columns: slice) -> Tensor:
        return self.parts[0][rows, columns]

    def decode(self) -> Tensor:
        return self.parts[0].to(self.dtype)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(); numbers that need no conversion are not cut into pieces."""
        (values,) = self.parts
        if values.dtype == out.dtype:
            out.addmm_(weights.to(out), values)
        else:
            super().add_to(out, weights)


@dataclass(frozen=True, eq=False)
class Compound(Message, ABC):
    """A message made of messages: its last parts are those of ``forms``, one after the other.

    Attributes
    ----------
    forms : the messages inside, with no rows.
    """

    forms: tuple[Message, ...]

    @property
    def inner(self) -> list[Message]:
        """The messages inside, with their rows."""
        parts = iter(self.parts[self._outer_count :])
        return [form.with_parts([next(parts) for _ in form.parts]) for form in self.forms]

    @property
    def _outer_count(self) -> int:
        """Number of parts that belong to no inner message."""
        return len(self.parts) - sum(len(form.parts) for form in self.forms)

    @property
    def summable(self) -> bool:
        return self._outer_count == 0 and all(form.summable for form in self.forms)

    @property
    def count(self) -> int:
        return max(form.count for form in self.forms)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(length for form in self.forms for length in form.lengths)

    def stretched(self, lengths: Sequence[int]) -> Self:
        if tuple(lengths) == self.lengths:
            return self
        rest = iter(lengths)
        parts, forms = joined([message.stretched([next(rest) for _ in message.lengths]) for message in self.inner])
        return replace(self, parts=(*self.parts[: self._outer_count], *parts), forms=forms)


def joined(messages: Sequence[Message]) -> tuple[tuple[Tensor, ...], tuple[Message, ...]]:
    """The parts of all the messages, and their forms: what a `Compound` is built from."""
    forms = {key: message.form for key, message in {id(message): message for message in messages}.items()}
    return tuple(part for message in messages for part in message.parts), tuple(forms[id(m)] for m in messages)


@dataclass(frozen=True, eq=False)
class ConcatenatedMessage(Compound):
    """Consecutive columns, each a message of its own. Wire format: the pieces one after the other."""

    def decode(self) -> Tensor:
        if self.parts[0].is_meta:
            return self.parts[0].new_empty(self.rows, self.d, dtype=self.dtype)
        return torch.cat([piece.decode() for piece in self.inner], 1)

    def add_rows(self, out: Tensor, sign: Literal[1, -1] = 1) -> None:
        for piece, columns in self._beside(out):
            piece.add_rows(columns, sign)

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        for piece, columns in self._beside(out):
            piece.add_to(columns, weights)

    def _beside(self, out: Tensor) -> Iterator[tuple[Message, Tensor]]:
        pieces = self.inner
        return zip(pieces, out.split([piece.d for piece in pieces], 1), strict=True)

    @classmethod
    def of(cls, pieces: Sequence[Message]) -> ConcatenatedMessage:
        """The message whose columns are those of ``pieces``, left to right."""
        parts, forms = joined(pieces)
        return cls(parts, sum(piece.d for piece in pieces), pieces[0].dtype, forms)


@dataclass(frozen=True, eq=False)
class BlockMessage(Tiled):
    """m blocks of equal length, compressed as rows of their own. Wire format: of each part, block 0, 1, ... m - 1.

    Attributes
    ----------
    block : the message of one block, with no rows.
    """

    block: Message

    def tile(self, rows: slice, columns: slice) -> Tensor:
        blocks = slice(columns.start // self.block.d, columns.stop // self.block.d)
        parts = [part[rows, blocks] for part in self.parts]
        decoded = self.block.with_parts([part.flatten(0, 1) for part in parts]).decode()
        return decoded.reshape(len(parts[0]), columns.stop - columns.start)

    @property
    def summable(self) -> bool:
        return self.block.summable

    @property
    def grain(self) -> int:
        return self.block.d

    @property
    def count(self) -> int:
        return self.block.count

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.block.lengths

    def stretched(self, lengths: Sequence[int]) -> BlockMessage:
        if tuple(lengths) == self.lengths:
            return self
        rows = self.block.with_parts([part.flatten(0, 1) for part in self.parts])
        return BlockMessage.of(rows.stretched(lengths), self.parts[0].shape[1])

    @classmethod
    def of(cls, message: Message, blocks: int) -> BlockMessage:
        """The message that joins every ``blocks`` rows of ``message`` into one row."""
        parts = [part.unflatten(0, (len(part) // blocks, blocks)) for part in message.parts]
        return cls(tuple(parts), message.d * blocks, message.dtype, message.form)
