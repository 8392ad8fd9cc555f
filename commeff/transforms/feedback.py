"""Averages that send differences: EF21 with its smoothed gradients, and DIANA."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, Layout
from commeff.core.overlap import Stages
from commeff.core.strategy import Encoder, Transform
from commeff.core.traits import Traits
from commeff.transforms.encoders import Plain, as_encoder


class EF21(Transform):
    """c_i = C(v_i - public_i);  public_i += c_i;  mean += (1/n) sum_j c_j;  -> mean   (arXiv 2106.05203, Algorithm 2).

    Memory: public, what everybody knows of worker i's vector; mean, one row, always the mean of all public. Sends: c_i,
    by all-gather.

    Parameters
    ----------
    changes : Encoder or Compressor
        C, contractive.
    """

    rows = ("public",)
    shared = ("mean",)
    traits = Traits(agrees=True)

    def __init__(self, changes: Encoder | Compressor) -> None:
        self.changes = as_encoder(changes)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.public, self.mean = torch.zeros_like(v), v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.changes.encode(vectors - self.public, communicator, "up")
        handle = communicator.post_average(change, rows=1)
        self.public += change.decode()
        self.mean.add_((yield handle), alpha=communicator.n / communicator.context.n)
        return self.mean.clone().expand_as(vectors)


class Diana(Transform):
    """c_i = C(v_i - shift_i);  -> h + (1/n) sum_j c_j;  shift_i += alpha c_i;  h += alpha (1/n) sum_j c_j   (arXiv
    1901.09269, Algorithm 1).

    C is unbiased, so that the result is; alpha is 1 / (1 + omega) unless given.
    Memory: shift, what everybody knows of worker i's vector; mean = h, one row, always the mean of all shifts. Sends
    c_i.

    Parameters
    ----------
    compressor : Compressor
        C, unbiased.
    alpha : float, optional
        The share by which shifts move, in [0, 1].
    """

    rows = ("shift",)
    shared = ("mean",)
    traits = Traits(agrees=True)

    def __init__(self, compressor: Compressor, alpha: float | None = None) -> None:
        if alpha is not None:
            require.within("[0, 1]", alpha=alpha)
        self.compressor, self.alpha = Plain(compressor), alpha
        if alpha is None:  # omega is that of the whole vector
            self.traits = Traits(scope="whole", exact_on_pieces=True, agrees=True)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.shift, self.mean = torch.zeros_like(v), v.new_zeros(1, layout.d)
        omega = self.compressor.compressor.bind(layout).omega(layout.size)
        if omega is None:
            raise ValueError(
                f"DIANA needs an unbiased compressor, got {type(self.compressor.compressor).__name__}: choose one such "
                "as random_k, qsgd, natural or tern_grad, or ef21, which is made for others"
            )
        self._alpha = 1 / (1 + omega) if self.alpha is None else self.alpha

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        change = self.compressor.encode(vectors - self.shift, communicator, "up")
        handle = communicator.post_average(change, rows=1)
        self.shift.add_(change.decode(), alpha=self._alpha)
        learned = communicator.n / communicator.context.n * (yield handle)
        out = self.mean + learned
        self.mean.add_(learned, alpha=self._alpha)
        return out.expand_as(vectors)


class Smooth(Transform):
    """v^k = (1 - eta) v^{k-1} + eta g^k, with v^0 = g^0: the momentum that EF21-SGDM puts before its compressor (arXiv
    2305.15155).

    Memory: smoothed, and whether there has been a first. Sends nothing.

    Parameters
    ----------
    eta : float
        The weight of the newest gradient, in (0, 1].
    """

    rows = ("smoothed",)
    shared = ("begun",)
    traits = Traits(sends=False)

    def __init__(self, eta: float) -> None:
        require.within("(0, 1]", eta=eta)
        self.eta = eta

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.smoothed, self.begun = torch.zeros_like(v), False

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        self.smoothed = torch.lerp(self.smoothed, vectors, self.eta if self.begun else 1.0)
        self.begun = True
        return self.smoothed.clone()
