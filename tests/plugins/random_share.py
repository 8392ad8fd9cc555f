"""A method of one's own, in one file: a random share of the parameters is averaged at every step, as in SPARTA."""

from commeff import Local, Strategy, Transform
from commeff.compressors import RandomK
from commeff.core.local import OptimizerFactory
from commeff.transforms import as_encoder


class AverageSome(Transform):
    """x_i <- x_i + M (mean x_j - x_i), M the coordinates that the shared mask keeps."""

    def __init__(self, mask):
        self.mask = as_encoder(mask)

    def __call__(self, x, communicator):
        some = self.mask.encode(x, communicator, "mask")
        return x + communicator.average(some) - some.decode()


def random_share(optimizer: OptimizerFactory, ratio: float = 0.05) -> Strategy:
    """After each local step, average a random share `ratio` of the coordinates over all workers."""
    return Strategy(Local(optimizer), parameters=AverageSome(RandomK(ratio=ratio, scaled=False, shared=True)))
