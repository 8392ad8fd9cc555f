"""The fast path of `compressors.topk`: one row at a time, in NumPy, reading the row once."""

from __future__ import annotations

import numpy as np

TILE = 1 << 16


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


def _bound(words: np.ndarray, k: int) -> np.integer:
    """A magnitude that most likely k entries reach, and few more: four standard deviations of a sample below."""
    stride = int(len(words) ** 0.3) | 1
    sample = words[::stride] & np.iinfo(words.dtype).max
    expected = k * len(sample) / len(words)
    rank = int(expected + 4 * np.sqrt(expected) + 4)
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
