"""Temporaries without memory traffic and page faults: in pieces that stay in the cache, in memory that is kept.

A tensor on the device "meta" has a shape and no numbers, so it has no pieces: nothing is left to compute once the
results are allocated. A compressor that fills what it allocates piece by piece therefore gives the size of its message
for any d at once and without memory. What works otherwise (choosing coordinates) has its own rule for meta tensors.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

HOST, ACCELERATOR = 1 << 18, 1 << 26
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # the names M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's mallopt


def tile_size(device: torch.device) -> int:
    """Entries of a tile: what fits into a core's cache; on accelerators enough to hide the launch of a kernel."""
    return HOST if device.type == "cpu" else ACCELERATOR


def tiles(matrix: Tensor, *, size: int | None = None, grain: int = 8) -> Iterator[tuple[slice, slice]]:
    """Rectangles of at most ``size`` entries that cover the matrix; columns are cut at multiples of ``grain`` only.

    None on the device "meta".

    >>> list(tiles(torch.empty(3, 5), size=10))
    [(slice(0, 2, None), slice(0, 5, None)), (slice(2, 3, None), slice(0, 5, None))]
    >>> list(tiles(torch.empty(1, 20), size=16))
    [(slice(0, 1, None), slice(0, 16, None)), (slice(0, 1, None), slice(16, 20, None))]
    """
    if matrix.is_meta:
        return
    rows, columns = matrix.shape
    size = size or tile_size(matrix.device)
    width = max(grain, size // grain * grain)
    height = max(1, size // max(1, min(width, columns)))
    for top in range(0, rows, height):
        for left in range(0, columns, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def bands(rows: int, columns: int, device: torch.device, *, grain: int = 8) -> Iterator[slice]:
    """Columns in pieces of about a tile over all rows, at least 1024 wide, cut at multiples of ``grain``.

    None on the device "meta".

    >>> list(bands(64, 5000, torch.device("cpu")))
    [slice(0, 4096, None), slice(4096, 5000, None)]
    """
    if device.type == "meta":
        return
    width = max(grain, max(1024, tile_size(device) // max(rows, 1)) // grain * grain)
    for left in range(0, columns, width):
        yield slice(left, min(left + width, columns))


def keep_freed_memory() -> bool:
    """Let the allocator keep what is freed, so that a new large tensor costs no page faults.

    Without it a fresh tensor above 32 MB is written several times more slowly than an old one, and equations written
    with temporaries pay for it at every step. The price: freed memory stays with the process, at its peak. Call once,
    at the start of a program.

    It takes some steps to have effect. torch asks for aligned blocks, of which glibc cuts the ends off, and keeps up to
    seven ends of each size in a cache of the thread. While an end lies there, the freed block before it is too small
    for the next tensor of the same size, which then gets new memory; once the cache is full, blocks are used again.

    Returns
    -------
    bool
        Whether the allocator does; False where it is not glibc's.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
