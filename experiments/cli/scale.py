"""`commeff scale`: modelled throughput against workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, deaths, refusals, table, try_folder


def scale(
    settings: Settings = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="resnet50 or bert_large; by default both, or none with a model.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="The name of a cluster, or a YAML file as from `bench comm --profile`.")
    ] = "v100_25g",
    workers: Annotated[int, typer.Option(help="Largest number of workers.")] = 1024,
    worker: Annotated[
        Literal["node", "gpu"], typer.Option(help="A worker is a node of the cluster, or a GPU.")
    ] = "node",
    step_seconds: Annotated[float | None, typer.Option(help="Computing time of a step, for one workload.")] = None,
    global_batch: Annotated[int, typer.Option(help="Samples per step of all workers, in strong scaling.")] = 8192,
    overlap: Annotated[
        float | None,
        typer.Option(help="Share of computing that can hide communication, 0 to 1; by default that of each method."),
    ] = None,
    plugin: Plugins = None,
    out: Annotated[Path | None, typer.Option(help="Write scale.csv, .md, .png and .pdf into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """Model throughput against workers on a cluster: weak and strong scaling, and the ideal line.

    * `commeff scale --out scaling`
    * `commeff scale method=psgd method=choco compressor=top_k compressor.ratio=0.01 topology=ring`
    * `commeff scale --workload bert_large --cluster a100_selene`
    * `commeff scale model=llama2-7b tensor=8 --cluster h100_25g method=psgd method=diloco method.period=50`

    `model=`, `parameters=` or sizes, with the policy keys of `commeff plan` (`tensor= pipeline= zero= recompute=` ...),
    give curves of that transformer: each point is the prediction of `commeff plan` for the same policy and this number
    of GPUs, with two sequences each or --global-batch. The default is two workloads with published speeds on a V100;
    another GPU computes at the same share of its peak.

    Methods have the keys of `commeff train`. Each `method=` begins a new curve; keys before the first apply to all. The
    default is psgd, one-peer dsgd of both orders, local_sgd of period 8 and top-1 % mem_sgd.
    """
    with refusals(), deaths():
        from commeff.experiments.config.method_words import check_words
        from commeff.experiments.planning.question import planning_words
        from commeff.experiments.planning.scale.setting import check_workloads, read_setting

        words = list(settings or [])
        of_model = planning_words(words)
        check_words([word for word in words if word not in of_model], adopted(plugin))
        check_workloads(workload or [])
        read_setting(cluster, workers, worker, overlap, global_batch)
        try_folder("--out", out)

        from commeff.experiments.planning.scale.page import model_study, rows, save

        study = model_study(
            words,
            plugins=adopted(plugin),
            plugin_files=plugin or [],
            workloads=workload,
            cluster=cluster,
            workers=workers,
            worker=worker,
            step_seconds=step_seconds,
            global_batch=global_batch,
            overlap=overlap,
        )
        if out is not None:
            for path in save(study, out):
                typer.echo(str(path), err=True)
    if as_json:
        typer.echo(json.dumps([point.row() for point in study.points], indent=2))
        return
    shown = rows(study)
    table([*shown[0]], [[str(value) for value in row.values()] for row in shown])
    if out is None:
        typer.echo("for strong scaling and other numbers of workers use --out FOLDER or --json")
