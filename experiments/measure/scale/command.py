"""The options of `commeff scale`, checked before anything runs, and the study that they describe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commeff.cluster import Cluster, names
from commeff.experiments.config.plugins import Choice
from commeff.experiments.measure.scale import measured, modelled
from commeff.experiments.measure.scale.methods import MethodChoice, read_methods
from commeff.experiments.measure.scale.modelled import ScalingSetting, Worker, powers
from commeff.experiments.measure.scale.page import Study
from commeff.experiments.measure.scale.workloads import WORKLOADS, Workload, find_workload
from commeff.experiments.run.system import cores

MOST = 256  # processes on a machine
MOST_WORKERS = 100_000


@dataclass(frozen=True)
class StudyPlan:
    """What is to be done.

    Attributes
    ----------
    setting, workloads, methods : what is compared.
    largest : the most workers that are modelled; 0: nothing is.
    processes : the numbers of processes that are measured.
    command : that asks for all this.
    """

    setting: ScalingSetting
    workloads: tuple[Workload, ...]
    methods: tuple[MethodChoice, ...]
    largest: int
    processes: tuple[int, ...]
    command: str


def read_options(
    words: Sequence[str] = (),
    *,
    plugins: Sequence[Choice] = (),
    plugin_files: Sequence[str] = (),
    workloads: Sequence[str] | None = None,
    cluster: str = "v100_25g",
    workers: int = modelled.LARGEST,
    worker: Worker = "node",
    step_seconds: float | None = None,
    global_batch: int = 8192,
    overlap: float | None = None,
    processes: str | None = None,
) -> StudyPlan:
    """Make a plan of the options, or raise ValueError with the first that does not fit.

    Parameters
    ----------
    words : `key=value` of the methods, each begun by `method=`; the default picture's where there are none.
    plugins, plugin_files : the choices of plug-ins, and the files that they are in.
    workloads, cluster, workers, worker, step_seconds, global_batch, overlap, processes : as on the command line.
    """
    chosen = [find_workload(name) for name in dict.fromkeys(workloads or WORKLOADS)]
    if step_seconds is not None:
        if len(chosen) > 1:
            raise ValueError("--step-seconds must be of one workload, got several; choose one with --workload")
        chosen = [chosen[0].taking(step_seconds)]
    setting = ScalingSetting(find_cluster(cluster), worker, overlap, global_batch)
    methods = read_methods(words, plugins)
    if workers < 0:
        raise ValueError(f"--workers must be at least 1, or 0 to model nothing, got {workers}")
    if workers > MOST_WORKERS:
        raise ValueError(f"--workers must be at most {MOST_WORKERS:,}, got {workers:,}")
    counts = read_counts(processes)
    if not workers and not counts:
        raise ValueError("--workers 0 and --processes 0 leave nothing to do; leave one of them out")
    typed = ["commeff", "scale", *(word for method in methods for word in method.words)]
    typed += [option for file in plugin_files for option in ("--plugin", file)]
    typed += [option for each in chosen for option in ("--workload", each.name)]
    typed += f"--cluster {cluster} --workers {workers} --worker {worker} --global-batch {global_batch}".split()
    typed += ["--processes", ",".join(map(str, counts)) or "0"]
    typed += [] if overlap is None else ["--overlap", f"{overlap:g}"]
    typed += [] if step_seconds is None else ["--step-seconds", f"{step_seconds:g}"]
    return StudyPlan(setting, tuple(chosen), methods, workers, counts, shlex.join(typed))


def find_cluster(cluster: str) -> Cluster:
    """A shipped cluster by its name, or your own by its file."""
    return Cluster.load(cluster) if cluster not in names() and Path(cluster).suffix else Cluster.named(cluster)


def read_counts(text: str | None) -> tuple[int, ...]:
    """Numbers of processes: as given, none for 0, else the powers of two up to the cores.

    >>> read_counts("2,1"), read_counts("0")
    ((1, 2), ())
    """
    if text is None:
        return tuple(powers(cores()))
    parts = [part.strip() for part in text.split(",")]
    if parts == ["0"]:
        return ()
    if not all(part.isdecimal() and 0 < int(part) <= MOST for part in parts):
        raise ValueError(
            f"--processes must be numbers from 1 to {MOST}, such as 1,2, or 0 to measure nothing, got {text}"
        )
    return tuple(sorted({int(part) for part in parts}))


def make_study(plan: StudyPlan) -> Study:
    """Model and measure."""
    points = []
    if plan.largest:
        points += modelled.curves(plan.setting, plan.workloads, plan.methods, plan.largest)
    if plan.processes:
        points += measured.curves(plan.processes, plan.methods)
    return Study(plan.setting, plan.workloads, plan.methods, tuple(points), plan.command)
