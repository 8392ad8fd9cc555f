"""One point of a curve: a step's seconds of some method on some workers, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Source = Literal["measured", "modelled"]
Scaling = Literal["weak", "strong"]


@dataclass(frozen=True)
class ScalingPoint:
    """n workers taking steps together.

    Parameters
    ----------
    source : whether `step` was measured or modelled; `place` says on which machine or cluster.
    scaling : weak, the batch of a worker being fixed, or strong, that of all workers together.
    gpus : on which the workers sit; for measured points their processes.
    batch : samples of one worker in a step.
    compute, step : seconds of a step without communication and with it, in the mean over a period of the method.
    alone : samples per second of one worker that sends nothing, with the batch it has when it is alone.
    oversubscribed : more processes than cores took part: what is lost is not communication.
    """

    source: Source
    place: str
    workload: str
    unit: str
    scaling: Scaling
    method: str
    workers: int
    gpus: int
    batch: float
    compute: float
    step: float
    alone: float
    oversubscribed: bool = False

    @property
    def steps_per_second(self) -> float:
        """Model updates."""
        return 1 / self.step

    @property
    def samples_per_second(self) -> float:
        """The throughput of all workers together."""
        return self.workers * self.batch / self.step

    @property
    def ideal(self) -> float:
        """The throughput of as many workers that need not communicate."""
        return self.workers * self.alone

    @property
    def efficiency(self) -> float:
        """Throughput over the ideal one."""
        return self.samples_per_second / self.ideal

    def row(self) -> dict[str, Any]:
        """As a line of a table."""
        return {
            "source": self.source,
            "place": self.place,
            "workload": self.workload,
            "scaling": self.scaling,
            "method": self.method,
            "workers": self.workers,
            "gpus_or_processes": self.gpus,
            "oversubscribed": self.oversubscribed,
            "batch_per_worker": round(self.batch, 3),
            "compute_seconds": _short(self.compute),
            "step_seconds": _short(self.step),
            "exposed_seconds": _short(self.step - self.compute),
            "steps_per_second": _short(self.steps_per_second),
            "samples_per_second": _short(self.samples_per_second),
            "ideal_samples_per_second": _short(self.ideal),
            "efficiency": round(self.efficiency, 4),
            "sample": self.unit,
        }


def _short(number: float) -> float:
    """Five digits.

    >>> _short(0.123456789), _short(123456.7)
    (0.12346, 123460.0)
    """
    return float(f"{number:.5g}")
