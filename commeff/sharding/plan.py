"""The words by which a model says how its modules are split over tensor parallel ranks.

A plan is `{pattern of module names: style}`, such as
`{"blocks.*.widen": ColumnParallel(), "blocks.*.project": RowParallel()}`. The last that matches a module counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """The way one module is split."""


@dataclass(frozen=True)
class ParallelInput(Style):
    """What this module gets, all ranks have alike, or each a part of the sequence; inside, each does its share.

    All linear layers inside share one collective, forward or backward. What is not shared lies outside: residual
    connections, and norms that are not `HeadParallel`.
    """


@dataclass(frozen=True)
class ColumnParallel(Style):
    """A linear layer inside a `ParallelInput` module, of which each rank computes some of the outputs.

    Attributes
    ----------
    units : int, optional
        Heads, which are not cut; every output is one unless given.
    parts : int
        How many equal matrices lie in this one, each of which is split: 3 for queries, keys and values in one.
    repeat : bool
        When there are fewer units than ranks, several ranks hold the same: heads of keys that several heads of queries
        share.
    """

    units: int | None = None
    parts: int = 1
    repeat: bool = False


@dataclass(frozen=True)
class RowParallel(Style):
    """A linear layer of which each rank holds some of the inputs, those that `ColumnParallel` layers left there.

    The ranks' shares are summed; the bias is added once, after that.
    """


@dataclass(frozen=True)
class VocabularyParallel(Style):
    """Each rank holds some of the tokens: an embedding, whose rows are summed, or the linear layer to the logits.

    The logits stay split, (b, t, vocabulary / ranks), for `cross_entropy`.
    """


@dataclass(frozen=True)
class SequenceParallel(Style):
    """All ranks hold it: norms, learned positions. With sequence parallelism, each acts on its part of the sequence.

    Outside of `ParallelInput` modules, where the gradient is the same at all ranks.
    """


@dataclass(frozen=True)
class HeadParallel(Style):
    """All ranks hold it, and each acts on its share of the work: a norm of queries and keys, or of what comes in.

    Inside a `ParallelInput` module, before its `RowParallel` layer. The ranks' gradients are summed.
    """


Plan = Mapping[str, Style]
