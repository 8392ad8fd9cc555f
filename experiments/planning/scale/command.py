"""The study that the options of `commeff scale` describe."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.scale.methods import read_methods
from commeff.experiments.planning.scale.modelled import curves
from commeff.experiments.planning.scale.page import Study
from commeff.experiments.planning.scale.setting import LARGEST, Worker, check_workloads, read_setting
from commeff.experiments.planning.scale.workloads import WORKLOADS


def model_study(
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
) -> Study:
    """Model what the options describe, or raise ValueError with the first that does not fit.

    Parameters
    ----------
    words : `key=value` of the methods, each begun by `method=`; the default picture's where there are none.
    plugins, plugin_files : the choices of plug-ins, and the files that they are in.
    workloads, cluster, workers, worker, step_seconds, global_batch, overlap : as on the command line.
    """
    check_workloads(workloads or [])
    chosen = [WORKLOADS[name] for name in dict.fromkeys(workloads or WORKLOADS)]
    if step_seconds is not None:
        if len(chosen) > 1:
            raise ValueError("--step-seconds must be of one workload, got several; choose one with --workload")
        chosen = [chosen[0].taking(step_seconds)]
    setting = read_setting(cluster, workers, worker, overlap, global_batch)
    methods = read_methods(words, plugins)
    typed = ["commeff", "scale", *(word for method in methods for word in method.words)]
    typed += [option for file in plugin_files for option in ("--plugin", file)]
    typed += [option for each in chosen for option in ("--workload", each.name)]
    typed += f"--cluster {cluster} --workers {workers} --worker {worker} --global-batch {global_batch}".split()
    typed += [] if overlap is None else ["--overlap", f"{overlap:g}"]
    typed += [] if step_seconds is None else ["--step-seconds", f"{step_seconds:g}"]
    points = curves(setting, chosen, methods, workers)
    return Study(setting, tuple(chosen), methods, tuple(points), shlex.join(typed))
