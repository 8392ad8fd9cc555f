"""Modelled throughput: the profile of a method on a described cluster, beside computing at the pace of a named GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from commeff.cluster.modelled import modelled
from commeff.compressors import Layout
from commeff.experiments.config.method_words import split_methods, strategy
from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.scale.setting import LARGEST, ScalingSetting
from commeff.experiments.planning.scale.workloads import Workload
from commeff.experiments.planning.worker_words import MethodWords
from commeff.profiling import Profile, profile
from commeff.profiling.profile import Stretch

if TYPE_CHECKING:
    from commeff.experiments.planning.scale.planned import PlannedModel

WARM_UP = 16  # steps before a period is timed, in which delayed messages fill their queue
Scaling = Literal["weak", "strong"]
PSGD, DSGD = ("method=psgd",), ("method=dsgd", "topology=one_peer_exponential")
AWC = ("method=dsgd", "method.order=awc", "topology=one_peer_exponential")
SHOWN = (
    PSGD,
    DSGD,
    AWC,
    ("method=local_sgd", "method.period=8"),
    ("method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01"),
)  # where no method is named
CHECKED = 8  # workers with which a method is built before anything runs


def read_methods(words: Sequence[str], plugins: Sequence[Choice] = ()) -> tuple[MethodWords, ...]:
    """The methods of a command line, each begun by `method=`; those of `SHOWN` where none is given.

    >>> [str(method) for method in read_methods([])]
    ['psgd', 'dsgd, one_peer_exponential', 'dsgd, order awc, one_peer_exponential', 'local_sgd, period 8',
    'mem_sgd, top_k, ratio 0.01']
    """
    chosen = [tuple(group) for group in split_methods(words)] or SHOWN
    for group in chosen:
        strategy(group, CHECKED, plugins)
    return tuple(MethodWords(group, tuple(plugins)) for group in dict.fromkeys(chosen))


@dataclass(frozen=True)
class ScalingPoint:
    """n workers taking steps together.

    Parameters
    ----------
    setting : where they sit.
    workload, unit : what is trained, and what a sample of it is.
    scaling : weak, the batch of a worker being fixed, or strong, that of all workers together.
    method : by its name.
    workers : how many.
    batch : samples of one worker in a step.
    compute, step : seconds of a step without communication and with it, in the mean over a period of the method.
    alone : samples per second of one worker that sends nothing, with the batch it has when it is alone.
    """

    setting: ScalingSetting
    workload: str
    unit: str
    scaling: Scaling
    method: str
    workers: int
    batch: float
    compute: float
    step: float
    alone: float

    @property
    def gpus(self) -> int:
        """On how many they sit."""
        return self.workers * self.setting.inside

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
        """The point as a line of a table."""
        return {
            "cluster": self.setting.cluster.name,
            "workload": self.workload,
            "scaling": self.scaling,
            "method": self.method,
            "workers": self.workers,
            "gpus": self.gpus,
            "batch_per_worker": round(self.batch, 3),
            "compute_seconds": _short(self.compute),
            "step_seconds": _short(self.step),
            "exposed_seconds": _short(self.step - self.compute),
            "steps_per_second": _short(1 / self.step),
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


def steady(sent: Profile) -> Profile:
    """The profile from the step on from which its operations repeat."""
    steps = [tuple(op.moved(-sent.first) for op in sent.operations(sent.first + k)) for k in range(sent.period)]
    return replace(sent, stretches=(Stretch(0, 0, sent.period),), steps=dict(enumerate(steps)))


@cache
def profiled(method: MethodWords, layout: Layout, n: int) -> tuple[Profile, int]:
    """What n workers send, and the minibatches of a step."""
    built, config = strategy(method.words, n, method.plugins)
    return profile(built, layout, n, collective=config["collective"]), built.accumulate


def communicated(setting: ScalingSetting, description: Profile, compute: float) -> float:
    """Seconds of a step in the mean over a period."""
    period = description.period
    before = -(-WARM_UP // period) * period
    run = modelled(
        steady(description),
        setting.among(description.workers),
        steps=before + period,
        compute=compute,
        overlap=setting.overlap,
    )
    return float(run.by_step[-1] - run.by_step[before - 1]) / period


def point(setting: ScalingSetting, workload: Workload, scaling: Scaling, method: MethodWords, n: int) -> ScalingPoint:
    """n workers by one method.

    Weak scaling: each GPU has the workload's batch. Strong: the n-th part of the global batch for each worker, and time
    falls with it in proportion, which a real GPU does not reach with few samples. A method of several minibatches in a
    step takes as many of these.
    """
    full = float(workload.batch * setting.inside)
    first, batch = (full, full) if scaling == "weak" else (setting.global_batch, setting.global_batch / n)
    description, minibatches = profiled(method, workload.layout, n) if n > 1 else (None, 1)
    compute = minibatches * setting.computing(workload, batch)
    return ScalingPoint(
        setting,
        workload.name,
        workload.unit,
        scaling,
        str(method),
        n,
        batch=minibatches * batch,
        compute=compute,
        step=communicated(setting, description, compute) if description is not None else compute,
        alone=first / setting.computing(workload, first),
    )


def curves(
    setting: ScalingSetting,
    workloads: Sequence[Workload | PlannedModel],
    methods: Sequence[MethodWords],
    largest: int = LARGEST,
) -> list[ScalingPoint]:
    """All points: weak and strong scaling of each workload by each method, on 1, 2, 4, ... workers.

    Strong scaling ends where a GPU has less than one sample. What a model's policy does not allow is left out.
    """
    numbers = [n for n in (1 << k for k in range(largest.bit_length())) if setting.fits(n)]
    enough = [n for n in numbers if n * setting.inside <= setting.global_batch]
    kinds: dict[Scaling, list[int]] = {"weak": numbers, "strong": enough}
    points: list[ScalingPoint | None] = []
    for workload in workloads:
        make = partial(point, setting, workload) if isinstance(workload, Workload) else partial(workload.point, setting)
        points += [make(kind, method, n) for method in methods for kind, some in kinds.items() for n in some]
    return [drawn for drawn in points if drawn is not None]
