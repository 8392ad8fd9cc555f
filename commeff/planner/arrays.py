"""Types of arrays over policies, and which of many policies are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Count = NDArray[Any] | float
Mask = NDArray[np.bool_]


def distinct(*columns: Numbers) -> tuple[Numbers, NDArray[np.int64]]:
    """The distinct rows of columns of counts, sorted, and where each row stands among them; `np.unique`, ten times as
    fast on few different rows.

    Parameters
    ----------
    columns : whole numbers from 0 on, arrays of one length.

    Examples
    --------
    >>> rows, where = distinct(np.array([8, 2, 8]), np.array([1, 4, 1]))
    >>> rows.tolist(), where.tolist()
    ([[2, 4], [8, 1]], [1, 0, 1])
    """
    keys, sizes = np.zeros(len(columns[0]), dtype=np.int64), [int(column.max(initial=0)) + 1 for column in columns]
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.astype(np.int64)
    found = np.unique(keys)
    return np.stack(np.unravel_index(found, sizes), axis=1), np.searchsorted(found, keys)
