"""What the options of `commeff scale` ask for, checked before anything runs, and the study that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commeff.cluster import Cluster, names
from commeff.experiments.measure.scale import measured, modelled
from commeff.experiments.measure.scale.modelled import Setting, Worker, powers
from commeff.experiments.measure.scale.page import Study
from commeff.experiments.measure.scale.sending import METHODS, Choices
from commeff.experiments.measure.scale.workloads import WORKLOADS, Workload, workload
from commeff.experiments.run.system import cores


@dataclass(frozen=True)
class Plan:
    """What is to be done: model up to `largest` workers (0: nothing), measure on `processes`."""

    setting: Setting
    workloads: tuple[Workload, ...]
    methods: tuple[str, ...]
    largest: int
    processes: tuple[int, ...]
    command: str


def asked(
    *,
    workloads: Sequence[str] | None,
    methods: str,
    cluster: str,
    workers: int,
    worker: Worker,
    step_seconds: float | None,
    global_batch: int,
    overlap: float,
    period: int,
    ratio: float,
    processes: str | None,
) -> Plan:
    """The plan, or ValueError with the first thing that cannot be."""
    chosen = [workload(name) for name in dict.fromkeys(workloads or WORKLOADS)]
    if step_seconds is not None:
        if len(chosen) > 1:
            raise ValueError("--step-seconds was given for several workloads; choose one with --workload")
        chosen = [chosen[0].taking(step_seconds)]
    found = Cluster.named(cluster) if cluster in names() else described(cluster)
    setting = Setting(found, worker, overlap, Choices(period, ratio), global_batch)
    own = tuple(dict.fromkeys(name.strip() for name in methods.split(",")))
    for name in own:
        if name not in METHODS:
            raise ValueError(f"there is no method {name!r} here; choose of {' '.join(METHODS)}")
    if workers < 0:
        raise ValueError(f"{workers} workers were asked for; take 1 or more, or 0 to model nothing")
    counted = numbers(processes)
    if not workers and not counted:
        raise ValueError("--workers 0 and --processes 0 leave nothing to do; leave one of them away")
    words = [*(f"--workload {each.name}" for each in chosen), f"--methods {','.join(own)} --cluster {cluster}"]
    words += [f"--workers {workers} --worker {worker} --global-batch {global_batch} --overlap {overlap:g}"]
    words += [f"--period {period} --ratio {ratio:g} --processes {','.join(map(str, counted)) or 0}"]
    words += [] if step_seconds is None else [f"--step-seconds {step_seconds:g}"]
    return Plan(setting, tuple(chosen), own, workers, counted, " ".join(["commeff scale", *words]))


def described(cluster: str) -> Cluster:
    """A cluster of the user's own; what is no file is taken for a name."""
    return Cluster.load(cluster) if Path(cluster).suffix else Cluster.named(cluster)


def numbers(text: str | None) -> tuple[int, ...]:
    """Numbers of processes: as given, none for 0, else the powers of two up to the cores.

    >>> numbers("2,1"), numbers("0")
    ((1, 2), ())
    """
    if text is None:
        return tuple(powers(cores()))
    parts = [part.strip() for part in text.split(",")]
    if parts == ["0"]:
        return ()
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--processes {text} was given; write numbers above 0, such as 1,2, or 0 to measure nothing")
    return tuple(sorted({int(part) for part in parts}))


def study(plan: Plan) -> Study:
    """Model and measure."""
    points = []
    if plan.largest:
        points += modelled.curves(plan.setting, plan.workloads, plan.methods, plan.largest)
    if plan.processes:
        points += measured.curves(plan.processes, plan.methods, plan.setting.choices)
    return Study(plan.setting, plan.workloads, plan.methods, tuple(points), plan.command)
