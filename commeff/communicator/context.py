"""What the driver of a method knows of a step, for all views of a communicator at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from commeff.compressors.places import Places


@dataclass(slots=True)
class Context:
    """Who takes part in a step, and what else its driver knows of it and of the run.

    `Communicator.begin` sets what belongs to one step: present, finished, active, moving and losses. Until it is
    called, everybody takes part.

    Attributes
    ----------
    n : int
        The number of all workers, absent ones too.
    step : int
        The clock.
    present : (n,) bool tensor
        Who takes part in this step, the same on every process.
    finished : (n,) bool tensor
        Who of them has a gradient for it. The others of an asynchronous method take part too, and still compute.
    active, moving : (w,) bool tensor or None
        Which of the hosted workers are present, and which of them are finished; None: all n.
    losses : (w,) tensor or None
        The losses of the hosted workers' batches of this step, if the driver gives them.
    samples : (n,) tensor or None
        How many training samples each worker has, if the driver gives them.
    device : torch.device or str
        Where random numbers are drawn, which are equal anywhere: where the rows are.
    places : Places or None
        The places of the rows' columns in the whole model; None: one after the other.
    """

    n: int
    step: int = 0
    present: Tensor = field(init=False)
    finished: Tensor = field(init=False)
    active: Tensor | None = None
    moving: Tensor | None = None
    losses: Tensor | None = None
    samples: Tensor | None = None
    device: torch.device | str = "cpu"
    places: Places | None = None

    def __post_init__(self) -> None:
        self.present = self.finished = torch.ones(self.n, dtype=torch.bool)

    def begin(
        self,
        step: int,
        present: Tensor | None,
        finished: Tensor | None,
        losses: Tensor | None,
        hosted: list[int],
    ) -> None:
        """`Communicator.begin`, of a process that hosts some of the workers."""
        for name, mask in {"present": present, "finished": finished}.items():
            if mask is not None and (mask.dtype != torch.bool or mask.shape != (self.n,)):
                raise ValueError(
                    f"{name} must be a truth value for each of the {self.n} workers, got {mask.dtype} of shape "
                    f"{tuple(mask.shape)}: every process has to know who"
                )
        self.step, self.losses = step, losses
        self.present = torch.ones(self.n, dtype=torch.bool) if present is None else present.cpu().clone()
        self.finished = self.present if finished is None else self.present & finished.cpu()
        self.active = None if bool(self.present.all()) else self.present[hosted]
        self.moving = None if bool(self.finished.all()) else self.finished[hosted]
