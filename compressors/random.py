"""Counter-based randomness: every number is a hash of (seed, path, step, worker, coordinate).

Nothing is drawn in sequence, so the numbers do not depend on which process hosts a worker, on the order in which rows
or blocks are visited, or on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from math import pi

import torch
from torch import Tensor

from commeff.compressors.compiled import compiled
from commeff.compressors.hashing import GOLDEN, choose, mix, mixed, signed, uniform
from commeff.compressors.places import Places
from commeff.compressors.scratch import tiles

_SHARED, _NORMAL, _CHOICE, _SPLIT = (mix(GOLDEN * number) for number in range(1, 5))


class WorkerRandom:
    """One stream of random numbers per row, addressed by coordinate.

    Row i, column c holds a 64-bit hash of (seed, path, step, ``workers[i]``, offset + c); with ``shared=True`` the
    worker is left out and all rows hold the same numbers. The hash is SplitMix64: a Weyl sequence that starts at the
    row's key, then two multiply-xorshift rounds. One output serves two coordinates.

    Parameters
    ----------
    seed : the seed of the run.
    workers : the id of each row's worker: any distinct int64, in a sequence or a tensor.
    step : model updates since the start.
    path : names of the piece within its strategy, and the purpose.
    offset : global coordinate of column 0.
    device : where the numbers are made; the bits are the same everywhere.
    places : the coordinates of the columns, of which ``offset`` is then the first column; unless given, the coordinates
        follow one another.

    Examples
    --------
    >>> both, second = WorkerRandom(0, [4, 7]), WorkerRandom(0, [7])
    >>> bool((both.uniform(10)[1] == second.uniform(10)[0]).all())          # who hosts a worker does not matter
    True
    >>> bool((both.uniform(10)[:, 3:] == both.shifted(3).uniform(7)).all())         # nor where a block starts
    True
    >>> from commeff.compressors.places import Stretches
    >>> piece = WorkerRandom(0, [4, 7], places=Places([Stretches(1, 2, stride=4, times=2)]))
    >>> bool((both.uniform(10)[:, [1, 2, 5, 6]] == piece.uniform(4)).all())         # nor who holds which of them
    True
    """

    def __init__(
        self,
        seed: int,
        workers: Sequence[int] | Tensor,
        step: int = 0,
        path: tuple[str | int, ...] = (),
        offset: int = 0,
        device: torch.device | str = "cpu",
        places: Places | None = None,
    ) -> None:
        self._workers, self._origin = workers, (seed, path, step)
        self.offset, self.device, self._places = offset, torch.device(device), places

    def _derived(
        self, workers: Sequence[int] | Tensor, common: int, offset: int, places: Places | None = None
    ) -> WorkerRandom:
        other = WorkerRandom.__new__(WorkerRandom)
        other._workers, other._common, other.offset, other.device = workers, common, offset, self.device
        other._places = places
        return other

    @cached_property
    def _common(self) -> int:
        """The part that all rows' keys share; most streams are handed out and never drawn from, so it waits."""
        seed, path, step = self._origin
        return mix(_hashed(seed, path) + GOLDEN * step)

    @property
    def rows(self) -> int:
        """Number of rows, w."""
        return len(self._workers)

    @property
    def _is_meta(self) -> bool:
        """Whether there are no numbers; keys need not be made to know."""
        return self._workers.is_meta if isinstance(self._workers, Tensor) else self.device.type == "meta"

    @cached_property
    def keys(self) -> Tensor:
        """(w,) int64: one key per row."""
        workers = torch.as_tensor(self._workers, dtype=torch.int64, device=self.device)
        return mixed(workers * signed(GOLDEN) + signed(self._common))

    @cached_property
    def shared_keys(self) -> Tensor:
        """(1,) int64: the key that all workers have in common."""
        return torch.tensor([signed(mix(self._common ^ _SHARED))], device=self.device)

    def fork(self, index: int) -> WorkerRandom:
        """Independent streams for the same rows and coordinates, one for every ``index`` >= 0."""
        return self._derived(self._workers, mix(self._common ^ index), self.offset, self._places)

    def shifted(self, start: int) -> WorkerRandom:
        """The same streams with column 0 at coordinate ``start``: a draw is the whole draw from column ``start`` on."""
        moved = self._derived(self._workers, self._common, self.offset + start, self._places)
        moved.__dict__.update(keys=self.keys)
        return moved

    def at(self, place: int) -> WorkerRandom:
        """The same streams over coordinates that follow one another, column 0 at ``place``, wherever columns lay."""
        return self._derived(self._workers, self._common, place)

    @property
    def first(self) -> int:
        """The coordinate of column 0."""
        return self.offset if self._places is None else self._places.first(self.offset)

    def select(self, rows: slice) -> WorkerRandom:
        """The streams of some rows."""
        chosen = self._derived(self._workers[rows], self._common, self.offset, self._places)
        chosen.__dict__.update(keys=self.keys[rows])
        return chosen

    def split(self, blocks: int) -> WorkerRandom:
        """w * blocks independent streams, row i * blocks + b for block b of row i; shared draws are shared by all."""
        first = (self.keys ^ signed(_SPLIT)) + signed(GOLDEN * self.first)
        streams = keys_from(torch.arange(blocks, device=self.device), first[:, None])
        return self._derived(streams.flatten(), mix(self._common + GOLDEN * self.first ^ _SPLIT), 0)

    def source(self, columns: int) -> Tensor:
        """What `hashing.halves` draws the bits of so many columns from: (w, 1) int64 keys of pairs, if the columns are
        whole pairs of coordinates that follow one another; else their (w, columns) int32 bits themselves.
        """
        first = self.offset
        if self._places is not None:
            first = self._places.together(first, first + columns)
        if first < 0 or first % 2:
            return self.bits(columns)
        return self.keys[:, None] + signed(GOLDEN * (first // 2))

    def bits(self, columns: int, shared: bool = False) -> Tensor:
        """(w, columns) int32, all 32 bits fair."""
        out = torch.empty(1 if shared else self.rows, columns, dtype=torch.int32, device=self.device)
        for rows, piece in tiles(out):
            keys, first, last = self._keys(shared)[rows], self.offset + piece.start, self.offset + piece.stop
            place = first if self._places is None else self._places.together(first, last)
            if self._places is not None and place < 0:
                out[rows, piece] = _scattered(keys, self._places.of(first, last, self.device))
                continue
            words = torch.arange(place // 2, (place + last - first + 1) // 2, device=self.device) * signed(GOLDEN)
            out[rows, piece] = mixed(keys + words).view(torch.int32)[:, place % 2 :][:, : last - first]
        return out.expand(self.rows, -1)

    def _keys(self, shared: bool) -> Tensor:
        return (self.shared_keys if shared else self.keys)[:, None]

    def uniform(self, columns: int, shared: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
        """(w, columns) on [0, 1): multiples of 2^-24; in float64 the same numbers with 8 more binary digits."""
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be float32 or float64, got {dtype}: draw one of these and convert")
        bits = self.bits(columns, shared)
        return uniform(bits[:1] if shared else bits, dtype).expand(self.rows, -1)

    def normal(self, columns: int, shared: bool = False, dtype: torch.dtype = torch.float32) -> Tensor:
        """(w, columns) standard normal (Box, Muller 1958), from two uniform numbers per coordinate."""
        if self._is_meta:
            return torch.empty(1 if shared else self.rows, columns, dtype=dtype, device="meta")
        places = None if self._places is None else self._places.doubled
        source = self._derived(self._workers, self._common ^ _NORMAL, 2 * self.offset, places)
        radius, angle = source.uniform(2 * columns, shared, dtype).unflatten(1, (columns, 2)).unbind(2)
        return radius.neg().log1p_().mul_(-2).sqrt_().mul_((2 * pi * angle).cos_())

    def choice_keys(self, shared: bool = False) -> Tensor:
        """(w,) int64, or (1,) when shared: the keys from which `choose` makes this stream's choice."""
        return mixed((self.shared_keys if shared else self.keys) + signed(GOLDEN * self.first ^ _CHOICE))

    def choice(self, d: int, k: int, shared: bool = False) -> Tensor:
        """(w, k) int64: k distinct indices in [0, d) per row, uniform without replacement, at a cost of O(k)."""
        return choose(self.choice_keys(shared), d, k).expand(self.rows, -1)


@compiled
def keys_from(numbers: Tensor, first: Tensor) -> Tensor:
    """(r, c): c keys for each of the first ones (r, 1), by their numbers."""
    return mixed(first + numbers * signed(GOLDEN))


def _scattered(keys: Tensor, places: Tensor) -> Tensor:
    """(w, c) int32: the bits at coordinates that do not follow one another, one output for each."""
    halves = mixed(keys + (places >> 1) * signed(GOLDEN)).view(torch.int32).unflatten(1, (len(places), 2))
    return torch.where((places & 1).bool(), halves[..., 1], halves[..., 0])


@lru_cache(maxsize=4096)
def _hashed(seed: int, path: tuple[str | int, ...]) -> int:
    return int.from_bytes(blake2b(repr((seed, path)).encode(), digest_size=8).digest(), "little")
