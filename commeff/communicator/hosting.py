"""Who is where: workers, processes, the server's row, and the views of one communicator that its parts are handed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from commeff.communicator.collectives import Collective
from commeff.communicator.ledger import Ledger
from commeff.communicator.mixing import MixPlan
from commeff.communicator.wire.transport import Transport
from commeff.compressors import WorkerRandom
from commeff.topologies import MixingMatrix

SERVER = -1  # the server's id in the keys of its randomness


@dataclass
class Common:
    """What every view of one communicator shares.

    Attributes
    ----------
    n : int
        The number of all workers.
    seed : int
        The key of all randomness.
    transport : Transport
        The processes, and the bytes handed to them.
    bounds : list of int
        Worker ids bounds[r] .. bounds[r + 1] - 1 live at process r.
    collective : Collective or None
        How averages travel; None: by what each message allows.
    step : int
        The clock: model updates since the start.
    device : torch.device or str
        Where the rows are, and random numbers are drawn.
    active : (w,) bool tensor or None
        Which hosted workers take part in this step; None: all.
    ledger : Ledger
        What was sent, per worker.
    plans : dict
        The plan of each mixing matrix seen, by the matrix's id, with the matrix itself.
    """

    n: int
    seed: int
    transport: Transport
    bounds: list[int]
    collective: Collective | None = None
    step: int = 0
    device: torch.device | str = "cpu"
    active: Tensor | None = None
    ledger: Ledger = field(default_factory=Ledger)
    plans: dict[int, tuple[MixingMatrix, MixPlan]] = field(default_factory=dict)


class Hosting:
    """One view of a communicator: a place in the strategy, a block of columns, a home of the server's row.

    Attributes
    ----------
    path : tuple of str
        The place in the strategy, which keys randomness and labels the ledger.
    start : int
        The first column of the block, in the coordinates of the whole vector.
    home : int
        The worker with which the server's row is.
    workers : sequence of int
        The ids of the workers hosted by this process.
    """

    _common: Common
    _views: dict[Any, Self]
    path: tuple[str, ...]
    start: int
    home: int
    workers: Sequence[int]
    _label: str

    def _view(self, key: Any, path: tuple[str, ...], start: int, home: int, workers: Sequence[int]) -> Self:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = object.__new__(type(self))
            view._common, view._views = self._common, {}
            view.path, view.start, view.home, view.workers = path, start, home, workers
            view._label = "/".join(path)
        return view

    def child(self, name: str) -> Self:
        """One level deeper in the path that keys randomness and labels the ledger."""
        return self._view(name, (*self.path, name), self.start, self.home, self.workers)

    def at(self, name: str) -> Self:
        """Another name of `child`."""
        return self.child(name)

    def columns(self, start: int) -> Self:
        """The communicator of the block of columns that begins `start` columns further on: the same streams of random
        numbers, from there on.
        """
        return self._view(start, self.path, self.start + start, self.home, self.workers)

    def homed(self, worker: int) -> Self:
        """The communicator whose server row is with that worker: one shard of a sharded server."""
        return self._view(("home", worker), self.path, self.start, worker, self.workers)

    @contextmanager
    def at_step(self, step: int) -> Iterator[None]:
        """The clock set to another step, for the rest of what was begun then."""
        now, self.step = self.step, step
        try:
            yield
        finally:
            self.step = now

    def together(self, linger: bool = False) -> AbstractContextManager[None]:
        """Posts everything begun inside as one operation, at the end, so that exchanges do not queue behind each other.

        Parameters
        ----------
        linger : bool
            Let it wait even longer, until a result is needed, where that costs nothing.
        """
        return self.transport.together(linger)

    @property
    def server(self) -> Self:
        """A view whose only rows are the server's: its randomness, its rows."""
        return self._view(None, (*self.path, "server"), self.start, self.home, (SERVER,) * self.servers)

    @property
    def n(self) -> int:
        """All workers."""
        return self._common.n

    @property
    def seed(self) -> int:
        """The key of all randomness."""
        return self._common.seed

    @property
    def ledger(self) -> Ledger:
        """What was sent, per worker."""
        return self._common.ledger

    @property
    def transport(self) -> Transport:
        """The processes, and the bytes handed to them."""
        return self._common.transport

    @property
    def servers(self) -> int:
        """1 if the server's row is hosted here, else 0."""
        return int(self._common.transport.rank == self._host)

    @property
    def _host(self) -> int:
        """The process that hosts the server's row."""
        return bisect_right(self._common.bounds, self.home) - 1

    @property
    def step(self) -> int:
        """Model updates since the start; the driver moves it."""
        return self._common.step

    @step.setter
    def step(self, value: int) -> None:
        self._common.step = value

    @property
    def active(self) -> Tensor | None:
        """(w,) bool: who takes part in this step; None = all."""
        return self._common.active

    @active.setter
    def active(self, value: Tensor | None) -> None:
        self._common.active = value

    @property
    def device(self) -> torch.device | str:
        """Where random numbers are drawn: `Strategy.start` sets it to where the rows are. They are equal anywhere."""
        return self._common.device

    @device.setter
    def device(self, value: torch.device | str) -> None:
        self._common.device = value

    def random(self, purpose: str) -> WorkerRandom:
        """A stream for each hosted row, keyed by (seed, step, worker, path, purpose): equal on every engine."""
        common = self._common
        return WorkerRandom(common.seed, self.workers, common.step, (*self.path, purpose), self.start, common.device)
