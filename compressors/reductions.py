"""Row by row: largest magnitude, sum of magnitudes, Euclidean norm.

Runs of 4096 numbers are reduced first and then joined in float64. Torch splits no run over threads, so a row's result
depends neither on their number nor on the rows beside it. Given the layout of a row that lies in pieces, they are those
of the whole row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from commeff.compressors.base import wide
from commeff.compressors.compiled import compiled, pieces
from commeff.compressors.layout import Layout
from commeff.compressors.packing import words
from commeff.compressors.scratch import tiles

RUN = 1 << 12
SMALL = 2.0**-520  # the square of any float64 times this is one, too


def row_max(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) max_j |v_j|, in the dtype of scales."""
    out = torch.zeros(len(vectors), 1, dtype=wide(vectors.dtype), device=vectors.device)
    for rows, columns in pieces(vectors) if vectors.numel() else []:
        out[rows] = torch.maximum(out[rows], largest(vectors[rows, columns]))
    return out if layout is None else layout.row_max(out)


@compiled
def largest(vectors: Tensor) -> Tensor:
    """(w, 1) max_j |v_j| of rows that are not empty, in one go: the same as `row_max`."""
    return vectors.abs().amax(1, keepdim=True).to(wide(vectors.dtype))


def row_sum(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) sum_j |v_j|, float64. Runs are added in the dtype of scales; on GPUs, and on overflow, in float64."""
    return _magnitudes(vectors) if layout is None else layout.row_sum(vectors, _magnitudes)


def row_halves(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 3) float64: the sum of the positive magnitudes, that of the negative ones, and how many sign bits are set."""
    return _halves(vectors) if layout is None else layout.row_sum(vectors, _halves)


def _halves(vectors: Tensor) -> Tensor:
    negative = _reduced(vectors, lambda runs: (words(runs) < 0).sum(2), Tensor.sum, torch.add)
    plus, minus = (_magnitudes(vectors, half) for half in (lambda runs: runs.clamp(min=0), lambda r: r.clamp(max=0)))
    return torch.cat([plus, minus, negative], dim=1)


def _magnitudes(vectors: Tensor, of: Callable[[Tensor], Tensor] = lambda runs: runs) -> Tensor:
    if vectors.is_cuda:  # it adds float64 as fast, in one pass, and is not waited for
        return _reduced(vectors, lambda runs: _norm(of(runs), 1), Tensor.sum, torch.add)
    narrow = _reduced(vectors, lambda runs: of(runs).abs().sum(2, dtype=wide(runs.dtype)), Tensor.sum, torch.add)
    if vectors.dtype == torch.float64 or vectors.is_meta or bool(narrow.isfinite().all()):
        return narrow
    broad = _reduced(vectors, lambda runs: of(runs).abs().sum(2, dtype=torch.float64), Tensor.sum, torch.add)
    return torch.where(narrow.isfinite(), narrow, broad)


def _norm(runs: Tensor, order: int) -> Tensor:
    return torch.linalg.vector_norm(runs, order, dim=2, dtype=torch.float64)


def row_norm(vectors: Tensor, layout: Layout | None = None) -> Tensor:
    """(w, 1) |v|, in the dtype of scales.

    Squares are float64, which those of float32 numbers do not overflow; float64 numbers are divided by a power of two
    first, which rounds nothing.
    """
    if layout is not None and layout.places is not None:
        return joint_norm(vectors, layout).to(wide(vectors.dtype))
    unit = _power_of_two(row_max(vectors)) if vectors.dtype == torch.float64 else None
    norms = _reduced(vectors, _squares, Tensor.sum, torch.add, unit).sqrt_()
    return norms.to(wide(vectors.dtype)) if unit is None else norms.mul_(unit)


def joint_norm(vectors: Tensor, layout: Layout) -> Tensor:
    """(w, 1) |v| of rows of which these may be pieces, float64: their squares are added up."""
    norm, small = layout.row_sum(vectors, _two_squares).sqrt().split(1, dim=1)
    return norm.where(norm.isfinite(), small / SMALL)


def _two_squares(vectors: Tensor) -> Tensor:
    """(w, 2) |v|^2 and |SMALL v|^2, which does not overflow."""
    norm = row_norm(vectors).double()
    return torch.cat([norm, SMALL * norm], dim=1).square()


def _squares(runs: Tensor) -> Tensor:
    return _norm(runs, 2).square_()


def _power_of_two(numbers: Tensor) -> Tensor:
    """The largest power of two that is no more than each number; 1 for zero, infinity and NaN."""
    mantissas, _ = torch.frexp(numbers)
    return torch.where(numbers.isfinite() & (numbers > 0), numbers / (2 * mantissas), 1.0)


def _reduced(
    vectors: Tensor,
    measure: Callable[[Tensor], Tensor],
    collect: Callable[[Tensor, int], Tensor],
    join: Callable[[Tensor, Tensor], Tensor],
    unit: Tensor | None = None,
) -> Tensor:
    """(w, 1) float64, of the numbers in terms of their row's ``unit``; ``measure`` takes (rows, runs, numbers) to
    (rows, runs), ``collect`` that to (rows,).
    """
    out = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    for rows, columns in tiles(vectors):
        tile = vectors[rows, columns].contiguous()
        if unit is not None:
            tile = tile / unit[rows]
        whole = tile.shape[1] // RUN
        for runs in (tile[:, : whole * RUN].unflatten(1, (whole, RUN)), tile[:, None, whole * RUN :]):
            if runs.numel():
                out[rows] = join(out[rows], collect(measure(runs).double(), 1))
    return out[:, None]
