"""Control variates that travel."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.overlap import Stages
from commeff.core.strategy import Transform, stages_of
from commeff.core.traits import Timetable


class ServerVariates(Transform):
    """g_i -> g_i - c_i + c, c_i being the g_i of the last period's first step, and c = M(c_j)   (SCAFFOLD, option I).

    A period begins with equal rows, the server's model; until its first is over c_i = c = 0. A worker that was not
    there when a period began keeps what it has.
    Memory: drift = c - c_i, and coming, that of the next period. Sends what M sends, once a period.

    Parameters
    ----------
    average : Transform
        M, the averaging.
    period : int
        The steps of a period.
    """

    rows = ("drift", "coming")

    def __init__(self, average: Transform, period: int) -> None:
        require.count(period=period)
        self.average, self.period = average, period

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(self.period))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.drift, self.coming = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        if communicator.step % self.period == 0:
            mean = yield from stages_of(self.average, vectors, communicator.child("average"))
            self.drift, self.coming = self.coming, mean - vectors
        return vectors + self.drift
