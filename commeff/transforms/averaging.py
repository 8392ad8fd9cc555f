"""Averaging: by everybody, through a server, over the edges of a graph; of gradients, or of steps in units of x."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Compressor, DenseMessage, Layout, Message
from commeff.core.addresses import Address
from commeff.core.properties import require_one_rate
from commeff.core.strategy import Encoder, LocalStep, Stages, Traits, Transform, agrees, stages_of
from commeff.topologies import Topology
from commeff.transforms.encoders import as_encoder


class Uncompressed(Encoder):
    """v -> v: all the numbers as they are, without memory."""

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        return DenseMessage.of(vectors)


UNCOMPRESSED = Uncompressed()


class Average(Transform):
    """v_i -> (1/n) sum_j C(v_j), at every worker.

    Memory: the encoder's. Sends: one message a call, by all-reduce if messages sum, otherwise by all-gather.

    Parameters
    ----------
    encoder : Encoder or Compressor
        What each worker sends its vector by; all its numbers unless given.
    """

    traits = Traits(agrees=True)

    def __init__(self, encoder: Encoder | Compressor = UNCOMPRESSED) -> None:
        self.encoder = as_encoder(encoder)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        return (yield communicator.post_average(self.encoder.encode(vectors, communicator, "up")))


class Weighted(Transform):
    """v_i -> M(p_i v_i n) with n workers present: sum_j p_j v_j for an exact average M.

    p are the weights of those who are there, divided by their sum. Memory and messages are those of M.

    Parameters
    ----------
    average : Transform
        M, an average with equal weights.
    weights : sequence of float, optional
        One for each worker, more than 0; unless given the numbers of their training samples, where who drives the
        method gives them (`communicator.context.samples`), else equal.
    """

    def __init__(self, average: Transform, weights: Sequence[float] | None = None) -> None:
        if weights is not None and not all(weight > 0 for weight in weights):
            raise ValueError(f"weights must be above 0, got {list(weights)}; drop workers without data")
        self.average, self.weights = average, None if weights is None else tuple(map(float, weights))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        if self.weights is not None and len(self.weights) != communicator.n:
            raise ValueError(
                f"weights must be one for each of the run's {communicator.n} workers, got {len(self.weights)}: give "
                "as many"
            )

    def _factors(self, communicator: Communicator) -> Tensor | None:
        """(w, 1): n p_i of the hosted workers; None where all are 1."""
        context = communicator.context
        if self.weights is None and context.samples is None:
            return None
        name, values = ("samples", context.samples) if self.weights is None else ("weights", self.weights)
        weights = torch.as_tensor(values, dtype=torch.float64).cpu()
        if weights.shape != (context.n,) or not bool((weights > 0).all()):
            raise ValueError(
                f"{name} must be a positive number for each of the {context.n} workers, got {weights.tolist()}"
            )
        return (weights[list(communicator.workers)] / weights[context.present].mean())[:, None]

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        factors = self._factors(communicator)
        weighted = vectors if factors is None else vectors * factors.to(vectors)
        return (yield from stages_of(self.average, weighted, communicator.child("average")))

    def agrees(self, step: int | None) -> bool:
        return agrees(self.average, step)


class Partial(Transform):
    """v_i -> v_i + (1/n) sum_j C(v_j) - C(v_i): what C lets through is averaged, the rest stays.

    Preserves the mean for every C. Memory: none. Sends: one message, as in Average.

    Parameters
    ----------
    compressor : Compressor
        C, which chooses what is averaged.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = as_encoder(compressor)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        message = self.compressor.encode(vectors, communicator, "up")
        handle = communicator.post_average(message)
        rest = vectors - message.decode()
        return rest + (yield handle)


class ThroughServer(Transform):
    """v_i -> D((1/n) sum_j C(v_j)): workers send up with the encoder C, the server answers all with its own encoder D.

    Memory: that of `up` at the workers, of `down` at the server. Sends: one message up and one down, per worker.

    Parameters
    ----------
    up : Encoder or Compressor
        C, by which workers send.
    down : Encoder or Compressor
        D, by which the server answers.
    """

    traits = Traits(agrees=True)

    def __init__(self, up: Encoder | Compressor, down: Encoder | Compressor) -> None:
        self.up, self.down = as_encoder(up), as_encoder(down)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.up.start(v, layout, communicator)
        self.down.start(v.new_zeros(communicator.servers, layout.d), layout, communicator.server)

    def address(self, part: str, at: Address) -> Address:
        return at.child(part, server=part == "down")

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        at_server = yield communicator.post_to_server(self.up.encode(vectors, communicator, "up"))
        return (yield communicator.post_from_server(self.down.encode(at_server, communicator.server, "down")))


def fitting(topology: Topology) -> Topology:
    """The topology, if its rows average: weights that sum to 1 over senders only are for push-sum."""
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be a Topology, got {topology!r}: give one, such as topologies.ring(8)")
    if not topology.at(0).row_stochastic:
        raise ValueError(
            "the weights must sum to 1 for each receiver, got a directed graph where they do for each sender: gossip "
            "over it does not average; choose a graph that balances, such as exponential"
        )
    return topology


class Gossip(Transform):
    """v_i -> sum_j W[i, j] v_j with the mixing matrix of the step.

    Memory: none. Sends: v_i to every worker that receives from i.

    Parameters
    ----------
    topology : Topology
        Who receives from whom at each step, with weights that sum to 1 for each receiver.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = fitting(topology)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        return (yield communicator.post_mix(DenseMessage.of(vectors), self.topology.at(communicator.step)))

    def donated(self, vectors: Tensor, communicator: Communicator) -> Tensor:
        out = vectors if vectors.is_contiguous() else None
        return communicator.mix(DenseMessage.of(vectors), self.topology.at(communicator.step), out)


class Scaled(Transform):
    """v -> inner(lr v) / lr, with the learning rate of the local step to come: a memory in the units of x survives a
    schedule.

    Where lr is 0 nothing would move: nothing is sent and the result is 0.

    Parameters
    ----------
    local : LocalStep
        The step whose learning rate is the unit.
    inner : Transform
        What works on the scaled vectors.
    """

    def __init__(self, local: LocalStep, inner: Transform) -> None:
        self._local, self.inner = local, inner

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        require_one_rate(self._local)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        lr = self._local.lr
        if not lr:
            return torch.zeros_like(vectors)
        return (yield from stages_of(self.inner, vectors * lr, communicator.child("inner"))) / lr

    def agrees(self, step: int | None) -> bool:
        return agrees(self.inner, step)
