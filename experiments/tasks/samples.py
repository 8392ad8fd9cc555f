"""Labelled samples as they are kept, and as a model is given them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}  # of models and their inputs


@dataclass(frozen=True, eq=False)
class Samples:
    """inputs (N, ...) and targets (N,), as they are kept; `prepared` makes of inputs what a model is given."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def dtype(self) -> torch.dtype:
        """Of the inputs that a model is given."""
        return self.inputs.dtype

    def prepared(self, inputs: Tensor) -> Tensor:
        """Kept inputs (..., *shape) as a model is given them: the same, unless a subclass says otherwise."""
        return inputs

    def gather(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of the samples at index (w, b): inputs (w, b, ...) and targets (w, b), one gather each."""
        flat = index.flatten()
        inputs = self.inputs.index_select(0, flat).view(*index.shape, *self.inputs.shape[1:])
        return inputs, self.targets.index_select(0, flat).view(index.shape)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at index (w, b), prepared."""
        inputs, targets = self.gather(index)
        return self.prepared(inputs), targets

    def some(self, count: int) -> Self:
        """`count` samples, random but always the same."""
        return self.at(torch.from_numpy(np.random.default_rng(0).permutation(len(self))[:count]))

    def at(self, index: Tensor) -> Self:
        """The samples at index (k,), kept as these are."""
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def chunks(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in turn, prepared, in chunks of nearly equal numbers, `size` at most."""
        count = -(-len(self) // size)
        pieces = zip(self.inputs.tensor_split(count), self.targets.tensor_split(count), strict=True)
        return ((self.prepared(inputs), targets) for inputs, targets in pieces)
