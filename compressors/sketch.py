"""Count sketches: a few sums of numbers with random signs, which add up in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Scope, check_least, contraction, wide
from commeff.compressors.compiled import compiled
from commeff.compressors.hashing import GOLDEN, mixed, outputs, signed
from commeff.compressors.message import Tiled
from commeff.compressors.random import WorkerRandom
from commeff.compressors.scratch import bands


@dataclass(frozen=True, eq=False)
class SketchMessage(Tiled):
    """Each coordinate the mean, or the median, of what one cell of each of the table's rows says of it.

    Wire format: the key of the hash functions (int64), unless it is ``common`` to all workers and known; then the table
    (rows x width numbers of float32; float64 for float64 vectors).

    Attributes
    ----------
    median : bool
        Whether it is the median.
    common : (1,) int64, the key of all workers, or None if each sends its own.
    """

    median: bool
    common: Tensor | None

    @property
    def fused(self) -> bool:
        return self.parts[-1].shape[1] == 1  # or the rows of long vectors take much memory

    @property
    def summable(self) -> bool:
        return self.common is not None and not self.median

    def tile(self, rows: slice, columns: slice) -> Tensor:
        table = self.parts[-1][rows]
        keys = self.parts[0][rows, 0] if self.common is None else self.common
        functions = _functions(keys, table.shape[1]) + signed(GOLDEN * (columns.start + 1))
        shape = table.new_empty(()).expand(len(table), columns.stop - columns.start)
        estimates = estimated(shape, functions, table)
        return estimates.median(1).values if self.median else estimates.mean(1)


@compiled
def estimated(shape: Tensor, functions: Tensor, table: Tensor) -> Tensor:
    """(w, rows, c): what each row of a table says of as many columns as ``shape`` (w, c) has."""
    cells, signs = _hashed(functions, shape.shape[1], table)
    return table.gather(2, cells).mul_(signs)


@compiled
def placed(vectors: Tensor, functions: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """(w, rows, c), twice: the cells of (w, c) columns in each row of a table, and their numbers with signs."""
    cells, signs = _hashed(functions, vectors.shape[1], table)
    return cells, vectors[:, None].to(table.dtype) * signs


def _functions(keys: Tensor, rows: int) -> Tensor:
    """(w, rows, 1) int64: the hash functions of each row of a table; GOLDEN (i + 1) is added for column i."""
    return mixed(keys[:, None] + torch.arange(rows, device=keys.device))[:, :, None]


def _hashed(functions: Tensor, count: int, table: Tensor) -> tuple[Tensor, Tensor]:
    """(w, rows, count) int64, the cells of columns in each row of a table (w, rows, width); and their signs."""
    words = outputs(functions, count)
    signs = words.to(torch.int32).bitwise_and_(1).mul_(-2).add_(1).to(table.dtype)
    cells = words.bitwise_right_shift_(32).bitwise_and_((1 << 31) - 1).mul_(table.shape[2]).bitwise_right_shift_(31)
    return cells.expand(len(table), -1, -1), signs


@dataclass(frozen=True)
class CountSketch(Compressor):
    """Each of ``rows`` tables adds every number, with a random sign, to one of ``width`` cells that a hash chooses.

        t[r, h_r(i)] += s_r(i) v_i,    C(v)_i = mean_r s_r(i) t[r, h_r(i)]

    E C(v) = v and E|C(v) - v|^2 = (d - 1) / (width rows) |v|^2 = omega |v|^2. A sketch is linear: with the mean all
    workers hash alike, by functions that change every step, no key is sent, and sketches add up on the way
    (all-reduce). ``estimate="median"`` takes the median of the rows instead, which a collision with a large number does
    not move: no median of sums is the sum of medians, so each worker hashes alone, sends its key (8 bytes), and all
    are gathered; of an odd number of rows it is unbiased too, omega = (d - 1) / width at most. Sends width x rows
    numbers.

    Charikar, Chen, Farach-Colton 2002; Ivkin et al. 2019 (sketched SGD), arXiv:1903.04488; Rothchild et al. 2020
    (FetchSGD), arXiv:2007.07682.

    When: sparse vectors whose large numbers lie elsewhere on every worker, and must still be summed in flight.

    Parameters
    ----------
    width
        Cells of a row, at least 1.
    rows
        Rows of the table, 1 by default; odd for the median.
    estimate
        "mean" (the default) or "median" of the rows.

    Examples
    --------
    >>> message = CountSketch(width=8, rows=2).compress(torch.eye(2, 100), WorkerRandom(0, range(2)))
    >>> message.wire_bytes.tolist(), message.summable, message.decode().diagonal().tolist()
    ([64, 64], True, [1.0, 1.0])
    """

    width: int
    rows: int = 1
    estimate: Literal["mean", "median"] = "mean"

    scope: ClassVar[Scope] = "whole"

    def __post_init__(self) -> None:
        check_least("CountSketch: width", self.width)
        check_least("CountSketch: rows", self.rows)
        if self.estimate not in ("mean", "median"):
            raise ValueError(f"CountSketch: estimate must be 'mean' or 'median', got {self.estimate!r}")
        if self.estimate == "median" and self.rows % 2 == 0:
            raise ValueError(
                f"CountSketch: rows must be odd for estimate='median', got {self.rows}: one of them is the middle; "
                f"give rows={self.rows + 1}"
            )

    @property
    def summable(self) -> bool:
        return self.estimate == "mean"

    def compress(self, vectors: Tensor, random: WorkerRandom) -> SketchMessage:
        (rows, d), kind = vectors.shape, wide(vectors.dtype)
        keys = random.choice_keys(self.summable)
        functions = _functions(keys, self.rows)
        table = torch.zeros(rows, self.rows, self.width, dtype=kind, device=vectors.device)
        for columns in bands(rows * self.rows, d, vectors.device):
            first = functions + signed(GOLDEN * (columns.start + 1))
            table.scatter_add_(2, *placed(vectors[:, columns], first, table))
        key_parts = () if self.summable else (keys[:, None],)
        common = keys if self.summable else None
        return SketchMessage((*key_parts, table), d, vectors.dtype, not self.summable, common)

    def omega(self, d: int) -> float:
        return max(d - 1, 0) / (self.width * (self.rows if self.summable else 1))

    def delta(self, d: int) -> float | None:
        return contraction(self.omega(d))

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(30, rows=2), cls(16, rows=3, estimate="median")]
