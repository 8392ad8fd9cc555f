"""Row by row: largest magnitude, sum of magnitudes, Euclidean norm.

Runs of 4096 numbers are added first, then runs of these sums, in float64. Within a run, 16 numbers that lie 256 apart
are added one after another, which the compiler does in one pass. The order is the same, compiled or not. Torch splits
no run over threads, so a row's result depends neither on their number nor on the rows beside it. Given the layout of a
row that lies in pieces, they are those of the whole row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from commeff.compressors.base import wide
from commeff.compressors.compiled import compiled, pieces
from commeff.compressors.layout import Layout
from commeff.compressors.packing import words

RUN, FOLD = 1 << 12, 16  # numbers of a run, and of those that are added one after another
SMALL = 2.0**-520  # the square of any float64 times this is one, too


def row_max(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) max_j |v_j|, in the dtype of scales. Numbers of long rows are compared as integers, which is faster."""
    numbers = words(vectors)
    out = torch.zeros(len(vectors), 1, dtype=numbers.dtype, device=vectors.device)
    for rows, columns in pieces(vectors) if vectors.numel() else []:
        out[rows] = torch.maximum(out[rows], largest_word(numbers[rows, columns]))
    out = out.view(vectors.dtype).to(wide(vectors.dtype))
    return out if layout is None else layout.row_max(out)


@compiled
def largest_word(numbers: Tensor) -> Tensor:
    """(w, 1): the largest magnitude of numbers that are given as integers, of which those of NaN are the largest."""
    return (numbers & torch.iinfo(numbers.dtype).max).amax(1, keepdim=True)


def largest(vectors: Tensor) -> Tensor:
    """The same as `row_max` of short rows that are not empty, for what is compiled."""
    return vectors.abs().amax(1, keepdim=True).to(wide(vectors.dtype))


def row_sum(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) sum_j |v_j|, float64. Runs are added in the dtype of scales; on GPUs, and on overflow, in float64."""
    return _magnitudes(vectors) if layout is None else layout.row_sum(vectors, _magnitudes)


def row_halves(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 3) float64: the sum of the positive magnitudes, that of the negative ones, and how many sign bits are set."""
    return _halves(vectors) if layout is None else layout.row_sum(vectors, _halves)


def _halves(vectors: Tensor) -> Tensor:
    negative = torch.zeros(len(vectors), 1, dtype=torch.float64, device=vectors.device)
    for rows, columns in pieces(vectors):
        negative[rows] += signs_set(words(vectors[rows, columns]))
    return torch.cat([_magnitudes(vectors, torch.relu), _magnitudes(vectors, minus), negative], dim=1)


@compiled
def signs_set(numbers: Tensor) -> Tensor:
    """(w, 1): how many sign bits are set of numbers that are given as integers."""
    return (numbers < 0).sum(1, keepdim=True)


def minus(numbers: Tensor) -> Tensor:
    """max(-x, 0)"""
    return -numbers.clamp(max=0)


def _magnitudes(vectors: Tensor, of: Callable[[Tensor], Tensor] = torch.abs) -> Tensor:
    dtype = torch.float64 if vectors.is_cuda else wide(vectors.dtype)  # a GPU is not waited for
    sums = _sums(vectors, of, dtype)
    if dtype == torch.float64 or vectors.is_meta or bool(sums.isfinite().all()):
        return sums
    return torch.where(sums.isfinite(), sums, _sums(vectors, of, torch.float64))


def row_norm(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) |v|, in the dtype of scales; float64 numbers are divided by a power of two first, which rounds nothing."""
    if layout is not None and layout.places is not None:
        return joint_norm(vectors, layout).to(wide(vectors.dtype))
    if vectors.dtype != torch.float64:
        return _sums(vectors, torch.square).sqrt_().to(wide(vectors.dtype))
    unit = _power_of_two(row_max(vectors))
    return _sums(vectors / unit, torch.square).sqrt_().mul_(unit)


def joint_norm(vectors: Tensor, layout: Layout) -> Tensor:
    """(w, 1) |v| of rows of which these may be pieces, float64: their squares are added up."""
    norm, small = layout.row_sum(vectors, _two_squares).sqrt().split(1, dim=1)
    return norm.where(norm.isfinite(), small / SMALL)


def _two_squares(vectors: Tensor) -> Tensor:
    """(w, 2) |v|^2 and |SMALL v|^2, which does not overflow."""
    norm = row_norm(vectors).double()
    return torch.cat([norm, SMALL * norm], dim=1).square()


def _power_of_two(numbers: Tensor) -> Tensor:
    """The largest power of two that is no more than each number; 1 for zero, infinity and NaN."""
    mantissas, _ = torch.frexp(numbers)
    return torch.where(numbers.isfinite() & (numbers > 0), numbers / (2 * mantissas), 1.0)


def _sums(vectors: Tensor, of: Callable[[Tensor], Tensor], dtype: torch.dtype = torch.float64) -> Tensor:
    """(w, 1) float64: the sum of what ``of`` makes of each number, at least 0; in ``dtype`` within runs."""
    vectors, d = vectors if vectors.stride(1) == 1 else vectors.contiguous(), vectors.shape[1]
    if d < RUN:
        places = pieces(vectors, RUN, compiled=False)
        return torch.cat([of(vectors[rows].to(dtype)).sum(1, keepdim=True) for rows, _ in places]).double()
    whole = d // RUN * RUN
    sums = torch.empty(len(vectors), -(-d // RUN), dtype=torch.float64, device=vectors.device)
    for rows, columns in pieces(vectors[:, :whole], RUN):
        runs = folded(vectors[rows, columns], of, dtype).sum(2)
        sums[rows, columns.start // RUN : columns.stop // RUN] = runs
    if whole < d:
        sums[:, -1:] = _sums(vectors[:, whole:], of, dtype)
    return _sums(sums, torch.abs)


@compiled
def folded(vectors: Tensor, of: Callable[[Tensor], Tensor], dtype: torch.dtype) -> Tensor:
    """(w, runs, 256): sums over 16 numbers of each run of what ``of`` makes of them, one after another."""
    run = min(vectors.shape[1], RUN)
    fold = min(run, FOLD)
    runs = vectors.unflatten(1, (vectors.shape[1] // run, fold, run // fold))
    if vectors.is_cpu and not torch.compiler.is_compiling():
        return of(runs.to(dtype)).sum(2)  # 16 numbers are added in the same order
    return reduce(torch.add, (of(numbers.to(dtype)) for numbers in runs.unbind(2)))
