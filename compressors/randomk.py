"""k coordinates chosen at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Together, contraction
from commeff.compressors.hashing import choose
from commeff.compressors.layout import Layout
from commeff.compressors.message import DenseMessage, joined
from commeff.compressors.random import WorkerRandom
from commeff.compressors.sparse import Sparse, Sparsifier


@dataclass(frozen=True, eq=False)
class Drawn(Sparse):
    """k coordinates that a 64-bit key determines (`compressors.hashing.choose`).

    Wire format: the key (int64), unless it is ``common`` to all workers and known; then the message of the k values.

    Attributes
    ----------
    common : (1,) int64, the key of all workers, or None if each sends its own.
    """

    common: Tensor | None

    def indices(self) -> Tensor:
        keys = self.parts[0][:, 0] if self.common is None else self.common
        return choose(keys, self.d, self.forms[0].d).expand(self.rows, -1)


@dataclass(frozen=True)
class RandomK(Sparsifier):
    """k coordinates, uniformly without replacement; scaled by d/k (unbiased) unless ``scaled=False``.

        C(v)_i = (d/k) v_i with probability k/d, else 0

    Scaled: E|C(v) - v|^2 = (d/k - 1)|v|^2 = omega |v|^2. Not scaled: E|C(v) - v|^2 = (1 - k/d)|v|^2, delta = k/d.
    Sends k values and the key of the choice, 8 bytes. With ``shared=True`` all workers keep the same coordinates,
    which changes every step: no key is sent and messages can be added on the way (all-reduce).

    Stich et al. 2018, arXiv:1809.07599; Wangni et al. 2017, arXiv:1710.09854.

    When: sparse messages that sum in flight (``shared=True``), or a cheap choice without sorting.

    Parameters
    ----------
    scaled
        Whether values are multiplied by d/k, which makes C unbiased (the default), or sent as they are, which makes it
        contractive, as error feedback wants it.
    shared
        Whether all workers keep the same coordinates. Error is then not averaged out over workers, as it is where each
        draws alone (the default).

    Examples
    --------
    >>> import torch
    >>> message = RandomK(k=2).compress(torch.ones(1, 6), WorkerRandom(0, [0]))
    >>> message.decode().sort().values.tolist(), message.wire_bytes.tolist()
    ([[0.0, 0.0, 0.0, 0.0, 3.0, 3.0]], [16])
    """

    scaled: bool = True
    shared: bool = False

    @property
    def exact(self) -> bool:
        return not self.scaled

    @property
    def exact_on_pieces(self) -> bool:
        return self.shared  # of workers' own choices, different numbers of coordinates would lie in a piece

    def bind(self, layout: Layout) -> Compressor:
        self.count(layout.size)
        return self if layout.places is None or not self.shared else RandomKTogether(self, layout)

    @property
    def summable(self) -> bool:
        return self.shared

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Drawn:
        d, k = vectors.shape[1], self.count(vectors.shape[1])
        keys = random.choice_keys(self.shared)
        values = vectors.gather(1, choose(keys, d, k).expand(len(vectors), -1))
        parts, forms = joined([DenseMessage((values.mul_(d / k) if self.scaled and k else values,), k, vectors.dtype)])
        key_parts = () if self.shared else (keys[:, None],)
        return Drawn((*key_parts, *parts), d, vectors.dtype, forms, keys if self.shared else None)

    def omega(self, d: int) -> float | None:
        k = self.count(d)
        return d / k - 1 if self.scaled and k else None if k < d else 0.0

    def delta(self, d: int) -> float | None:
        return contraction(self.omega(d)) if self.scaled else self.count(d) / d if d else 1.0

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(ratio=0.25), cls(k=3, scaled=False), cls(ratio=0.5, shared=True)]


@dataclass(frozen=True, eq=False)
class Common(Sparse):
    """The coordinates of a common choice that lie in a piece. Wire format: the message of the values there.

    Attributes
    ----------
    columns : (1, k) int64, which every receiver chooses too.
    """

    columns: Tensor

    def indices(self) -> Tensor:
        return self.columns.expand(self.rows, -1)


@dataclass(frozen=True)
class RandomKTogether(Together[RandomK]):
    """The same on pieces of a row, with a common choice. What is sent of a piece changes with it."""

    data_dependent: ClassVar[bool] = True

    @property
    def summable(self) -> bool:
        return True

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Sparse:
        if self.layout.places is None:
            return self.compressor.compress(vectors, random)
        d, k = self.layout.size, self.compressor.count(self.layout.size)
        if vectors.is_meta:
            columns = torch.empty(min(k, vectors.shape[1]), dtype=torch.int64, device="meta")
        else:
            origin = self.layout.whole.origin
            chosen = choose(random.at(origin).choice_keys(shared=True), d, k)[0] + origin
            present, columns = self.layout.places.find(chosen)
            columns = columns[present]
        values = vectors[:, columns]
        scaled = values.mul_(d / k) if self.compressor.scaled and k else values
        parts, forms = joined([DenseMessage((scaled,), len(columns), vectors.dtype)])
        return Common(parts, vectors.shape[1], vectors.dtype, forms, columns[None])

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(RandomK(ratio=0.25, shared=True), Layout.flat(24))]
