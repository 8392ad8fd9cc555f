"""Averaging: by everybody, through a server, over the edges of a graph."""

from __future__ import annotations

from torch import Tensor

from commeff.communicator import Communicator
from commeff.strategy import Encoder, Transform
from commeff.transforms.encoders import encoder
from compressors import Compressor, Dense, Layout
from topologies import Topology

DENSE = Dense()


class Average(Transform):
    """v_i -> (1/n) sum_j C(v_j), at every worker.

    Memory: the encoder's. Sends: one message a call, by all-reduce if messages sum, otherwise by all-gather.
    """

    def __init__(self, up: Encoder | Compressor = DENSE) -> None:
        self.up = encoder(up)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.up.start(v, layout, communicator)

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return communicator.average(self.up.encode(vectors, communicator, "up"))


class ThroughServer(Transform):
    """v_i -> D((1/n) sum_j C(v_j)): workers send up with the encoder C, the server answers all with its own encoder D.

    Memory: that of `up` at the workers, of `down` at the server. Sends: one message up and one down, per worker.
    """

    def __init__(self, up: Encoder | Compressor, down: Encoder | Compressor) -> None:
        self.up, self.down = encoder(up), encoder(down)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.up.start(v, layout, communicator)
        self.down.start(v.new_zeros(communicator.servers, layout.d), layout, communicator.server)

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        at_server = communicator.to_server(self.up.encode(vectors, communicator, "up"))
        return communicator.from_server(self.down.encode(at_server, communicator.server, "down"))


class Gossip(Transform):
    """v_i -> sum_j W[i, j] v_j with the mixing matrix of the step.

    Memory: none. Sends: v_i to every worker that receives from i.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        if self.topology.n != communicator.n:
            raise ValueError(
                f"the topology connects {self.topology.n} workers but the run has {communicator.n}; make both equal"
            )

    def __call__(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return self._mix(vectors, communicator, None)

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        return self._mix(vectors, communicator, vectors if vectors.is_contiguous() else None)

    def _mix(self, vectors: Tensor, communicator: Communicator, out: Tensor | None) -> Tensor:
        message = DENSE.compress(vectors, communicator.random("mix"))
        return communicator.mix(message, self.topology.at(communicator.step), out)
