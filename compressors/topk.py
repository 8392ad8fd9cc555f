"""The k coordinates of largest magnitude, exactly, the lower index winning among equals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Self

import numpy as np
import torch
from torch import Tensor

from commeff.compressors.compiled import compiled
from commeff.compressors.message import DenseMessage, joined
from commeff.compressors.packing import (
    code_bits,
    decode_increasing,
    encode_increasing,
    increasing_bytes,
    pack,
    packed_bytes,
    unpack,
    words,
)
from commeff.compressors.random import WorkerRandom
from commeff.compressors.scratch import tiles
from commeff.compressors.sparse import Sparse, Sparsifier, left_aligned

LONG = 1 << 12  # columns from which one row at a time, in NumPy, is faster on a CPU
TILE = 1 << 16


@dataclass(frozen=True, eq=False)
class Selected(Sparse):
    """k coordinates of the sender's choice.

    Wire format: k increasing indices of ceil(log2 d) bits (`compressors.packing`), then the message of the k values.
    """

    def indices(self) -> Tensor:
        return unpack(self.parts[0], code_bits(self.d), self.forms[0].d).long()


@dataclass(frozen=True, eq=False)
class SelectedInOrder(Sparse):
    """k coordinates of the sender's choice, their indices in the code of Elias and Fano.

    Wire format: k increasing indices (`compressors.packing`), then the message of the k values.
    """

    def indices(self) -> Tensor:
        return decode_increasing(self.parts[0], self.parts[1], self.d, self.forms[0].d)


@dataclass(frozen=True)
class TopK(Sparsifier):
    """The k coordinates of largest magnitude, the others 0; the lower index wins among equals. NaN is largest.

        C(v)_i = v_i where |v_i| is one of the k largest, else 0

    |C(v) - v|^2 = sum of the d - k smallest squares; delta = k/d. Sends k values in the dtype of v and k packed
    indices of ceil(log2 d) bits. With ``coded=True`` these are indices in the code of Elias and Fano where that is
    shorter: k (log2(d/k) + 2) bits at most, whatever the values. Of d = 10^6 coordinates an index takes

    =====  ======  =====  =================================
    k/d    packed  coded  least possible, log2 (d over k)/k
    =====  ======  =====  =================================
    10 %   20      5.25   4.69
    1 %    20      8.56   8.08
    0.1 %  20      11.96  11.40
    =====  ======  =====  =================================

    bits, so that messages of float32 values are a fifth to a third shorter.

    Stich et al. 2018, arXiv:1809.07599; Elias 1974, Fano 1971 (the code).

    When: the strongest saving in payload, with a memory; on many workers messages that cannot be summed eat it up on
    the wire.

    Parameters
    ----------
    coded
        Whether indices are coded as shortly as a set of them allows, or packed (the default).

    Examples
    --------
    >>> import torch
    >>> message = TopK(k=2).compress(torch.tensor([[1.0, -3.0, 2.0, 2.0]]), WorkerRandom(0, [0]))
    >>> message.decode().tolist(), message.wire_bytes.tolist()
    ([[0.0, -3.0, 2.0, 0.0]], [9])
    """

    coded: bool = False

    @property
    def exact(self) -> bool:
        return True

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Selected | SelectedInOrder:
        d, k = vectors.shape[1], self.count(vectors.shape[1])
        indices = largest_magnitudes(vectors, k)
        parts, forms = joined([DenseMessage((vectors.gather(1, indices),), k, vectors.dtype)])
        if self.coded and increasing_bytes(d, k) < packed_bytes(k, code_bits(d)):
            return SelectedInOrder((*encode_increasing(indices, d), *parts), d, vectors.dtype, forms)
        return Selected((pack(indices, code_bits(d)), *parts), d, vectors.dtype, forms)

    def omega(self, d: int) -> float | None:
        return 0.0 if self.count(d) == d else None

    def delta(self, d: int) -> float:
        return self.count(d) / d if d else 1.0

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(ratio=0.25), cls(k=3), cls(k=10, coded=True)]


def largest_magnitudes(vectors: Tensor, k: int) -> Tensor:
    """(w, k) int64, increasing: the k coordinates of largest magnitude, NaN being larger than all numbers.

    Magnitudes are compared as the integers that have the same bits, in which order and equality are those of the
    numbers.

    >>> largest_magnitudes(torch.tensor([[2.0, -3.0, 2.0, 1.0]]), 2)
    tensor([[0, 1]])
    """
    if vectors.is_meta:
        return vectors.new_empty(len(vectors), k, dtype=torch.int64)
    if vectors.device.type == "cpu" and vectors.shape[1] >= LONG and len(vectors):
        return torch.stack([torch.from_numpy(largest_of_row(row.numpy(), k)) for row in words(vectors)])
    places = [*tiles(vectors)] if vectors.is_cpu and vectors.numel() else [(slice(None), slice(None))]
    return torch.cat([largest_by_threshold(vectors[rows], k) for rows, _ in places])


def largest_by_threshold(vectors: Tensor, k: int) -> Tensor:
    """`largest_magnitudes` of all rows at once, on any device.

    Of long rows only those entries are sorted that reach the bound of a sample, if every row has k of them, and none
    many more, as a row of zeros has.
    """
    d = vectors.shape[1]
    if k == 0:
        return vectors.new_empty(len(vectors), 0, dtype=torch.int64)
    if len(vectors) and d >= max(LONG, 4 * k):
        stride, rank = _sampling(d, k)
        sample = _magnitudes(vectors[:, ::stride])
        reached = reaching(vectors, _kth(sample, rank))
        least, most = torch.stack(reached.sum(1).aminmax()).tolist()
        if k <= least and most <= d // 4:
            _, row, column, place = left_aligned(reached)
            few = sample.new_full((len(vectors), most), -1)
            columns = torch.zeros_like(few, dtype=torch.int64)
            few[row, place], columns[row, place] = _magnitudes(vectors[row, column]), column
            return columns.gather(1, _largest(few, k))
    return _largest(_magnitudes(vectors), k)


@compiled
def reaching(vectors: Tensor, bound: Tensor) -> Tensor:
    """(w, d): whose magnitudes are at least the bound (w, 1) of their row, as integers."""
    return _magnitudes(vectors) >= bound


def _magnitudes(vectors: Tensor) -> Tensor:
    bits = words(vectors)
    return bits & torch.iinfo(bits.dtype).max


def _kth(magnitudes: Tensor, k: int) -> Tensor:
    """(w, 1): the k-th largest of each row. NumPy partitions rows on a CPU ten times as fast as torch."""
    if magnitudes.is_cpu:
        place = magnitudes.shape[1] - k
        return torch.from_numpy(np.partition(magnitudes.numpy(), place, axis=1)[:, place : place + 1])
    return magnitudes.topk(k, dim=1, sorted=False).values.amin(1, keepdim=True)


def _largest(magnitudes: Tensor, k: int) -> Tensor:
    """(w, k), increasing: where the magnitudes are above the k-th, and the first of those that equal it."""
    threshold, (rows, d) = _kth(magnitudes, k), magnitudes.shape
    places = _set_in(magnitudes >= threshold)
    if len(places) > rows * k:
        row, equal = places // d, (magnitudes == threshold).flatten()[places]
        equals = torch.bincount(row[equal], minlength=rows)
        first, spare = equals.cumsum(0) - equals, k - torch.bincount(row[~equal], minlength=rows)
        places = places[~equal | (equal.cumsum(0) <= (first + spare)[row])]
    return places.view(rows, k) - d * torch.arange(rows, device=places.device)[:, None]


def _set_in(mask: Tensor) -> Tensor:
    """The numbers, row by row, of what is set: by NumPy on a CPU, which is six times as fast."""
    return torch.from_numpy(np.flatnonzero(mask.numpy())) if mask.is_cpu else mask.flatten().nonzero()[:, 0]


def largest_of_row(words: np.ndarray, k: int) -> np.ndarray:
    """(k,) int64, increasing: the k largest magnitudes of a row of floating-point bits, the lower index among equals.

    A sample of every ``stride``-th entry gives a bound that a few more than k magnitudes should reach; only those are
    collected. If the sample misleads and fewer reach it, all entries are. Either way the result is exact.
    """
    if k == 0:
        return np.empty(0, np.int64)
    candidates, magnitudes = _reaching(words, _bound(words, k))
    if len(candidates) < k:
        candidates, magnitudes = _reaching(words, words.dtype.type(0))
    threshold = np.partition(magnitudes, len(magnitudes) - k)[len(magnitudes) - k]
    keep = magnitudes > threshold
    keep[np.flatnonzero(magnitudes == threshold)[: k - np.count_nonzero(keep)]] = True
    return candidates[keep]


def _sampling(d: int, k: int) -> tuple[int, int]:
    """The distance of a sample's entries, and the rank in it that k of d entries most likely reach, and few more: four
    standard deviations below theirs.
    """
    stride = int(d**0.3) | 1
    expected = k * -(-d // stride) / d
    return stride, int(expected + 4 * sqrt(expected) + 4)


def _bound(words: np.ndarray, k: int) -> np.integer:
    """A magnitude that most likely k entries reach, and few more."""
    stride, rank = _sampling(len(words), k)
    sample = words[::stride] & np.iinfo(words.dtype).max
    return np.partition(sample, -rank)[-rank] if rank < len(sample) else words.dtype.type(0)


def _reaching(words: np.ndarray, bound: np.integer) -> tuple[np.ndarray, np.ndarray]:
    """Positions, increasing, and magnitudes of the entries whose magnitude is at least ``bound``."""
    mask = words.dtype.type(np.iinfo(words.dtype).max)
    magnitudes, reached = np.empty(min(TILE, len(words)), words.dtype), np.empty(min(TILE, len(words)), np.bool_)
    positions = []
    for start in range(0, len(words), TILE):
        tile = words[start : start + TILE]
        np.bitwise_and(tile, mask, out=magnitudes[: len(tile)])
        np.greater_equal(magnitudes[: len(tile)], bound, out=reached[: len(tile)])
        positions.append(np.flatnonzero(reached[: len(tile)]) + start)
    collected = np.concatenate(positions)
    return collected, words[collected] & mask
