"""`commeff scale`: throughput against workers, measured and modelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from commeff.experiments.cli.columns import table
from commeff.experiments.cli.common import Json, refusals
from commeff.experiments.cli.deaths import deaths


def scale(
    workload: Annotated[
        list[str] | None, typer.Option("--workload", help="resnet50 or bert_large; both unless told.")
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", help="Comma-separated, of psgd, dsgd, local_sgd, mem_sgd.")
    ] = "psgd,dsgd,local_sgd,mem_sgd",
    cluster: Annotated[
        str, typer.Option("--cluster", help="A shipped cluster, or a YAML file such as `bench comm --profile` writes.")
    ] = "v100_25g",
    workers: Annotated[int, typer.Option("--workers", help="Model up to so many; 0 models nothing.")] = 1024,
    worker: Annotated[
        Literal["node", "gpu"], typer.Option("--worker", help="Whether a worker is a node of the cluster or a GPU.")
    ] = "node",
    step_seconds: Annotated[
        float | None, typer.Option("--step-seconds", help="Compute time of a step, for one workload.")
    ] = None,
    global_batch: Annotated[
        int, typer.Option("--global-batch", help="Samples of a step of all workers, in strong scaling.")
    ] = 8192,
    overlap: Annotated[
        float, typer.Option("--overlap", help="Share of computing that can hide communication, 0 to 1.")
    ] = 0.0,
    period: Annotated[int, typer.Option("--period", help="Steps between the averages of local_sgd.")] = 8,
    ratio: Annotated[float, typer.Option("--ratio", help="Share of coordinates that mem_sgd sends.")] = 0.01,
    processes: Annotated[
        str | None,
        typer.Option(
            "--processes", help="Measure on so many, as 1,2; up to the cores unless told; 0: measure nothing."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write scale.csv, .md, .png and .pdf into this folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Throughput against workers: weak and strong scaling with the ideal line, measured for the processes at hand and
    modelled on a cluster, always marked which.

    * `commeff scale --out scaling`
    * `commeff scale --workload bert_large --cluster a100_selene --processes 0`
    """
    with refusals(), deaths():
        from commeff.experiments.measure.scale.command import asked, study
        from commeff.experiments.measure.scale.page import measured_rows, modelled_rows, save

        plan = asked(
            workloads=workload,
            methods=methods,
            cluster=cluster,
            workers=workers,
            worker=worker,
            step_seconds=step_seconds,
            global_batch=global_batch,
            overlap=overlap,
            period=period,
            ratio=ratio,
            processes=processes,
        )
        found = study(plan)
        if out is not None:
            for path in save(found, out):
                typer.echo(str(path), err=True)
    if as_json:
        typer.echo(json.dumps([point.row() for point in found.points], indent=2))
        return
    for rows in (modelled_rows(found), measured_rows(found)):
        if rows:
            table([*rows[0]], [[str(value) for value in row.values()] for row in rows])
    if out is None and found.of("modelled"):
        typer.echo("strong scaling and the other numbers of workers: --out FOLDER, or --json")
