"""The engine law: who hosts which worker does not show. Processes are rehearsed as threads that write to each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.communicator.wire.transport import Arrived, Transport
from commeff.laws.order import order_of_sums
from commeff.laws.problem import WORKERS, MethodCase, plain_run, run

PATIENCE = 10.0  # seconds after which a message that has not come will never come
OVER = "nothing more"
T = TypeVar("T")
Boxes = Mapping[tuple[int, int], SimpleQueue[tuple[str, Tensor | None]]]  # (sender, receiver) -> what was sent


class Silence(Exception):
    """A process waits for a message that is not sent."""


class Mail(Transport):
    """A process of a rehearsal: sends are put into the receiver's box, receives wait for what the sender put."""

    def __init__(self, rank: int, size: int, boxes: Boxes) -> None:
        super().__init__()
        self.rank, self.size, self._boxes = rank, size, boxes
        self._peers = [peer for peer in range(size) if peer != rank]

    def sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """The sum of everybody's tensor, in rank order."""
        tensors = self._collect("all_reduce", tensor)
        tensor.copy_(torch.stack(tensors).sum(0))
        return lambda: tensor

    def all_gather(self, rows: Tensor, sizes: list[int]) -> Callable[[], Tensor]:
        """Everybody's rows in rank order."""
        rows_of_all = torch.cat(self._collect("all_gather", rows))
        return lambda: rows_of_all

    def exchange(
        self, kind: str, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]
    ) -> Callable[[], Arrived]:
        """Send a buffer to each peer in `outgoing` and fill the buffers of `incoming`."""
        for peer, buffer in outgoing.items():
            self._send(peer, kind, buffer)
        for peer, buffer in incoming.items():
            buffer.copy_(self._receive(peer, kind))
        return lambda: dict(incoming)

    def end(self) -> None:
        """Tell everybody that nothing more will come."""
        for peer in self._peers:
            self._boxes[self.rank, peer].put((OVER, None))

    def _collect(self, kind: str, tensor: Tensor) -> list[Tensor]:
        for peer in self._peers:
            self._send(peer, kind, tensor)
        copy = tensor.clone()
        return [copy if peer == self.rank else self._receive(peer, kind) for peer in range(self.size)]

    def _send(self, peer: int, kind: str, tensor: Tensor) -> None:
        self._boxes[self.rank, peer].put((kind, tensor.detach().clone()))

    def _receive(self, peer: int, kind: str) -> Tensor:
        try:
            operation, tensor = self._boxes[peer, self.rank].get(timeout=PATIENCE)
        except Empty:
            operation, tensor = OVER, None
        if tensor is None or operation != kind:
            raise Silence(f"process {self.rank} waits for {kind} from process {peer}, which sends {operation}")
        return tensor


def rehearse(processes: int, n: int, function: Callable[[Communicator], T]) -> list[T]:
    """[function(communicator) at rank 0, ..., at the last rank]; the error of a rank is raised here.

    >>> rehearse(2, 4, lambda communicator: list(communicator.workers))
    [[0, 1], [2, 3]]
    """
    ranks = range(processes)
    boxes: Boxes = {(a, b): SimpleQueue() for a in ranks for b in ranks}

    def one(rank: int) -> T:
        transport = Mail(rank, processes, boxes)
        try:
            return function(Communicator(n, seed=3, transport=transport))
        finally:
            transport.end()

    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(one, rank) for rank in ranks]
    # A process that fails stops sending, which makes the others fail: the cause is the error that is no silence.
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda error: isinstance(error, Silence)):
        raise error
    return [future.result() for future in futures]


def is_the_same_on_every_engine(case: MethodCase) -> None:
    """One process that hosts all workers, two, or one a worker: the same trajectory and the same bill."""
    whole, communicator = plain_run(case)
    advice = "use what the communicator gives, never shape[0], communicator.workers or a mean over rows"
    for processes in (2, WORKERS):

        def one(communicator: Communicator) -> tuple[Tensor, Any]:
            trajectory, _ = run(case.build(WORKERS), communicator=communicator)
            return trajectory, communicator.ledger.rows

        hosts = f"{case.name}: on {processes} processes of {WORKERS // processes} workers each"
        try:
            outcomes = rehearse(processes, WORKERS, one)
        except Exception as error:
            raise AssertionError(f"{hosts} it fails ({type(error).__name__}: {error}): {advice}") from error
        difference = (torch.cat([trajectory for trajectory, _ in outcomes], 1) - whole).abs().amax(dim=(1, 2))
        wrong = [step for step, size in enumerate(difference.tolist()) if not size <= 1e-12]
        assert not wrong, (
            f"{hosts} the trajectory differs from that of one process, from step {wrong[0]} on, by "
            f"{float(difference.max()):.1e}: {order_of_sums(case, float(difference.max())) or advice}"
        )
        bills = [rows == communicator.ledger.rows for _, rows in outcomes]
        assert all(bills), f"{hosts} the ledger's bill is another than on one process: {advice}"
