"""`commeff bandwidth`: the Gbit/s between workers that a method needs."""

from __future__ import annotations

import json
from math import isinf
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import (
    Json,
    Plugins,
    Settings,
    adopted,
    deaths,
    refusals,
    table,
    try_figure,
    try_file,
)


def bandwidth(
    settings: Settings = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write utilisation,gbit_per_s; - prints them alone.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw utilisation against bandwidth.")
    ] = None,
    layerwise: Annotated[
        bool,
        typer.Option(
            "--layerwise",
            help="Let every exchange leave layer by layer while the backward pass runs, outer gradients too, as the "
            "simulator of Streaming DiLoCo does. Otherwise each method hides what it can.",
        ),
    ] = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Gbit/s between workers at which 50, 80, 90, 95 and 99 % of all time is computing, by method.

    * `commeff bandwidth parameters=10e9 layers=48 step_seconds=0.8 workers=2 method=diloco method.period=100`
    * `commeff bandwidth parameters=10e9 layers=48 step_seconds=0.8 --layerwise --figure bandwidth.png`
    * `commeff bandwidth parameters=1e9 layers=24 step_seconds=1 workers=8 latency="50 ms" method=dsgd topology=ring`
    * `commeff bandwidth model=llama2-7b cluster=a100_4nic gpus=64 recompute=full method=psgd method=diloco period=50`

    A job is `parameters= layers= step_seconds=` (of computing), `workers=` (2), `dtype=` (bf16, fp16 or fp32) and
    `latency=` of a message (0); each worker has one link to all others. Or it is a model on a cluster, by the words of
    `commeff plan`, split as they say; then the bandwidth is a NIC's, and workers and ZeRO stage are the best at each.

    Methods are described by the words of `commeff train`: each `method=` begins another one, and what stands before the
    first belongs to all. `period=` is short for `method.period=`. Without any, psgd, two DiLoCos and top-1 % mem_sgd
    are shown.

    Nothing is measured. What a method sends is its profile, which is what a run sends; seconds are modelled. With
    --layerwise 163 of the 165 cells that two papers print are met within one step of their grid, a factor of 1.2.
    """
    with refusals(), deaths():
        alone = csv is not None and str(csv) == "-"
        if alone and as_json:
            raise ValueError("--csv - must be left out with --json, got both: each prints alone")
        try_file("--csv", None if alone else csv)
        try_figure("a figure's file", figure)

        from commeff.experiments.planning.bandwidth import LEVELS, rows
        from commeff.experiments.planning.scale.job import read_paces

        paces = read_paces(settings or [], adopted(plugin), layerwise)
        found = rows(paces)
        if csv is not None:
            lines = [",".join(found[0]), *(",".join(_cell(value) for value in row.values()) for row in found)]
            if alone:
                typer.echo("\n".join(lines))
            else:
                csv.parent.mkdir(parents=True, exist_ok=True)
                csv.write_text("\n".join(lines) + "\n", encoding="utf-8")
        if figure is not None:
            from commeff.experiments.planning import figures

            figures.save(figure, (8.0, 3.6), lambda canvas: figures.utilisation(canvas, paces, "Computing time"))
            typer.echo(str(figure), err=True)
    if as_json:
        numbers = [{**row, "gbit_per_s": None if isinf(row["gbit_per_s"]) else row["gbit_per_s"]} for row in found]
        typer.echo(json.dumps(numbers, indent=2))
    elif not alone:
        typer.echo("Gbit/s between workers at which so much of all time is computing (modelled)\n")
        every = [_shown(row["gbit_per_s"]) for row in found]
        count = len(LEVELS)
        table(
            ("method", *(f"{100 * level:.0f} %" for level in LEVELS)),
            [[name, *every[i * count : (i + 1) * count]] for i, name in enumerate(paces)],
        )


def _cell(value: object) -> str:
    """As CSV has it.

    >>> _cell(0.5), _cell("diloco, period 100")
    ('0.5', '"diloco, period 100"')
    """
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _shown(gigabits: float) -> str:
    return "never" if isinf(gigabits) else "any" if gigabits == 0 else f"{gigabits:.4g}"
