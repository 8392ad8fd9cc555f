"""Averages that send differences: EF21 and its smoothed gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.flow import Stages
from commeff.strategy import Encoder, Staged, Transform
from commeff.transforms.encoders import as_encoder
from compressors import Compressor, Layout


class EF21(Staged):
    """c_i = C(v_i - public_i);  public_i += c_i;  mean += (1/n) sum_j c_j;  -> mean   (arXiv 2106.05203, Algorithm 2).

    Memory: public, what everybody knows of worker i's vector; mean, one row, always the mean of all public. Sends: c_i,
    by all-gather.
    """

    rows = ("public",)
    shared = ("mean",)

    def __init__(self, changes: Encoder | Compressor) -> None:
        self.changes = as_encoder(changes)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.public, self.mean = torch.zeros_like(v), v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.changes.encode(vectors - self.public, communicator, "up")
        handle = communicator.post_average(change)
        self.public += change.decode()
        self.mean += (yield handle)[:1]
        return self.mean.clone().expand_as(vectors)


class Smooth(Transform):
    """v^k = (1 - eta) v^{k-1} + eta g^k, with v^0 = g^0: the momentum that EF21-SGDM puts before its compressor (arXiv
    2305.15155).

    Memory: smoothed, and whether there has been a first. Sends nothing.
    """

    rows = ("smoothed",)
    shared = ("begun",)

    def __init__(self, eta: float) -> None:
        if not 0 < eta <= 1:
            raise ValueError(f"eta = {eta} was asked for; the weight of the newest gradient lies in (0, 1]")
        self.eta = eta

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.smoothed, self.begun = torch.zeros_like(v), False

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.smoothed = torch.lerp(self.smoothed, vectors, self.eta if self.begun else 1.0)
        self.begun = True
        return self.smoothed.clone()
