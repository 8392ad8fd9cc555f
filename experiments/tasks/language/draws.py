"""Which windows of one or several texts each worker draws, as a pure function of (seed, step, worker).

With order=random they lie at random places, with replacement. With order=epoch a text is cut into consecutive windows,
and each is drawn once an epoch of that text. No list of them is made: the order of N windows is a permutation of
range(N) that is computed from a table of about 12 sqrt(N) random numbers.
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
APART = 1 << 40  # blocks between the random numbers of two texts

Numbers = NDArray[np.int64]


class Draws:
    """The windows that workers draw.

    Parameters
    ----------
    texts : (tokens,) each, the training texts.
    weights : shares of the windows that are from each, up to a factor.
    pieces : [start, stop) of each text, of each worker: all the same, or all others.
    seed, context, batch, order : as `Language` has them.

    Attributes
    ----------
    size : windows in an epoch of all workers together, of all texts.
    """

    def __init__(
        self,
        texts: Sequence[Tensor],
        weights: Sequence[float],
        pieces: Sequence[Sequence[tuple[int, int]]],
        seed: int,
        context: int,
        batch: int,
        order: str,
    ) -> None:
        starts = require.choose({"random": self._random, "epoch": self._in_turn}, order=order)
        self._texts, self._weights, self._pieces, self._starts = texts, weights, pieces, starts
        self._seed, self._context, self._shape = seed, context, (WINDOW, batch)
        workers = len(pieces[0])
        self._phases = [
            np.random.Generator(philox(seed, worker, 0)).random(len(texts)).tolist() for worker in range(workers)
        ]
        self._epochs = [
            [Epochs(piece, context, seed, number, text) for number, piece in enumerate(dict.fromkeys(own))]
            for text, own in enumerate(pieces)
        ]
        covered = sum(epochs.size for own in self._epochs for epochs in own)
        self.size = covered if order == "epoch" else sum((len(text) - 1) // context for text in texts)
        self._stream = Stream(self._drawn, workers, WINDOW)

    def at(self, step: int, workers: Sequence[int]) -> Tensor:
        """The windows (w, b, context + 1) of `workers` at `step`."""
        which, starts = self._stream.at(step, workers).unbind(1)
        if len(self._texts) == 1:
            return windows(self._texts[0], starts, self._context)
        taken = torch.empty((*starts.shape, self._context + 1), dtype=torch.int64)
        for text, tokens in enumerate(self._texts):
            taken[which == text] = windows(tokens, starts[which == text], self._context)
        return taken

    def _drawn(self, worker: int, window: int) -> Tensor:
        """(WINDOW, 2, b): of the windows of so many steps, the number of the text and where in it each begins."""
        steps, batch = self._shape
        draws = window * steps * batch + np.arange(steps * batch)
        which, numbers = dealt(draws, self._weights, self._phases[worker])
        for text in range(len(self._texts)):
            mine = which == text
            numbers[mine] = self._starts(text, worker, window, numbers[mine])
        return torch.from_numpy(np.stack((which, numbers)).reshape(2, steps, batch)).transpose(0, 1)

    def _random(self, text: int, worker: int, window: int, numbers: Numbers) -> Numbers:
        """As many random places in the worker's piece."""
        start, stop = self._pieces[text][worker]
        uniform = np.random.Generator(philox(self._seed, worker, text * APART, stream=window + 1))
        return uniform.integers(start, stop - self._context, len(numbers))

    def _in_turn(self, text: int, worker: int, window: int, numbers: Numbers) -> Numbers:
        """Where the worker's draws of these numbers begin; workers who share a text draw from its epochs in turn."""
        epochs = self._epochs[text]
        sharers = len(self._phases) // len(epochs)
        piece, turn = divmod(worker, sharers)
        return epochs[piece].starts(numbers * sharers + turn)


def dealt(draws: Numbers, weights: Sequence[float], phases: Sequence[float]) -> tuple[Numbers, Numbers]:
    """Which text each draw of a worker is from, and how many of the draws before it are from the same text.

    A text with the share p of what the texts before it leave has floor(k p + phase) of its first k: no share is off by
    more than a draw for each text, however many are counted.

    Parameters
    ----------
    draws : numbers of draws, from 0.
    phases : a number in [0, 1) for each text; drawn at random, each worker has another order of texts.

    >>> dealt(np.arange(8), [3, 1], [0, 0])
    (array([1, 0, 0, 0, 1, 0, 0, 0]), array([0, 0, 1, 2, 1, 3, 4, 5]))
    """
    which, numbers = np.full_like(draws, len(weights) - 1), draws.copy()
    left = np.ones(draws.shape, bool)
    for text, weight in enumerate(weights[:-1]):
        share = weight / sum(weights[text:])
        before, after = (np.floor((numbers + k) * share + phases[text]).astype(np.int64) for k in (0, 1))
        mine = left & (after > before)
        left &= ~mine
        which[mine], numbers[mine] = text, before[mine]
        numbers[left] -= before[left]
    return which, numbers


class Epochs:
    """Epoch after epoch over a piece of a text, each with other borders of windows, and in another random order.

    A piece of L tokens has max(1, floor((L - context) / context)) windows an epoch. The first begins at a random one of
    all the tokens that leave room for them, so up to 2 context - 2 targets at the two ends are left out of an epoch.

    Parameters
    ----------
    piece : [start, stop) of it, at least context + 1 tokens.
    seed, number, text : what they are drawn from: the task's seed, and the numbers of the piece and of the text.

    >>> epochs = Epochs((0, 50), context=8, seed=0)
    >>> starts = epochs.starts(np.arange(2 * epochs.size)).reshape(2, -1)
    >>> np.sort(starts) - starts.min(1, keepdims=True)
    array([[ 0,  8, 16, 24, 32],
           [ 0,  8, 16, 24, 32]])
    """

    def __init__(self, piece: tuple[int, int], context: int, seed: int, number: int = 0, text: int = 0) -> None:
        self._start, stop = piece
        self._context, self._key = context, (seed, number, text * APART)
        self.size = max(1, (stop - self._start - context) // context)
        self._room = stop - self._start - self.size * context

    def starts(self, numbers: Numbers) -> Numbers:
        """Where the windows begin that are drawn as so many-th, counted from 0 over all epochs."""
        epochs, places = np.divmod(numbers, self.size)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            first, turns = _epoch(self._key, epoch, self.size, self._room)
            places[here] = self._start + first + self._context * permuted(places[here], self.size, *turns)
        return places


@lru_cache(64)  # workers who share a text draw from the same epochs, one after the other
def _epoch(key: tuple[int, int, int], epoch: int, size: int, room: int) -> tuple[int, tuple[Numbers, Numbers]]:
    """Where in the piece the first window of an epoch begins, and what `permuted` orders the windows by."""
    uniform = np.random.Generator(philox(*key, stream=epoch + 1))
    rows, columns = grid(size)
    turns = uniform.integers(columns, size=(ROUNDS, rows)), uniform.integers(rows, size=(ROUNDS, columns))
    return int(uniform.integers(room)), turns


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
