"""Work on a (w, d) matrix in pieces that stay in the cache, so that temporaries cost neither memory traffic nor page faults."""

from __future__ import annotations

from collections.abc import Iterator

TILE = 1 << 16


def tiles(rows: int, columns: int, *, size: int = TILE) -> Iterator[tuple[slice, slice]]:
    """Rectangles of at most ``size`` entries that cover the matrix; columns are cut at multiples of ``size`` only.

    >>> list(tiles(3, 5, size=10))
    [(slice(0, 2, None), slice(0, 5, None)), (slice(2, 3, None), slice(0, 5, None))]
    >>> list(tiles(1, 20, size=16))
    [(slice(0, 1, None), slice(0, 16, None)), (slice(0, 1, None), slice(16, 20, None))]
    """
    width = min(columns, size)
    height = size // max(width, 1)
    for top in range(0, rows, height):
        for left in range(0, columns, max(width, 1)):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))
