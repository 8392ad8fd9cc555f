"""`commeff bandwidth`: the Gbit/s between workers that a method needs."""

from __future__ import annotations

import json
from math import isinf
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, deaths, refusals, table, try_file


def bandwidth(
    settings: Settings = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write utilisation,gbit_per_s; - prints only these.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw utilisation against bandwidth.")] = None,
    layerwise: Annotated[
        bool,
        typer.Option(
            "--layerwise",
            help="Send every exchange layer by layer during the backward pass, also outer gradients, as in the "
            "simulator of Streaming DiLoCo. By default each method overlaps as it really does.",
        ),
    ] = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Compute the Gbit/s between workers that each method needs to spend 50 to 99 % of the time computing.

    * `commeff bandwidth parameters=10e9 layers=48 step_seconds=0.8 workers=2 method=diloco method.period=100`
    * `commeff bandwidth parameters=10e9 layers=48 step_seconds=0.8 --layerwise --figure bandwidth.png`
    * `commeff bandwidth parameters=1e9 layers=24 step_seconds=1 workers=8 latency="50 ms" method=dsgd topology=ring`
    * `commeff bandwidth model=llama2-7b cluster=a100_4nic gpus=64 recompute=full method=psgd method=diloco period=50`

    A job is `parameters= layers= step_seconds=` (computing), `workers=` (2), `dtype=` (bf16, fp16 or fp32) and
    `latency=` of a message (0); each worker has one link to all others. With the keys of `commeff plan`, the job is a
    split model on a cluster; then the bandwidth is that of a NIC, with the best workers and ZeRO stage for each value.

    Methods have the keys of `commeff train`. Each `method=` begins a new one; keys before the first apply to all.
    `period=` is short for `method.period=`. The default is psgd, two DiLoCos and top-1 % mem_sgd.

    Messages are those of a run (`commeff.profile`), and seconds are modelled. With --layerwise, 163 of 165 cells of two
    papers agree within one step of their grid, a factor of 1.2.
    """
    with refusals(), deaths():
        to_stdout = csv is not None and str(csv) == "-"
        if to_stdout and as_json:
            raise ValueError("--csv - must be left out with --json, got both: each prints alone")
        try_file("--csv", None if to_stdout else csv)
        try_file("a figure's file", figure, figure=True)

        from commeff.experiments.planning.bandwidth import LEVELS, rows
        from commeff.experiments.planning.scale.job import read_paces

        paces = read_paces(settings or [], adopted(plugin), layerwise)
        table_rows = rows(paces)
        if csv is not None:
            lines = [",".join(table_rows[0]), *(",".join(_cell(value) for value in row.values()) for row in table_rows)]
            if to_stdout:
                typer.echo("\n".join(lines))
            else:
                csv.parent.mkdir(parents=True, exist_ok=True)
                csv.write_text("\n".join(lines) + "\n", encoding="utf-8")
                typer.echo(str(csv), err=True)
        if figure is not None:
            from commeff.experiments.planning import figures

            figures.save(figure, (8.0, 3.6), lambda canvas: figures.utilisation(canvas, paces, "Computing time"))
            typer.echo(str(figure), err=True)
    if as_json:
        numbers = [{**row, "gbit_per_s": None if isinf(row["gbit_per_s"]) else row["gbit_per_s"]} for row in table_rows]
        typer.echo(json.dumps(numbers, indent=2))
    elif not to_stdout:
        typer.echo("Gbit/s between workers at which so much of all time is computing (modelled)\n")
        every = [_shown(row["gbit_per_s"]) for row in table_rows]
        count = len(LEVELS)
        table(
            ("method", *(f"{100 * level:.0f} %" for level in LEVELS)),
            [[name, *every[i * count : (i + 1) * count]] for i, name in enumerate(paces)],
        )


def _cell(value: object) -> str:
    """A value as CSV.

    >>> _cell(0.5), _cell("diloco, period 100")
    ('0.5', '"diloco, period 100"')
    """
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _shown(gigabits: float) -> str:
    return "never" if isinf(gigabits) else "any" if gigabits == 0 else f"{gigabits:.4g}"
