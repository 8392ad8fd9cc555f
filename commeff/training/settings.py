"""What a run is: the one description that `train` takes beside task, method and workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import nn

from commeff import require
from commeff.core.events import EventClock
from commeff.training.participation import Participation


@dataclass(frozen=True)
class RunSettings:
    """How long a run is, how its models are computed, who takes part in it when, and where it begins.

    Parameters
    ----------
    steps : int
        Model updates in all, those before a resume included.
    evaluate_every : int
        Steps between two rows of measurements; 0: a twentieth of `steps`.
    engine : {"loop", "vmap"}
        How the models of the hosted workers are run: one after the other, or as one batched graph.
    precision : {"fp32", "bf16", "fp16", "bf16_mixed"}, optional
        In which these models compute, "fp32" unless given; what the method sees stays as they were made. "bf16_mixed"
        is `torch.autocast` of forward passes, of whole models. A `worker` has its own.
    compiled : bool
        Whether models pass through torch.compile, which fuses forward and backward, and rounds in another way. Models
        of tensor or pipeline ranks are refused, as is engine="vmap".
    l2 : float
        l2 x is added to each gradient, before it is compressed.
    groups : callable, optional
        The parameter group of each parameter, from its name and itself; of whole models.
    participation : Participation, optional
        Who takes part in which step; everybody in all, unless given. Absent workers stay where they are, and compute
        and send nothing. Where the others agree after a step, those who return get what they agree on, and are billed.
    event_clock : EventClock, optional
        When workers finish their gradients, by a simulated clock (`commeff.cluster.events`): a step is then n
        gradients, in one event of all or in several of some, and rows have `events` and `simulated_seconds`.
    sample_seconds : float, optional
        Seconds that the device of one process, at its peak, takes for forward and backward of one sample: its model
        FLOPs / the peak. Rows then have `mfu`.
    origin : path, optional
        The folder of another run of this model, with its `checkpoints/` and its metrics.jsonl. A run that has
        no checkpoint of its own goes on from the last of these, on whatever mesh; with another number of workers, all
        begin at the mean of the parameters, and what the method remembers begins anew.

    Examples
    --------
    >>> RunSettings(steps=400).rows_every
    20
    """

    steps: int
    evaluate_every: int = 0
    engine: Literal["loop", "vmap"] = "loop"
    precision: str | None = None
    compiled: bool = False
    l2: float = 0.0
    groups: Callable[[str, nn.Parameter], int] | None = None
    participation: Participation | None = None
    event_clock: EventClock | None = None
    sample_seconds: float | None = None
    origin: str | Path | None = None

    def __post_init__(self) -> None:
        if self.compiled and self.engine != "loop":
            raise ValueError(f"engine must be loop for compiled models, got {self.engine}: omit it")
        if self.event_clock is not None and self.absences is not None:
            raise ValueError(
                "an event clock needs all workers, got participation too: who is absent finishes nothing; omit it"
            )
        if self.sample_seconds is not None:
            require.positive(sample_seconds=self.sample_seconds)

    @property
    def rows_every(self) -> int:
        """Steps between two rows of measurements."""
        return self.evaluate_every or max(1, self.steps // 20)

    @property
    def absences(self) -> Participation | None:
        """Who takes part in which step, if anybody is ever absent."""
        return None if self.participation is None or self.participation.everybody else self.participation
