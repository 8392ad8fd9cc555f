"""Row by row: largest magnitude, sum of magnitudes, Euclidean norm.

Tiles stay below the size at which torch splits a sum over threads, so a row's result does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from compressors.base import wide
from compressors.tiling import tiles


def row_max(vectors: Tensor) -> Tensor:
    """(w, 1) max_j |v_j|, in the dtype of scales."""
    return _reduced(vectors, lambda tile: tile.abs().amax(1), torch.maximum).to(wide(vectors.dtype))


def row_sum(vectors: Tensor) -> Tensor:
    """(w, 1) sum_j |v_j|, float64."""
    return _reduced(vectors, lambda tile: tile.to(wide(tile.dtype)).abs().sum(1), torch.add)


def row_norm(vectors: Tensor) -> Tensor:
    """(w, 1) |v|, in the dtype of scales; squares are added in float64, so float32 vectors neither overflow nor vanish."""
    squares = _reduced(vectors, lambda tile: torch.linalg.vector_norm(tile, dim=1, dtype=torch.float64).square(), torch.add)
    return squares.sqrt_().to(wide(vectors.dtype))


def _reduced(
    vectors: Tensor, measure: Callable[[Tensor], Tensor], join: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    out = torch.zeros(len(vectors), dtype=torch.float64, device=vectors.device)
    for rows, columns in tiles(len(vectors), vectors.shape[1], size=1 << 14):
        out[rows] = join(out[rows], measure(vectors[rows, columns].contiguous()).double())
    return out[:, None]
