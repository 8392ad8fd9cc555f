"""The laws can fail: a compressor that breaks one of them is caught by that law, with a sentence that says so."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from commeff.compressors import Compressor, Dense, DenseMessage, Natural, RandomK, TopK, laws


@dataclass(frozen=True)
class Sound(Compressor):
    """Dense, as the healthy part of the broken ones."""

    scope = "whole"
    summable = True

    def compress(self, vectors, random):
        return Dense().compress(vectors, random)

    def omega(self, d):
        return 0.0

    def delta(self, d):
        return 1.0


class Shrinks(Sound):
    """Biased although omega is given."""

    def compress(self, vectors, random):
        return Dense().compress(0.9 * vectors, random)

    def omega(self, d):
        return 1.0

    def delta(self, d):
        return 0.5


class Optimistic(Sound):
    """Promises less error than it makes."""

    def compress(self, vectors, random):
        return RandomK(k=10).compress(vectors, random)

    def omega(self, d):
        return 2.9

    def delta(self, d):
        return None


class Impossible(Sound):
    """delta = 0 promises nothing."""

    def delta(self, d):
        return 0.0


class Crowd(Sound):
    """Sends the deviation from the mean of the rows that happen to be hosted together."""

    def compress(self, vectors, random):
        return Dense().compress(vectors - vectors.mean(0), random)


class Alike(Sound):
    """All workers draw the same mask, unsummably."""

    summable = False

    def compress(self, vectors, random):
        return Dense().compress(vectors * 2 * (random.uniform(vectors.shape[1], shared=True) < 0.5), random)


class Frozen(Sound):
    """The mask never changes."""

    def compress(self, vectors, random):
        mask = [[worker * 7 % 40 == column for column in range(vectors.shape[1])] for worker in range(len(vectors))]
        return Dense().compress(torch.where(torch.tensor(mask), 0.0, vectors), random)


@dataclass(frozen=True, eq=False)
class Smuggled(DenseMessage):
    """Decodes from something that never travelled."""

    secret: torch.Tensor

    def decode(self):
        return self.parts[0] * self.secret


class Smuggler(Sound):
    """The scale stays at home."""

    def compress(self, vectors, random):
        scale = vectors.abs().max() if vectors.numel() else torch.ones(())
        return Smuggled((vectors / scale,), vectors.shape[1], vectors.dtype, scale)


@dataclass(frozen=True, eq=False)
class Forgetful(DenseMessage):
    """Adds only to the first receiver."""

    def add_to(self, out, weights):
        out[:1].addmm_(weights[:1], self.decode())


class Forgets(Sound):
    """Adds only to the first receiver."""

    def compress(self, vectors, random):
        return Forgetful(Dense().compress(vectors, random).parts, vectors.shape[1], vectors.dtype)


@dataclass(frozen=True, eq=False)
class Adding(DenseMessage):
    """Adds what it should take away."""

    def add_rows(self, out, sign=1):
        out += self.decode()


class AddsAlways(Sound):
    """Adds what it should take away."""

    def compress(self, vectors, random):
        return Adding(Dense().compress(vectors, random).parts, vectors.shape[1], vectors.dtype)


class Overwrites(Sound):
    """Works in place on its input."""

    def compress(self, vectors, random):
        return Dense().compress(vectors.mul_(1.5).div_(1.5).round_(decimals=3), random)


class Rowless(Sound):
    """Cannot serve a process that hosts nobody."""

    def compress(self, vectors, random):
        message = Dense().compress(vectors, random)
        return message if len(vectors) else replace(message, parts=(torch.zeros(0, 1),))


class Widens(Sound):
    """Decodes everything in float64."""

    def compress(self, vectors, random):
        return Dense().compress(vectors.double(), random)


class Addable(Sound):
    """Claims that packed codes can be added."""

    def compress(self, vectors, random):
        return Natural().compress(vectors, random)


@dataclass(frozen=True, eq=False)
class Rooted(DenseMessage):
    """Sends squares of magnitudes, which do not add up."""

    def decode(self):
        return self.parts[0].abs().sqrt().copysign(self.parts[0])


class Roots(Sound):
    """Sends squares of magnitudes, which do not add up."""

    def compress(self, vectors, random):
        return Rooted((vectors * vectors.abs(),), vectors.shape[1], vectors.dtype)


class Divisible(Sound):
    """Claims that blocks have the same largest coordinates as the whole."""

    scope = "coordinate"

    def compress(self, vectors, random):
        return TopK(ratio=0.5).compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 0.5


class Presumes(Sound):
    """Takes the length of a piece for that of the row."""

    scope, exact_on_pieces = "whole", True

    def compress(self, vectors, random):
        return Dense().compress(vectors / vectors.norm(dim=1, keepdim=True), random)


class Counts(Sound):
    """Sends as many numbers as are not 0, which meta tensors cannot tell."""

    def compress(self, vectors, random):
        return Dense().compress(vectors.flatten()[vectors.flatten().nonzero()].view(vectors.shape), random)


class Narrows(Sound):
    """Narrows the numbers where there are any."""

    def compress(self, vectors, random):
        return Dense(None if vectors.is_meta else "float32").compress(vectors, random)


BROKEN = {
    Impossible: (laws.check_constants, "delta is 0"),
    Optimistic: (laws.check_error, "above omega"),
    Shrinks: (laws.check_unbiased, "biased"),
    Crowd: (laws.check_rows_independent, "depends on the rows beside"),
    Alike: (laws.check_own_randomness, "all workers draw the same"),
    Frozen: (laws.check_own_randomness, "the same ones every step"),
    Smuggler: (laws.check_wire, "something else than the sender"),
    Forgets: (laws.check_add_to, "is not weights"),
    AddsAlways: (laws.check_add_to, "does not add -1"),
    Overwrites: (laws.check_pure, "writes into its input"),
    Rowless: (laws.check_shapes, "other shapes|no rows"),
    Widens: (laws.check_dtypes, "are decoded as"),
    Addable: (laws.check_summable, "but False of its messages"),
    Roots: (laws.check_summable, "not the message of the sum"),
    Divisible: (laws.check_scope, "compressed alone differ"),
    Presumes: (laws.check_pieces, "on a piece of a row it differs"),
    Counts: (laws.check_size_without_numbers, "does not work on meta tensors"),
    Narrows: (laws.check_size_without_numbers, "on meta tensors and .* on real ones"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_each_law_catches_its_breaker(kind):
    law, sentence = BROKEN[kind]
    with pytest.raises(AssertionError, match=sentence):
        law(kind())


def test_every_law_has_a_breaker():
    assert {law for law, _ in BROKEN.values()} == {*laws.LAWS, *laws.INFORMATION}


def test_a_sound_compressor_passes_all():
    laws.check(Sound())
