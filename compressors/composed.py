"""A compressor on the values that another one keeps; several messages, each of what the earlier ones missed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, cast

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, CompressorWrapper, Scope, check_least, coarsest, contraction
from commeff.compressors.contractive import contractive
from commeff.compressors.layout import Layout
from commeff.compressors.message import Compound, joined
from commeff.compressors.narrow import Natural
from commeff.compressors.quantised import QSGD
from commeff.compressors.random import WorkerRandom
from commeff.compressors.randomk import RandomK
from commeff.compressors.sign import ScaledSign
from commeff.compressors.sparse import Sparse, Sparsifier, scatter_to
from commeff.compressors.topk import TopK


@dataclass(frozen=True)
class Composed(Compressor):
    """``inner`` chooses coordinates, ``outer`` compresses the values at these.

    For unbiased parts omega = outer + inner + outer * inner, with outer's omega for k coordinates. If ``inner`` sends
    the values as they are, delta = outer's delta (for k coordinates) times inner's. Sends inner's indices or key and
    outer's message of k values.

    Basu et al. 2019 (Qsparse), arXiv:1906.02367.

    When: top-k or random-k whose values are still too long.

    Parameters
    ----------
    outer
        What compresses the k values that are kept: any compressor.
    inner
        What chooses the coordinates: TopK, RandomK or another `Sparsifier`.

    Examples
    --------
    >>> import torch
    >>> message = Composed(QSGD(levels=7), TopK(k=2)).compress(torch.eye(3, 16), WorkerRandom(0, range(3)))
    >>> message.wire_bytes.tolist()         # two indices of 4 bits, one scale, two codes of 4 bits
    [6, 6, 6]
    """

    outer: Compressor
    inner: Sparsifier

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Sparsifier):
            raise ValueError(
                f"Composed: inner must be a Sparsifier, got {self.inner}: outer compresses the values that it keeps; "
                "give TopK, RandomK or another Sparsifier"
            )

    @property
    def scope(self) -> Scope:
        return coarsest(self.outer.scope, self.inner.scope)

    @property
    def summable(self) -> bool:
        return self.outer.summable and self.inner.summable

    def bind(self, layout: Layout) -> Self:
        inner = cast(Sparsifier, self.inner.bind(layout))
        return type(self)(self.outer.bind(Layout.flat(inner.count(layout.d))), inner)

    def compress(self, vectors: Tensor, random: WorkerRandom) -> Sparse:
        chosen = self.inner.compress(vectors, random.fork(0))
        return chosen.with_values(self.outer.compress(chosen.values.decode(), random.fork(1)))

    def omega(self, d: int) -> float | None:
        outer, inner = self.outer.omega(self.inner.count(d)), self.inner.omega(d)
        return None if outer is None or inner is None else outer + inner + outer * inner

    def delta(self, d: int) -> float | None:
        outer, inner = self.outer.delta(self.inner.count(d)), self.inner.delta(d)
        if not self.inner.exact:
            return contraction(self.omega(d))
        return None if outer is None or inner is None else outer * inner

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(QSGD(8), TopK(ratio=0.25)), cls(QSGD(2), RandomK(ratio=0.5))]


@dataclass(frozen=True, eq=False)
class RepeatedMessage(Compound):
    """The sum of several messages. Wire format: the messages one after the other."""

    def decode(self) -> Tensor:
        first, *others = self.inner
        total = first.decode()
        for message in others:
            total = total + message.decode()
        return total

    def add_to(self, out: Tensor, weights: Tensor) -> None:
        """out += weights @ decode(); coordinates by sender, as one message with all of them would be added."""
        chosen = [message for message in self.inner if isinstance(message, Sparse)]
        if len(chosen) == len(self.forms) and not out.is_meta:
            indices, values = (torch.cat(parts, 1) for parts in zip(*map(Sparse.coordinates, chosen), strict=True))
            return scatter_to(out, weights, indices, values)
        for message in self.inner:
            message.add_to(out, weights)

    @property
    def count(self) -> int:
        return sum(form.count for form in self.forms)


@dataclass(frozen=True)
class Repeated(CompressorWrapper):
    """Fast compressed communication: y = 0; R times c = C(v - y), y = y + c. C(v) is y, R = ``rounds``.

    C is `contractive` (compressor): an unbiased compressor whose omega is not below 1 is divided by 1 + omega first.
    E|y - v|^2 <= (1 - delta)^R |v|^2. With top-k it is top-(R k). Sends R messages of C, each with randomness of its
    own.

    Huang et al. 2022 (NEOLITHIC), arXiv:2206.03665.

    When: a compressor that loses too much at once, where several messages may be sent.

    Parameters
    ----------
    compressor
        What makes each message.
    rounds
        R, the number of messages, at least 1; bytes grow as R, the error shrinks as (1 - delta)^R.

    Examples
    --------
    >>> import torch
    >>> Repeated(TopK(k=1), 2).compress(torch.tensor([[1.0, 3.0, 2.0]]), WorkerRandom(0, [0])).decode().tolist()
    [[0.0, 3.0, 2.0]]
    """

    rounds: int

    def __post_init__(self) -> None:
        check_least("Repeated: rounds", self.rounds)

    def bind(self, layout: Layout) -> Compressor:
        return replace(self, compressor=contractive(self.compressor).bind(layout))

    def compress(self, vectors: Tensor, random: WorkerRandom) -> RepeatedMessage:
        step = contractive(self.compressor).for_dimension(vectors.shape[1])
        messages, rest = [step.compress(vectors, random.fork(0))], vectors
        for number in range(1, self.rounds):
            rest = rest - messages[-1].decode()
            messages.append(step.compress(rest, random.fork(number)))
        parts, forms = joined(messages)
        return RepeatedMessage(parts, vectors.shape[1], vectors.dtype, forms)

    def omega(self, d: int) -> float | None:
        omega = contractive(self.compressor).omega(d)
        return None if omega is None else omega**self.rounds

    def delta(self, d: int) -> float | None:
        delta = contractive(self.compressor).delta(d)
        return None if delta is None else 1 - (1 - delta) ** self.rounds

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(TopK(ratio=0.1), 3), cls(QSGD(1), 2), cls(ScaledSign(), 4), cls(Natural(), 2)]
