"""Momentum that stays with each worker but for its fast part, which is averaged (DeMo)."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Blockwise, DenseMessage, Layout, Message, PerTensor, TopK
from commeff.compressors.base import wide
from commeff.compressors.dct import cosines
from commeff.core.strategy import Stages, Timetable, Traits, Transform, agrees, stages_of


class Chunks(NamedTuple):
    """How a tensor lies in chunks: ``down`` x ``across`` of them, of ``rows`` x ``columns`` numbers each.

    >>> Chunks.of((128, 3, 5), 64), Chunks.of((90,), 64)
    (Chunks(down=2, rows=64, across=1, columns=15), Chunks(down=1, rows=1, across=2, columns=45))
    """

    down: int
    rows: int
    across: int
    columns: int

    @classmethod
    def of(cls, shape: tuple[int, ...], side: int) -> Chunks:
        """As large as divides the tensor, up to ``side``; more than two dimensions count as two, fewer as one row."""
        height, width = (shape[0], prod(shape[1:])) if len(shape) > 1 else (1, prod(shape))
        rows, columns = divisor(height, side), divisor(width, side)
        return cls(height // rows, rows, width // columns, columns)

    def transformed(self, tensor: Tensor) -> Tensor:
        """(w, d) -> (w, d): each chunk's coefficients one after the other."""
        cut = tensor.view(-1, self.down, self.rows, self.across, self.columns).transpose(2, 3).to(wide(tensor.dtype))
        left, right = cosines(self.rows, cut), cosines(self.columns, cut)
        return (left @ cut @ right.T).flatten(1).to(tensor.dtype)

    def restored(self, coefficients: Tensor) -> Tensor:
        """The inverse of `transformed`."""
        shape = (-1, self.down, self.across, self.rows, self.columns)
        cut = coefficients.reshape(shape).to(wide(coefficients.dtype))
        left, right = cosines(self.rows, cut), cosines(self.columns, cut)
        return (left.T @ cut @ right).transpose(2, 3).flatten(1).to(coefficients.dtype)


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most ``most``.

    >>> divisor(96, 64), divisor(128, 64), divisor(67, 64), divisor(0, 64)
    (48, 64, 1, 1)
    """
    return next((candidate for candidate in range(min(number, most), 1, -1) if number % candidate == 0), 1)


class CosineMomentum(Transform):
    """m_i <- beta m_i + v_i;  q_i = the k largest cosine coefficients of each chunk of m_i;  m_i <- m_i - q_i;
    -> q, of each coefficient the mean of those who sent it   (arXiv 2411.19870, Algorithm 1).

    Tensors are cut into chunks of at most chunk x chunk numbers, vectors of at most chunk, whose sides divide theirs.
    Memory: momentum, the coefficients of m_i. Sends k values and k indices for each chunk, by all-gather.

    Parameters
    ----------
    k : int
        Coefficients of a chunk that are sent, at least 1; all, if it has no more.
    chunk : int
        The longest side of a chunk.
    beta : float
        The share of m that is kept, in [0, 1].
    """

    rows = ("momentum",)
    traits = Traits(scope="tensor", agrees=True)

    def __init__(self, k: int, chunk: int, beta: float) -> None:
        require.within("[0, 1]", beta=beta)
        require.at_least(1, k=k, chunk=chunk)
        self.k, self.chunk, self.beta = k, chunk, beta

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.momentum = torch.zeros_like(v)
        self._fields = [(field.start, field.stop, Chunks.of(field.shape, self.chunk)) for field in layout.fields]
        sizes = [chunks.rows * chunks.columns for _, _, chunks in self._fields]
        bound = tuple(Blockwise(TopK(k=min(self.k, size)), size) for size in sizes)
        self._largest = PerTensor(TopK(k=1), Layout.of([(f.name, (f.stop - f.start,)) for f in layout.fields]), bound)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        coefficients = [chunks.transformed(vectors[:, a:b].contiguous()) for a, b, chunks in self._fields]
        moved = torch.add(torch.cat(coefficients, 1), self.momentum, alpha=self.beta)
        message = self._largest.compress(moved, communicator.random("up"))
        self.momentum = moved - message.decode()
        mean = mean_of_sent((yield communicator.post_gather(message)))
        restored = [chunks.restored(mean[:, a:b]) for a, b, chunks in self._fields]
        return torch.cat(restored, 1).expand_as(vectors)


def mean_of_sent(message: Message) -> Tensor:
    """(1, d): of each coordinate the mean over the rows in which it is not 0."""
    total = torch.zeros(1, message.d, dtype=message.dtype, device=message.parts[0].device)
    message.add_to(total, total.new_ones(1, message.rows))
    senders = torch.zeros_like(total)
    for i in range(message.rows):
        senders += message.select([i]).decode() != 0
    return total / senders.clamp_(min=1)


class Striding(Transform):
    """m_i <- beta m_i + v_i;  -> the mean of q_i, every `stride`-th coordinate of m_i;  m_i <- m_i - q_i.

    Each step takes the coordinates before those of the last one, the same at all workers. Memory: momentum = m_i.
    Sends these numbers, by all-reduce.

    Parameters
    ----------
    stride : int
        The coordinates from one that is sent to the next, at least 1.
    beta : float
        The share of m that is kept, in [0, 1].
    """

    rows = ("momentum",)
    traits = Traits(agrees=True)

    def __init__(self, stride: int, beta: float) -> None:
        require.within("[0, 1]", beta=beta)
        self.stride, self.beta = stride, beta

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(self.stride))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.momentum = torch.zeros_like(v)
        self._places = layout.places

    def _chosen(self, communicator: Communicator, d: int) -> Tensor | slice:
        """The columns of this step, wherever they lie in the whole row."""
        if self._places is None:
            return slice(-(communicator.random("up").offset + communicator.step) % self.stride, None, self.stride)
        return ((self._places.of(0, d) + communicator.step) % self.stride == 0).nonzero().flatten()

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        moved = torch.add(vectors, self.momentum, alpha=self.beta)
        chosen = self._chosen(communicator, vectors.shape[1])
        handle = communicator.post_average(DenseMessage.of(moved[:, chosen].contiguous()))
        moved[:, chosen] = 0.0
        self.momentum, out = moved, torch.zeros_like(vectors)
        out[:, chosen] = yield handle
        return out


class Signed(Transform):
    """v -> sign(inner(v)), the sign of 0 being 0.

    Parameters
    ----------
    inner : Transform
        Whose results are taken the sign of.
    """

    def __init__(self, inner: Transform) -> None:
        self.inner = inner

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        return (yield from stages_of(self.inner, vectors, communicator.child("inner"))).sign()

    def agrees(self, step: int | None) -> bool:
        return agrees(self.inner, step)
