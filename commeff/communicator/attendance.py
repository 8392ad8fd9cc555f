"""What holds for one step, for all views of a communicator at once: its number, who takes part, who has a gradient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from commeff.communicator.wire.transport import Transport
from commeff.compressors import Layout
from commeff.compressors.places import Places


@dataclass
class Now:
    """What changes, for all views of a communicator at once."""

    step: int = 0
    device: torch.device | str = "cpu"
    present: Tensor | None = None  # (n,) bool
    moving: Tensor | None = None  # (w,) bool
    finished: Tensor | None = None  # (n,) bool
    places: Places | None = None
    samples: Tensor | None = None  # (n,)
    losses: Tensor | None = None  # (w,)


class Attendance:
    """The clock of n workers, and which of them take part; the attributes are those of `Communicator`."""

    n: int
    workers: Sequence[int]
    transport: Transport
    _now: Now
    _among: Tensor | None  # (all workers,) bool: who is there, in a view of these
    _homes: list[int]  # of all workers: the first on each process, and n
    _bounds: list[int]  # the same of those who are there
    _views: dict[Any, Self]

    @property
    def step(self) -> int:
        """Model updates since the start; the driver moves it."""
        return self._now.step

    @step.setter
    def step(self, value: int) -> None:
        self._now.step = value

    @property
    def active(self) -> Tensor | None:
        """(w,) bool: who of the hosted workers takes part in this step; None = all n."""
        return None if self._now.present is None else self._now.present[list(self.workers)]

    @active.setter
    def active(self, present: Tensor | None) -> None:
        if present is not None and (present.dtype != torch.bool or present.shape != (self._homes[-1],)):
            raise ValueError(
                f"active must be a truth value for each of the {self._homes[-1]} workers, got {present.dtype} of shape "
                f"{tuple(present.shape)}: every process has to know who takes part"
            )
        self._now.present = None if present is None or bool(present.all()) else present.cpu().clone()

    @property
    def moving(self) -> Tensor | None:
        """(w,) bool: who of the hosted workers takes its local step; None = all. Absent ones do not, in any case."""
        finished = None if self._now.finished is None else self._now.finished[list(self.workers)]
        masks = [mask for mask in (self.active, self._now.moving, finished) if mask is not None]
        return torch.stack([mask.cpu() for mask in masks]).all(0) if len(masks) > 1 else next(iter(masks), None)

    @moving.setter
    def moving(self, value: Tensor | None) -> None:
        self._now.moving = value

    @property
    def share(self) -> float:
        """The share of all workers that are there, in a view of those who are `present`; else 1."""
        return self.n / self._homes[-1]

    @property
    def ids(self) -> Sequence[int]:
        """The ids of all n workers, hosted or not; in a view of those who are `present`, theirs."""
        return range(self.n) if self._among is None else self._among.nonzero().flatten().tolist()

    @property
    def samples(self) -> Tensor | None:
        """(n,): how many training samples each worker has, of those who are there; None: nobody says."""
        samples = self._now.samples
        return samples if samples is None or self._among is None else samples[self._among]

    @samples.setter
    def samples(self, samples: Tensor | None) -> None:
        if samples is not None and (samples.shape != (self._homes[-1],) or not bool((samples > 0).all())):
            raise ValueError(
                f"samples must be a positive number for each of the {self._homes[-1]} workers, got {samples.tolist()}"
            )
        self._now.samples = None if samples is None else samples.cpu().double()

    @property
    def losses(self) -> Tensor | None:
        """(w,): the losses of this step's batches, of the hosted workers; None: nobody says."""
        losses, first = self._now.losses, self._homes[self.transport.rank]
        return losses if losses is None or self._among is None else losses[[w - first for w in self.workers]]

    @losses.setter
    def losses(self, losses: Tensor | None) -> None:
        if losses is not None and losses.shape != (len(self.workers),):
            raise ValueError(
                f"losses must be a number for each of the {len(self.workers)} hosted workers, got shape "
                f"{tuple(losses.shape)}"
            )
        self._now.losses = losses

    def present(self) -> Self:
        """The communicator of those who take part in this step, as `only` them.

        Averages are theirs, an absent neighbour's weight goes to the diagonal, and nobody else is billed. The server is
        there in any case.
        """
        there = self._now.present
        return self if there is None else self.only(there)

    @property
    def finished(self) -> Tensor:
        """(n,) bool, of all workers, absent ones too: who has a gradient for this step."""
        mask = torch.ones(self._homes[-1], dtype=torch.bool) if self._now.finished is None else self._now.finished
        return mask if self._among is None else mask & self._among

    @finished.setter
    def finished(self, value: Tensor | None) -> None:
        if value is not None and (value.dtype != torch.bool or value.shape != (self._homes[-1],)):
            raise ValueError(
                f"finished must be a truth value for each of the {self._homes[-1]} workers, got {value.dtype} of shape "
                f"{tuple(value.shape)}: every process has to know who has a gradient"
            )
        self._now.finished = None if value is None or bool(value.all()) else value.cpu().clone()

    def only(self, chosen: Tensor) -> Self:
        """The communicator of some workers, (n,) bool of all: a run of fewer workers, with the same ids."""
        there = chosen if self._among is None else chosen & self._among
        view = copy(self)
        view._views, view._among = {}, there
        view.workers = [worker for worker in self.workers if there[worker]]
        counts = torch.cat([torch.zeros(1, dtype=torch.long), there.cumsum(0)])
        view._bounds = counts[self._homes].tolist()
        view.n = view._bounds[-1]
        return view

    @property
    def device(self) -> torch.device | str:
        """Where random numbers are drawn: `Strategy.start` sets it to where the rows are. They are equal anywhere."""
        return self._now.device

    @device.setter
    def device(self, value: torch.device | str) -> None:
        self._now.device = value

    def lay(self, x: Tensor, layout: Layout) -> None:
        """Random numbers are from now on those of rows like x, of this layout: `Strategy.start` calls it."""
        self._now.device, self._now.places = x.device, layout.places

    @contextmanager
    def at_step(self, step: int) -> Iterator[None]:
        """The clock set to another step, for the rest of what was begun then."""
        now, self.step = self.step, step
        try:
            yield
        finally:
            self.step = now
