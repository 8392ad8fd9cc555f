"""A method in one file: every step averages a random share of the parameters, as in SPARTA."""

from commeff import Local, Strategy, Transform
from commeff.compressors import RandomK
from commeff.core.local import OptimizerFactory
from commeff.transforms import as_encoder


class AverageSome(Transform):
    """x_i <- x_i + M (mean x_j - x_i), where M keeps the coordinates of the shared mask."""

    def __init__(self, mask):
        self.mask = as_encoder(mask)

    def __call__(self, x, communicator):
        some = self.mask.encode(x, communicator, "mask")
        return x + communicator.average(some) - some.decode()


def random_share(optimizer: OptimizerFactory, ratio: float = 0.05) -> Strategy:
    """After each local step, average a random share `ratio` of the coordinates over all workers."""
    return Strategy(Local(optimizer), parameters=AverageSome(RandomK(ratio=ratio, scaled=False, shared=True)))
