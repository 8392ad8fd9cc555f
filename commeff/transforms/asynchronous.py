"""Workers that do not wait for each other. In a step some have `finished` a gradient; the others still compute.

A worker's row is where it takes its gradient. What others see of it, or what a server has, is a memory, which moves
while the worker computes: so gradients are *stale*. Where all finish together, each of these is the synchronous
transform that it names.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, broadcast, view
from commeff.compressors import DenseMessage, Layout
from commeff.core.addresses import Address
from commeff.core.events import OwnPace, WaitsFor
from commeff.core.strategy import Stages, Timetable, Transform
from commeff.topologies import Topology
from commeff.topologies.meetings import meeting, reading, sides
from commeff.transforms.averaging import fitting
from commeff.transforms.outer import ServerStep


class Asynchronous(OwnPace, Transform):
    """What follows from who has finished: who exchanges something now, and how old the gradients are.

    Memory, equal on every process: updates, the exchanges so far; own, the steps of each worker; seen, the exchanges
    when it last read; staleness, the exchanges between its last read and its last arrival.
    """

    shared = ("updates", "own", "seen", "staleness")

    def __init__(self, waits_for: WaitsFor) -> None:
        self.waits_for = waits_for

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(self.waits_for.period))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        n = communicator.context.n
        self.updates = 0
        self.own, self.seen, self.staleness = (torch.zeros(n, dtype=torch.long) for _ in range(3))

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        finished = communicator.context.finished
        self.own = self.own + finished
        arrived = finished & (self.own % self.waits_for.period == 0)
        if not bool(arrived.any()):
            return vectors
        self.staleness = torch.where(arrived, self.updates - self.seen, self.staleness)
        out = yield from self.exchange_of(arrived, vectors, communicator)
        self.updates += 1
        self.seen = torch.where(arrived, self.updates, self.seen)
        return out

    @abstractmethod
    def exchange_of(self, arrived: Tensor, vectors: Tensor, communicator: Communicator) -> Stages:
        """The rows after those who have arrived, (n,) bool of all workers, have exchanged what they exchange."""


def rows_here(chosen: Tensor, communicator: Communicator) -> Tensor | slice:
    """The hosted rows of chosen workers, (n,) bool of all."""
    hosted = chosen[list(communicator.workers)]
    return slice(None) if bool(hosted.all()) else hosted.nonzero().flatten()


class ParameterServer(Asynchronous):
    """y <- step(y, (1/m) sum over the m workers that arrive of s_i (r_i - v_i));  r_i <- y;  -> r_i   for these.

    r_i is what worker i read last, s_i = min(1, patience/staleness_i), or 1 without patience. Where all arrive together
    and the step is SGD with lr 1, it is `Average`. Memory: read; the server's. Sends: r_i - v_i to the server and y
    back, for each worker that arrives.

    Parameters
    ----------
    server : ServerStep
        What the server does with what has arrived, and its model.
    waits_for : WaitsFor
        When workers come, and for whom they wait there.
    patience : float, optional
        What is older than so many of the server's updates is scaled down; None: nothing is.
    """

    rows = ("read",)

    def __init__(self, server: ServerStep, waits_for: WaitsFor, patience: float | None = None) -> None:
        super().__init__(waits_for)
        if patience is not None:
            require.within("(0, inf]", patience=patience)
        self.server, self.patience = server, patience

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.read = v.clone(memory_format=torch.contiguous_format)
        self.server.start(v[: communicator.servers], layout, communicator.n)

    def address(self, part: str, at: Address) -> Address:
        return at.child(part, server=part == "server")

    def exchange_of(self, arrived: Tensor, vectors: Tensor, communicator: Communicator) -> Stages:
        arrivals, rows = view(communicator, among=arrived), rows_here(arrived, communicator)
        moved = self.read[rows] - vectors[rows]
        if self.patience is not None:
            late = self.staleness[[worker for worker in communicator.workers if arrived[worker]]].clamp(min=1).double()
            moved *= (self.patience / late).clamp(max=1.0).to(moved)[:, None]
        mean = yield arrivals.post_to_server(DenseMessage.of(moved))
        self.server.move(mean, int(arrived.sum()))
        model = yield arrivals.post_from_server(DenseMessage.of(self.server.model))
        out = vectors.clone()
        out[rows] = self.read[rows] = model
        return out

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        model = broadcast(communicator, {"model": self.server.model[0]} if communicator.servers else None)
        return model["model"].to(x).expand_as(x).clone()


class PairAverage(Asynchronous):
    """y <- W y + (v - r), where each who has arrived meets a random free neighbour;  r_i <- y_i;  -> r_i   for these.

    y_i is the model of worker i, which others average with while it computes, r_i what it read of it. W averages the
    pairs; who is met need not have finished. Sum y moves by what the workers moved, exactly. Where all arrive together
    it is `Ahead(Gossip(random_pairs(topology, seed)))`. Memory: model, read. Sends: y_i to the other one of its pair.

    Parameters
    ----------
    topology : Topology
        Who may meet whom.
    seed : int
        The seed of the meetings.
    one_sided : bool
        Only workers of one side of the graph ask, those of the other answer, so that processes cannot wait in a circle.
    """

    rows = ("model", "read")

    def __init__(self, topology: Topology, seed: int = 0, one_sided: bool = False) -> None:
        super().__init__(WaitsFor())
        self.topology, self.seed, self.one_sided = fitting(topology), seed, one_sided
        if one_sided and topology.period != 1:
            raise ValueError("one_sided needs a fixed topology, got one that changes: a worker stays on its side")
        self._asking = torch.from_numpy(sides(topology)) if one_sided else None

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(None))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.model, self.read = v.clone(), v.clone()

    def exchange_of(self, arrived: Tensor, vectors: Tensor, communicator: Communicator) -> Stages:
        asking = arrived if self._asking is None else arrived & self._asking
        pairs = meeting(self.topology, self.seed, communicator.step, asking.numpy())
        mixed = yield communicator.post_mix(DenseMessage.of(self.model), pairs)
        self.model = mixed + (vectors - self.read)
        rows, out = rows_here(arrived, communicator), vectors.clone()
        out[rows] = self.model[rows]
        self.read = out.clone()
        return out

    def evaluated(self, x: Tensor, communicator: Communicator) -> Tensor:
        return self.model.clone()


class StaleGossip(Asynchronous):
    """v_i -> sum_j W[i, j] v_j for those who have arrived, v_j of the others being what they left when they last did.

    The weights sum to 1 for each receiver; the mean moves where some are slower. Where all arrive together it is
    `Gossip`. Memory: none but the counts. Sends: v_j to every neighbour that arrives.

    Parameters
    ----------
    topology : Topology
        Who receives from whom, with weights that sum to 1 for each receiver.
    """

    def __init__(self, topology: Topology) -> None:
        super().__init__(WaitsFor())
        self.topology = fitting(topology)

    def exchange_of(self, arrived: Tensor, vectors: Tensor, communicator: Communicator) -> Stages:
        matrix = reading(self.topology.at(communicator.step), arrived.numpy())
        return (yield communicator.post_mix(DenseMessage.of(vectors), matrix))
