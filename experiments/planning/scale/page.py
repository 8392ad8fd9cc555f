"""The study that the options of `commeff scale` describe, as files: scale.csv with every point, scale.md with what is
assumed and seen, the figure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commeff.cluster.codecs import SHARE
from commeff.cluster.modelled import BACKWARD
from commeff.experiments.config.plugins import Choice
from commeff.experiments.planning.question import planning_words
from commeff.experiments.planning.scale.modelled import (
    AWC,
    DSGD,
    PSGD,
    ScalingPoint,
    curves,
    point,
    profiled,
    read_methods,
)
from commeff.experiments.planning.scale.picture import CAPTION, figure
from commeff.experiments.planning.scale.planned import PlannedModel, read_planned
from commeff.experiments.planning.scale.setting import LARGEST, ScalingSetting, Worker, read_setting
from commeff.experiments.planning.scale.workloads import WORKLOADS, Workload
from commeff.experiments.planning.worker_words import MethodWords
from commeff.experiments.report.draw.figures import write
from commeff.experiments.report.write.page import write_text
from commeff.experiments.report.write.table import Table, markdown
from commeff.experiments.run.system import cpu_name, git_commit

SHOWN = (1, 8, 64, 256, 1024)  # workers that the table has
HIDING_AT = 16  # workers of the table of what hides
HIDINGS = {
    "what each method can hide, as above": None,
    "nothing, as in gossip_time": 0.0,
    "whatever backward can, as in BlueFog's code": BACKWARD,
}


@dataclass(frozen=True)
class Study:
    """The workloads and methods compared, and their points.

    Attributes
    ----------
    setting, workloads, methods : what is modelled.
    points : all of them.
    command : that makes them, without the folder.
    """

    setting: ScalingSetting
    workloads: tuple[Workload | PlannedModel, ...]
    methods: tuple[MethodWords, ...]
    points: tuple[ScalingPoint, ...]
    command: str

    def among(self, *chosen: tuple[str, ...]) -> list[MethodWords]:
        """Those of some methods, by their words, that are compared."""
        methods = map(MethodWords, chosen)
        return [method for method in methods if method in self.methods]

    @property
    def jobs(self) -> list[Workload]:
        """The workloads that profiles are of; none of a model."""
        return [workload for workload in self.workloads if isinstance(workload, Workload)]

    @property
    def largest(self) -> int:
        """The most workers that are modelled."""
        return max(point.workers for point in self.points)


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
    words : `key=value` of the methods, each begun by `method=`, the default picture's where there are none; and of a
        model and its policy.
    plugins, plugin_files : the choices of plug-ins, and the files that they are in.
    workloads, cluster, workers, worker, step_seconds, global_batch, overlap : as on the command line.
    """
    setting = read_setting(cluster, workers, worker, overlap, global_batch)
    of_model = planning_words(words)
    planned = read_planned(of_model, cluster, plugins)
    methods = read_methods([word for word in words if word not in of_model], plugins)
    chosen: list[Workload | PlannedModel]
    if planned is not None:
        if workloads or step_seconds is not None or overlap is not None:
            raise ValueError(
                "--workload, --step-seconds and --overlap must be left out with a model, got one of them: the planner "
                "says how long it computes, and overlap=none, partial or full what hides"
            )
        chosen = [planned]
    else:
        jobs = [WORKLOADS[name] for name in dict.fromkeys(workloads or WORKLOADS)]
        if step_seconds is not None and len(jobs) > 1:
            raise ValueError("--step-seconds must be of one workload, got several; choose one with --workload")
        gpu = setting.cluster.gpu
        chosen = [job.on(gpu) if step_seconds is None else job.taking(step_seconds) for job in jobs]
    typed = ["commeff", "scale", *of_model, *(word for method in methods for word in method.words)]
    typed += [option for file in plugin_files for option in ("--plugin", file)]
    typed += [option for workload in chosen if workload is not planned for option in ("--workload", workload.name)]
    typed += f"--cluster {cluster} --workers {workers} --worker {worker} --global-batch {global_batch}".split()
    typed += [] if overlap is None else ["--overlap", f"{overlap:g}"]
    typed += [] if step_seconds is None else ["--step-seconds", f"{step_seconds:g}"]
    points = curves(setting, chosen, methods, workers)
    if not points and planned is not None:
        raise ValueError(f"{planned.name} has no point: {planned.refusal(setting, methods[0], workers)}")
    return Study(setting, tuple(chosen), methods, tuple(points), shlex.join(typed))


def save(study: Study, out: Path) -> list[Path]:
    """Write all files; the CSV is the figure's data."""
    out.mkdir(parents=True, exist_ok=True)
    write(figure(study.points), out)
    write_text(out / "scale.md", page(study))
    return [out / f"scale.{kind}" for kind in ("csv", "md", "pdf", "png")]


def page(study: Study) -> list[str]:
    """The lines of the page."""
    return [
        *("# Throughput against workers", "", "![Throughput against workers](scale.png)", "", CAPTION, ""),
        *assumed(study),
        "",
        *markdown(Table.of(rows(study))),
        "",
        *messages(study),
        *notes(study),
        "",
        f"Made by `{study.command}` at commit {git_commit()} on {cpu_name()}.",
    ]


def assumed(study: Study) -> list[str]:
    """Every assumption behind the modelled points."""
    setting, cluster = study.setting, study.setting.cluster
    lines = [
        f"Nothing here was measured. Cluster: {cluster.name}, nodes of {cluster.per_node} x {cluster.gpu.name}, "
        f"{cluster.nics} NIC(s) of {cluster.inter.rate / 1e9:.3g} GB/s and {1e6 * cluster.inter.latency:.3g} us, "
        f"{cluster.intra.rate / 1e9:.3g} GB/s inside a node; network: {cluster.network.description()['kind']}, "
        "as large as needed.",
        "",
    ]
    lines += [
        f"- {job.name}: {job.question.model.parameters / 1e9:.4g} billion parameters, each step as `commeff plan` "
        f"prices it under {job.policy}"
        for job in study.workloads
        if not isinstance(job, Workload)
    ]
    lines += [
        f"- {job.name}: {job.parameters / 1e6:.4g} million parameters, float32 on the wire ({job.bytes / 1e6:.4g} "
        f"MB); {job.batch} {job.unit} on each GPU, which takes {job.step_seconds:.3g} s at {job.per_second:g} "
        f"{job.unit}/s ({job.source})"
        for job in study.jobs
    ]
    if setting.worker == "node":
        lines.append(
            "- a worker is a node: its GPUs average their gradients inside in every step, whatever the method, and the "
            "node is one worker among nodes, with all its NICs"
        )
    else:
        lines.append("- a worker is one GPU; GPUs of a node share its NICs")
    return [
        *lines,
        "- what each method sends is its profile (the table below); an all-reduce takes as long as the cheapest of "
        "ring, tree and hierarchical rings",
        f"- encoding and decoding take what was measured where the description of {cluster.gpu.name} says it, else "
        f"bytes moved over {SHARE:.0%} of its memory bandwidth (estimated); averaging takes no time; no stragglers; "
        "nobody else uses the network",
        *([hiding(setting)] if study.jobs else []),
        f"- weak scaling keeps each GPU's batch; strong scaling deals {setting.global_batch} samples a step to all "
        "workers, and computing falls in proportion, which real GPUs do not reach with few samples",
        "- the ideal line is that many times one worker. Samples per second are not progress: steps of gossip, local "
        "and compressed methods are worth less than psgd's, by as much as the convergence reports say",
    ]


def hiding(setting: ScalingSetting) -> str:
    """What communication can hide behind."""
    if setting.overlap is not None:
        return f"- a share {setting.overlap:g} of computing can hide communication, whatever the method"
    return (
        "- gradients that leave in buckets hide behind backward, two thirds of computing; what is posted before the "
        "gradient is computed behind all of computing; what is waited for in a later step behind the steps between; "
        "nothing else is hidden"
    )


def messages(study: Study) -> list[str]:
    """What each method sends and remembers, from its profile."""
    n, rows, remarks = study.largest, [], []
    if n == 1:
        return []
    for workload in study.jobs:
        for method in study.methods:
            description, _ = profiled(method, workload.layout, n)
            period = range(description.first, description.first + description.period)
            operations = [operation for step in period for operation in description.operations(step)]
            rows.append(
                {
                    "workload": workload.name,
                    "method": str(method),
                    "steps of a period": description.period,
                    "payload a step (MB)": round(description.payload_bytes / 1e6, 3),
                    "on the wire a step (MB)": round(description.wire_bytes / 1e6, 3),
                    "kinds": ", ".join(dict.fromkeys(operation.kind for operation in operations)),
                    "memory (MB)": round(sum(description.memory_bytes.values()) / 1e6, 1),
                }
            )
            remarks += [f"- {method}: {description.note}."] if description.note else []
    if not rows:
        return []
    head = f"What one of {n} workers sends in the mean of a period, and what the method remembers:"
    return [head, "", *markdown(Table.of(rows)), "", *dict.fromkeys(remarks)]


def rows(study: Study) -> list[dict[str, Any]]:
    """Throughput and efficiency of weak scaling at a few numbers of workers, the largest among them."""
    shown = [point for point in study.points if point.scaling == "weak" and point.workers in (*SHOWN, study.largest)]
    return [
        {
            "workload": point.workload,
            "method": point.method,
            "workers": point.workers,
            "GPUs": point.gpus,
            "step (ms)": round(1e3 * point.step, 1),
            "samples/s": f"{point.samples_per_second:,.0f}",
            "of ideal": f"{point.efficiency:.0%}",
        }
        for point in shown
    ]


def notes(study: Study) -> list[str]:
    """What the modelled numbers say, from the numbers."""
    lines = []
    for workload in study.workloads:
        points = {
            (point.method, point.workers): point
            for point in study.points
            if (point.workload, point.scaling) == (workload.name, "weak")
        }
        last = study.largest
        reference = points.get(("psgd", last))
        if reference is None or last == 1:
            continue
        ratio = (reference.step - reference.compute) / reference.compute
        gains = [
            f"{method} {points[str(method), last].samples_per_second / reference.samples_per_second:.2f}"
            for method in study.methods
            if method.words != PSGD and (str(method), last) in points
        ]
        lines.append(
            f"- {workload.name}: psgd waits for communication {ratio:.2f} times as long as it computes on {last} "
            f"workers (weak scaling). Throughput over psgd's there: {'; '.join(gains) or 'no other method is drawn'}."
        )
    return lines + flat_notes(study) + hiding_notes(study)


def hiding_notes(study: Study) -> list[str]:
    """How all-reduce and gossip compare under three assumptions about what hides."""
    methods, rows = study.among(PSGD, DSGD, AWC), []
    if len(methods) < 3 or study.largest < HIDING_AT or not study.jobs:
        return []
    workload = study.jobs[0]
    for words, overlap in HIDINGS.items():
        setting = replace(study.setting, overlap=overlap)
        shares = {str(method): point(setting, workload, "weak", method, HIDING_AT).efficiency for method in methods}
        rows.append({"what hides communication": words, **{name: f"{share:.0%}" for name, share in shares.items()}})
    head = f"What hides decides which is faster. {workload.name} on {HIDING_AT} workers, of the ideal throughput:"
    return ["", head, "", *markdown(Table.of(rows)), ""]


def flat_notes(study: Study) -> list[str]:
    """What becomes of one-peer gossip if every GPU is a worker and all of a node send through one NIC."""
    cluster, both = study.setting.cluster, study.among(PSGD, DSGD)
    if study.setting.worker == "gpu" or cluster.per_node == cluster.nics or len(both) < 2 or not study.jobs:
        return []
    n, workload, flat = 8 * cluster.per_node, study.jobs[0], replace(study.setting, worker="gpu")
    ring, gossip = (point(flat, workload, "weak", method, n) for method in both)
    return [
        f"- With every GPU a worker of its own, all {cluster.per_node} of a node send their parameters through "
        f"{cluster.nics} NIC(s) in most rounds of one-peer gossip, while an all-reduce passes through it once: on {n} "
        f"GPUs {workload.name} then has {ring.efficiency:.0%} of the ideal throughput by psgd and "
        f"{gossip.efficiency:.0%} by dsgd. Gossip pays among nodes, not among GPUs that share a NIC."
    ]
