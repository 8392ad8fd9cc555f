"""A momentum that the server alone remembers."""

from commeff import Local, Strategy, Transform
from commeff.compressors import DenseMessage
from commeff.core import Traits
from commeff.core.local import OptimizerFactory


class ServerMomentum(Transform):
    """v -> m, m <- 0.9 m + (1/n) sum_j v_j."""

    shared = ("momentum",)
    traits = Traits(agrees=True)

    def start(self, v, layout, communicator):
        super().start(v, layout, communicator)
        self.momentum = v.new_zeros(communicator.servers, layout.d)

    def __call__(self, vectors, communicator):
        self.momentum = 0.9 * self.momentum + communicator.to_server(DenseMessage.of(vectors))
        return communicator.from_server(DenseMessage.of(self.momentum))


def server_momentum(optimizer: OptimizerFactory) -> Strategy:
    """Momentum of the mean gradient."""
    return Strategy(Local(optimizer), gradients=ServerMomentum())
