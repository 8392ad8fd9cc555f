"""Seconds of single operations: of a profile, which says everything about them, or of a run's ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from commeff import require
from commeff.cluster import collectives, simulation
from commeff.cluster.cluster import Cluster
from commeff.cluster.codecs import coding_seconds
from commeff.cluster.collectives import Bytes
from commeff.cluster.groups import Groups, Numbers
from commeff.communicator.ledger import Entry
from commeff.profiling import Attended, Operation, Profile
from commeff.topologies import MixingMatrix, Topology

FIXED = {"ring": "one_ring", "tree": "binomial_tree"}  # kinds of a ledger that name the algorithm: our own
SERVERS = ("server", "to_server", "from_server")
KINDS = ("all_reduce", "all_gather", "mix", *SERVERS, *FIXED)


class Recorded:
    """The ledger of a run as a schedule. A ledger does not say what was hidden, so nothing is taken to be.

    Parameters
    ----------
    rows : `ledger.rows`; a step without rows sends nothing.
    workers : n.
    topology : who mixes with whom; needed if the ledger holds `mix`.

    >>> run = Recorded([Entry(3, "gradients", "all_reduce", 1e6, 1.5e6, 1, 1)], workers=4)
    >>> len(run.operations(2)), run.operations(3)[0].kind
    (0, 'all_reduce')
    """

    first = 0
    period = None  # a ledger does not say what repeats

    def __init__(self, rows: Iterable[Entry], workers: int, topology: Topology | None = None) -> None:
        if topology is not None and topology.n != workers:
            raise ValueError(f"topology must have the {workers} workers of the run, got {topology.n}; give the run's")
        self.workers = workers
        self._topology = topology
        self._matrices: dict[int, MixingMatrix] = {}
        self._sent = defaultdict[int, list[Operation]](list)
        for row in rows:
            if row.rounds:
                matrix = self._matrix(row) if row.kind == "mix" else None
                self._sent[row.step].append(Operation(*row, matrix=matrix, waited=row.step))

    @property
    def steps(self) -> int:
        """Steps up to the last one in which something is sent."""
        return max(self._sent, default=-1) + 1

    def operations(self, step: int) -> Sequence[Operation]:
        """The operations of a step, in order."""
        return self._sent.get(step, ())

    def _matrix(self, row: Entry) -> MixingMatrix:
        """The matrix by which a row was mixed, after a look at the number of messages."""
        if self._topology is None:
            raise ValueError(
                f"topology must be given for a ledger that holds gossip (step {row.step}): it says who mixes with whom"
            )
        at = row.step % self._topology.period if self._topology.period else row.step
        if at not in self._matrices:
            self._matrices[at] = self._topology.at(row.step)
        matrix = self._matrices[at]
        degree, billed = float(matrix.out_degrees.mean()), row.messages / row.rounds
        if abs(degree - billed) > 1e-9 * max(1.0, billed):
            raise ValueError(
                f"topology must send the {billed:g} messages a worker that the ledger holds in step {row.step}, "
                f"got {degree:g}; give the run's"
            )
        return matrix


Schedule = Profile | Attended | Recorded  # what workers send in each step


class Billing:
    """Seconds of single operations.

    Parameters
    ----------
    cluster : where; worker i sits on its GPU i.
    workers : n.
    collective : how an `all_reduce` is made, of which a ledger does not say how: one of `collectives.ALL_REDUCE`, or
        "auto", what a library would choose.
    shards : of the server, on as many of the workers.
    members : the workers that collectives connect, of all; None: all. Mixing matrices say themselves whom they connect.

    >>> bill = Billing(Cluster.named("ethernet_1g", gpus=4), workers=4, collective="ring")
    >>> round(bill.seconds(Recorded([Entry(0, "", "all_reduce", 1e6, 1.5e6, 1, 1)], 4).operations(0)[0]), 4)
    0.0131
    """

    def __init__(
        self,
        cluster: Cluster,
        workers: int,
        collective: str = "auto",
        shards: int = 1,
        members: tuple[int, ...] | None = None,
    ) -> None:
        self._cluster, self._collective, self._shards = cluster, collective, shards
        self._workers = workers
        self._groups = Groups.first(cluster, workers) if members is None else Groups.of(cluster, members)
        self._prices: dict[tuple[object, ...], tuple[float, MixingMatrix | None]] = {}
        collectives.all_reduce(self._groups, 0.0, collective)
        collectives.to_server(self._groups, 0.0, shards)

    def seconds(self, operation: Operation) -> float:
        """One operation: its rounds one after the other. Equal ones are priced once."""
        matrix, amounts = operation.matrix, (operation.kind, operation.payload_bytes, operation.wire_bytes)
        key = (*amounts, operation.rounds, operation.shards, id(matrix))
        if key not in self._prices:
            self._prices[key] = self._price(operation), matrix
        return self._prices[key][0]

    def coding(self, operation: Operation) -> float:
        """Encoding its message and decoding what is heard, while nothing else is computed; 0 of whole vectors."""
        coding = operation.coding
        if coding is None or not operation.rounds:
            return 0.0
        messages = coding.messages(operation.kind, self._workers, operation.matrix)
        return float(coding_seconds(self._cluster.gpu, coding, operation.coordinates, messages))

    def _price(self, operation: Operation) -> float:
        kind, rounds = operation.kind, operation.rounds
        require.one_of(KINDS, **{"kind of an operation": kind})
        if not rounds:
            return 0.0
        size = message_bytes(operation)
        if kind == "mix":
            assert operation.matrix is not None
            return rounds * simulation.gossip(self._cluster, operation.matrix, size)
        shards = max(self._shards, operation.shards)
        return rounds * float(collective_seconds(kind, self._groups, size, self._collective, shards, operation.shards))


def message_bytes(operation: Operation) -> float:
    """Bytes of one message of one round: of a mix, in which not everybody may send, of those that are sent."""
    if operation.kind != "mix":
        return operation.payload_bytes / operation.rounds
    if operation.matrix is None:
        raise ValueError(f"matrix of a mix must be given, got None in step {operation.step}")
    return operation.wire_bytes / operation.rounds / float(operation.matrix.out_degrees.mean())


def collective_seconds(
    kind: str, groups: Groups, size: Bytes, collective: str = "auto", shards: int = 1, parts: int = 1
) -> Numbers:
    """One round of an operation that is no mix, for many groups and sizes at once. See `Billing`.

    Parameters
    ----------
    shards : of the server.
    parts : into how many operations the message to the server is cut, which go at once and are billed apart.
    """
    if kind == "all_gather":
        return collectives.all_gather(groups, size)
    if kind in SERVERS:
        return (2 if kind == "server" else 1) * collectives.to_server(groups, size * parts, shards) / parts
    return collectives.all_reduce(groups, size, FIXED.get(kind, collective))
