"""Which windows of a text each worker draws, as a pure function of (seed, step, worker).

With order=random they lie at random places, with replacement. With order=epoch the text is cut into consecutive
windows, and each is drawn once an epoch. No list of them is made: the order of N windows is a permutation of range(N)
that is computed from a table of about 12 sqrt(N) random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from commeff import require
from commeff.experiments.tasks.language.text import windows
from commeff.experiments.tasks.sampler import WINDOW, Stream, philox

ROUNDS = 6  # of a permutation; with so many even those of five numbers are about equally frequent

Numbers = NDArray[np.int64]


class Draws:
    """The windows that workers draw.

    Parameters
    ----------
    text : (tokens,), the training text.
    pieces : [start, stop) of it of each worker: all the same, or all others.
    seed, context, batch, order : as `Language` has them.

    Attributes
    ----------
    size : windows in an epoch of all workers together.
    """

    def __init__(
        self, text: Tensor, pieces: Sequence[tuple[int, int]], seed: int, context: int, batch: int, order: str
    ) -> None:
        draw = require.choose({"random": self._random, "epoch": self._in_turn}, order=order)
        self._text, self._pieces, self._seed, self._context, self._shape = text, pieces, seed, context, (WINDOW, batch)
        self._epochs = [Epochs(piece, context, seed, number) for number, piece in enumerate(dict.fromkeys(pieces))]
        self._sharers = len(pieces) // len(self._epochs)
        self.size = sum(one.size for one in self._epochs) if order == "epoch" else (len(text) - 1) // context
        self._stream = Stream(draw, len(pieces), WINDOW)

    def at(self, step: int, workers: Sequence[int]) -> Tensor:
        """The windows (w, b, context + 1) of `workers` at `step`."""
        return windows(self._text, self._stream.at(step, workers), self._context)

    def _random(self, worker: int, window: int) -> Tensor:
        """(WINDOW, b): where the windows of so many steps begin, each inside the worker's piece."""
        start, stop = self._pieces[worker]
        uniform = np.random.Generator(philox(self._seed, worker, 0, stream=window + 1))
        return torch.from_numpy(uniform.integers(start, stop - self._context, self._shape))

    def _in_turn(self, worker: int, window: int) -> Tensor:
        """(WINDOW, b): the same, where workers who share a text take the windows of its epochs in turn."""
        steps, batch = self._shape
        own = window * steps * batch + np.arange(steps * batch).reshape(self._shape)
        piece, turn = divmod(worker, self._sharers)
        return torch.from_numpy(self._epochs[piece].starts(own * self._sharers + turn))


class Epochs:
    """Epoch after epoch over a piece of a text, each with other borders of windows, and in another random order.

    A piece of L tokens has max(1, floor((L - context) / context)) windows an epoch. The first begins at a random one of
    all the tokens that leave room for them, so up to 2 context - 2 targets at the two ends are left out of an epoch.

    Parameters
    ----------
    piece : [start, stop) of it, at least context + 1 tokens.
    seed, number : of the epochs, and of the piece: what they are drawn from.

    >>> epochs = Epochs((0, 50), context=8, seed=0, number=0)
    >>> starts = epochs.starts(np.arange(2 * epochs.size)).reshape(2, -1)
    >>> np.sort(starts) - starts.min(1, keepdims=True)
    array([[ 0,  8, 16, 24, 32],
           [ 0,  8, 16, 24, 32]])
    """

    def __init__(self, piece: tuple[int, int], context: int, seed: int, number: int) -> None:
        self._start, stop = piece
        self._context, self._key = context, (seed, number)
        self.size = max(1, (stop - self._start - context) // context)
        self._room = stop - self._start - self.size * context
        self._epoch = lru_cache(2)(self._drawn)

    def starts(self, numbers: Numbers) -> Numbers:
        """Where the windows begin that are drawn as so many-th, counted from 0 over all epochs."""
        epochs, places = np.divmod(numbers, self.size)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            first, turns = self._epoch(epoch)
            places[here] = first + self._context * permuted(places[here], self.size, *turns)
        return places

    def _drawn(self, epoch: int) -> tuple[int, tuple[Numbers, Numbers]]:
        """The start of the first window of an epoch, and what `permuted` orders the windows by."""
        uniform = np.random.Generator(philox(*self._key, 0, stream=epoch + 1))
        rows, columns = grid(self.size)
        turns = uniform.integers(columns, size=(ROUNDS, rows)), uniform.integers(rows, size=(ROUNDS, columns))
        return self._start + int(uniform.integers(self._room)), turns


def grid(size: int) -> tuple[int, int]:
    """Rows and columns of the smallest grid, nearly a square, in which range(size) fits row by row.

    >>> grid(10), grid(1)
    ((4, 3), (1, 1))
    """
    rows = isqrt(size - 1) + 1
    return rows, -(-size // rows)


def permuted(numbers: Numbers, size: int, across: Numbers, down: Numbers) -> Numbers:
    """The images of numbers under a permutation of range(size).

    The numbers lie in the grid. A round turns each row, then each column, by a random number of places (a Feistel
    network). What ends in a cell beyond `size` passes through all rounds again, until it does not (cycle walking).

    Parameters
    ----------
    across, down : (rounds, rows) and (rounds, columns), by how much rows and columns are turned.

    >>> permuted(np.arange(5), 5, np.array([[1, 0, 0]]), np.array([[2, 0]]))
    array([1, 4, 0, 3, 2])
    """
    (rows, columns), found = grid(size), numbers.copy()
    moving = np.ones(found.shape, bool)
    while moving.any():
        row, column = np.divmod(found[moving], columns)
        for right, below in zip(across, down, strict=True):
            column = (column + right[row]) % columns
            row = (row + below[column]) % rows
        found[moving] = row * columns + column
        moving = found >= size
    return found
