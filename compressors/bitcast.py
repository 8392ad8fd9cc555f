"""Floating-point numbers as the integers with the same bits."""

from __future__ import annotations

import torch
from torch import Tensor

_WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(vectors: Tensor) -> Tensor:
    """A view of the numbers as signed integers: negative where the sign bit is set.

    >>> words(torch.tensor([1.0, -0.0])).tolist()
    [1065353216, -2147483648]
    """
    return vectors.view(_WORDS[vectors.element_size()])
