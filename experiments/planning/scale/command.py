"""The options of `commeff scale`, checked before anything runs, and the study that they describe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.scale import measured, modelled
from commeff.experiments.planning.scale.methods import MethodChoice, read_methods
from commeff.experiments.planning.scale.page import Study
from commeff.experiments.planning.scale.setting import LARGEST, ScalingSetting, Worker, check_workloads, read_numbers
from commeff.experiments.planning.scale.workloads import WORKLOADS, Workload


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
    workers: int = LARGEST,
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
    check_workloads(workloads or [])
    chosen = [WORKLOADS[name] for name in dict.fromkeys(workloads or WORKLOADS)]
    if step_seconds is not None:
        if len(chosen) > 1:
            raise ValueError("--step-seconds must be of one workload, got several; choose one with --workload")
        chosen = [chosen[0].taking(step_seconds)]
    setting, counts = read_numbers(cluster, workers, worker, overlap, global_batch, processes)
    methods = read_methods(words, plugins)
    typed = ["commeff", "scale", *(word for method in methods for word in method.words)]
    typed += [option for file in plugin_files for option in ("--plugin", file)]
    typed += [option for each in chosen for option in ("--workload", each.name)]
    typed += f"--cluster {cluster} --workers {workers} --worker {worker} --global-batch {global_batch}".split()
    typed += ["--processes", ",".join(map(str, counts)) or "0"]
    typed += [] if overlap is None else ["--overlap", f"{overlap:g}"]
    typed += [] if step_seconds is None else ["--step-seconds", f"{step_seconds:g}"]
    return StudyPlan(setting, tuple(chosen), methods, workers, counts, shlex.join(typed))


def make_study(plan: StudyPlan) -> Study:
    """Model and measure."""
    points = []
    if plan.largest:
        points += modelled.curves(plan.setting, plan.workloads, plan.methods, plan.largest)
    if plan.processes:
        points += measured.curves(plan.processes, plan.methods)
    return Study(plan.setting, plan.workloads, plan.methods, tuple(points), plan.command)
