"""The activations that autograd keeps for backward, measured."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from typing import Any, Self

import torch
from torch import Tensor


class Kept:
    """Counts the bytes that forward passes keep for backward, while it is open: now, and at most.

        with Kept(model.parameters()) as kept:
            loss(model(inputs)).backward()
        kept.most

    Each memory counts once, for as long as any saved tensor lies in it. What a checkpoint recomputes in backward is not
    seen.

    Parameters
    ----------
    apart : iterable of tensors
        Whose memory is not counted, such as parameters.

    Attributes
    ----------
    now, most : int
        Bytes.

    Examples
    --------
    >>> x = torch.ones(10, requires_grad=True)
    >>> with Kept() as kept:
    ...     x.exp().sum().backward()
    >>> kept.now, kept.most
    (0, 40)
    """

    def __init__(self, apart: Iterable[Tensor] = ()) -> None:
        self.now = self.most = 0
        self._excluded = {tensor.untyped_storage().data_ptr() for tensor in apart}
        self._uses: Counter[int] = Counter()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda saved: saved.tensor)

    def __enter__(self) -> Self:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, tensor: Tensor) -> _Saved:
        storage, saved = tensor.untyped_storage(), _Saved(tensor)
        place, size = storage.data_ptr(), storage.nbytes()
        if place not in self._excluded:
            self.now += 0 if self._uses[place] else size
            self._uses[place] += 1
            self.most = max(self.most, self.now)
            weakref.finalize(saved, self._free, place, size)
        return saved

    def _free(self, place: int, size: int) -> None:
        self._uses[place] -= 1
        self.now -= 0 if self._uses[place] else size


class _Saved:
    """A tensor that is kept; what it is kept by may ask for it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
