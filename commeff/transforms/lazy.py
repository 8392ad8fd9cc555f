"""Means that are kept and moved: by those whose gradients have changed (LAG), by compressed differences (MARINA)."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator, view
from commeff.compressors import Compressor, DenseMessage, Layout
from commeff.core.compared import Differences, Lazy
from commeff.core.overlap import Stages
from commeff.core.strategy import Transform
from commeff.transforms.encoders import Plain


class Marina(Transform):
    """mean <- (1/n) sum_j v_j where whole gradients are sent, else mean + (1/n) sum_j C(v_j);  -> mean   (arXiv
    2102.07845, Algorithm 1).

    Memory: mean, one row. Sends v_i, or C(v_i).

    Parameters
    ----------
    local : Differences
        Which says which it is, and gives v.
    compressor : Compressor
        C, unbiased.
    """

    shared = ("mean",)
    own_scope = "whole"  # of gradients that are sent while others are computed, nobody would know the difference
    own_exact_on_pieces = True

    def __init__(self, local: Differences, compressor: Compressor) -> None:
        self._local, self.compressor = local, Plain(compressor)

    @property
    def cycle(self) -> int | None:
        return super().cycle if self._local.probability == 1 else None

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        if self.compressor.compressor.bind(layout).omega(layout.size) is None:
            raise ValueError(
                f"MARINA needs an unbiased compressor, got {type(self.compressor.compressor).__name__}, which is "
                "biased: errors add up; choose one such as random_k, natural or qsgd, or ef21, which is made for others"
            )
        self.mean = v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        if self._local.full:
            self.mean = (yield communicator.post_average(DenseMessage.of(vectors), rows=1)).clone()
        else:
            change = self.compressor.encode(vectors, communicator, "up")
            self.mean = self.mean + (yield communicator.post_average(change, rows=1))
        return self.mean.clone().expand_as(vectors)

    def agrees(self, step: int | None = None) -> bool:
        return True


class LazyMean(Transform):
    """mean <- mean + (1/n) (the sum of v_j of those who send);  -> mean   (arXiv 1805.09965, Algorithms 1 and 2).

    Memory: mean, one row. Sends: whether a worker sends, 1 byte, to all; then v_i to the server, by those who do; and
    the sum from it, if anybody did.

    Parameters
    ----------
    local : Lazy
        Which says who sends.
    """

    shared = ("mean",)
    own_scope = "whole"
    own_exact_on_pieces = True
    data_dependent = True

    def __init__(self, local: Lazy) -> None:
        self._local = local

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.mean = v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        sends = self._local.sends
        flags = (yield communicator.post_gather(DenseMessage.of(sends[:, None].to(torch.uint8)))).parts[0][:, 0]
        if flags.is_meta:
            senders, chosen = communicator, vectors  # the most that it can be
        else:
            senders, chosen = view(communicator, among=flags.bool().cpu()), vectors[sends]
        if senders.n:
            there = yield senders.post_to_server(DenseMessage.of(chosen))
            answer = DenseMessage.of(there * (senders.n / communicator.n))
            self.mean = self.mean + (yield communicator.post_from_server(answer))[:1]
        return self.mean.clone().expand_as(vectors)

    def agrees(self, step: int | None = None) -> bool:
        return True
