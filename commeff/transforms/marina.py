"""A mean that moves by compressed differences, and now and then is whole (MARINA)."""

from __future__ import annotations

from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, DenseMessage, Layout, WorkerRandom
from commeff.core.components import GradientComparison, Gradients
from commeff.core.corrections import kept
from commeff.core.overlap import Stages
from commeff.core.strategy import Transform
from commeff.core.traits import Timetable, Traits
from commeff.optimizers.curvature import require_oracle
from commeff.transforms.encoders import Plain


def sends_whole(begun: bool, probability: float, communicator: Communicator) -> bool:
    """Whether whole gradients are sent in a step: at first, and where a coin falls so that all workers see."""
    coin = WorkerRandom(communicator.seed, [0], communicator.step, ("local", "coin")).uniform(1)
    return not begun or float(coin) < probability


class Differences(GradientComparison):
    """g(x^k) where whole gradients are sent, else g(x^k) - g(x^{k-1}) of the same batch.

    Memory: last_x = x^{k-1}; begun, whether there has been a step.

    Parameters
    ----------
    probability : float
        That of whole gradients, in (0, 1].
    """

    rows = ("last_x",)
    shared = ("begun",)
    needs_oracle = True

    def __init__(self, probability: float) -> None:
        require.within("(0, 1]", "1/p steps is the mean distance of two whole gradients", probability=probability)
        self.probability = probability

    def start(self, x: Tensor, layout: Layout) -> None:
        self.last_x, self.begun = x.clone(), False

    def __call__(
        self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None, moving: Tensor | None
    ) -> Tensor:
        elsewhere = require_oracle(oracle, self)
        out = gradient
        if not sends_whole(self.begun, self.probability, communicator):
            out = gradient - elsewhere(self.last_x)
        self.last_x = kept(x.clone(), self.last_x, moving)
        self.begun = self.begun or bool(communicator.context.present.any())
        return out


class Marina(Transform):
    """mean <- (1/n) sum_j v_j where whole gradients are sent, else mean + (1/n) sum_j C(v_j);  -> mean   (arXiv
    2102.07845, Algorithm 1).

    Memory: mean, one row; begun, whether there has been a step. Sends v_i, or C(v_i).

    Parameters
    ----------
    compressor : Compressor
        C, unbiased.
    probability : float
        That of whole gradients, of the same coin as `Differences`, which give v.
    """

    shared = ("mean", "begun")
    # scope: of gradients that are sent while others are computed, nobody would know the difference
    traits = Traits(scope="whole", exact_on_pieces=True, agrees=True)

    def __init__(self, compressor: Compressor, probability: float) -> None:
        self.compressor, self.probability = Plain(compressor), probability

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(1 if self.probability == 1 else None))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        if self.compressor.compressor.bind(layout).omega(layout.size) is None:
            raise ValueError(
                f"MARINA needs an unbiased compressor, got {type(self.compressor.compressor).__name__}, which is "
                "biased: errors add up; choose one such as random_k, natural or qsgd, or ef21, which is made for others"
            )
        self.mean, self.begun = v.new_zeros(1, layout.d), False

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        if sends_whole(self.begun, self.probability, communicator):
            self.mean = (yield communicator.post_average(DenseMessage.of(vectors), rows=1)).clone()
        else:
            change = self.compressor.encode(vectors, communicator, "up")
            self.mean = self.mean + (yield communicator.post_average(change, rows=1))
        self.begun = True
        return self.mean.clone().expand_as(vectors)
