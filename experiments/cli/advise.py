"""`commeff advise`: which methods the landscape's evidence recommends for a task on a cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from commeff.experiments.cli.columns import table
from commeff.experiments.cli.common import Json, Settings, refusals

if TYPE_CHECKING:
    from commeff.experiments.published.landscape.advice import Advice
    from commeff.experiments.published.landscape.fronts import FrontPoint

FEW = 5  # of the fastest that are shown


def advise(settings: Settings = None, as_json: Json = False) -> None:
    """Name the methods that nobody beats in accuracy and in cost on a cluster, and say on what evidence.

    * `commeff advise task=digits cluster=ethernet_1g`
    * `commeff advise task=digits data=skewed cluster=ethernet_100m workers=64`
    * `commeff advise task=language cluster=v100_25g workers=32 parameters=1e9 step_seconds=0.4`

    KEYs: `task=` of `commeff list task`; `data=` iid, or skewed where each worker has data of its own kind;
    `cluster=` a name (a wrong one lists them all) or a YAML file; `workers=`; `parameters=` of your model; how long a
    worker computes: `step_seconds=` for a minibatch, or `efficiency=`, the share of the peak. What is left out is as in
    the evidence.

    The evidence is results/landscape: every method, on small tasks, each with the same number of learning rates. From
    there come accuracies and steps to the target, with intervals over seeds; bytes and seconds follow from each
    method's profile on your cluster and are modelled. Each line of a front is better than the one above it and costs
    more; where the seeds do not tell the two apart, take the cheaper. If your task was not among those measured, the
    answer says which was.
    """
    with refusals():
        from commeff.experiments.published.landscape.question import read_advice

        question = read_advice(settings or [])

        from commeff.experiments.published.landscape.advice import advise as answer  # with torch
        from commeff.experiments.published.landscape.advice import described

        found = answer(question)
    if as_json:
        typer.echo(json.dumps(described(found), indent=2))
    else:
        _print(found)


def _print(found: Advice) -> None:
    question, task = found.question, found.question.evidence.task
    size = "" if question.parameters is None else f", {question.parameters:,.4g} parameters"
    typer.echo(f"{question.task}, {question.data} data, {question.workers} workers on {question.place.name}{size}\n")
    for title, points in (("modelled seconds", found.by_seconds), ("bytes", found.by_bytes)):
        typer.echo(f"nobody is better and cheaper: {task.value.replace('_', ' ')} against {title} of a step")
        heads = (
            "method",
            task.value.replace("_", " "),
            "gain over the line above",
            "ms a step",
            "kB a step",
            "state",
            "as it was run",
        )
        table(heads, [_line(found, point) for point in points])
    reached = len(found.fastest)
    typer.echo(
        f"fastest to {task.by.replace('_', ' ')} {found.question.evidence.target:.3g}, which {reached} of "
        f"{len(found.prices)} methods reach with every seed"
    )
    shown = [each for i, each in enumerate(found.fastest) if i < FEW or each.speed_up is None]
    lines = []
    for each in shown:
        ratio = each.speed_up
        words = "" if ratio is None else f"{ratio.mean:.3g}"
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            words += f" ({ratio.low:.3g} to {ratio.high:.3g})"
        lines.append([each.method, f"{each.seconds.mean:.3g}", words])
    table(("method", "seconds, modelled", "speed-up over psgd"), lines)
    for note in found.notes:
        typer.echo(note)
    if found.left_out:
        typer.echo(f"Left out: {', '.join(sorted(found.left_out))}; --json says why.")


def _line(found: Advice, point: FrontPoint) -> list[str]:
    evidence, price = found.question.evidence, found.prices[point.method]
    scale, places, unit = (100, 1, " %") if evidence.task.value.endswith("accuracy") else (1, 3, "")
    half = "" if point.value.half is None else f" ± {scale * point.value.half:.{places}f}"
    gain = "" if point.gain is None else f"{scale * point.gain.mean:.{places}f}"
    if point.gain is not None and point.gain.half is not None:
        gain += f" ± {scale * point.gain.half:.{places}f}" + ("" if point.told_apart else ", not told apart")
    edge = "; rate at the edge of those tried" if evidence.methods[point.method].edge else ""
    return [
        point.method + edge,
        f"{scale * point.value.mean:.{places}f}{half}{unit}",
        gain,
        f"{1e3 * price.seconds / evidence.task.steps:,.4g}",
        f"{price.wire_bytes / 1e3:,.4g}",
        f"{price.state:.3g} a parameter",
        " ".join(found.words[point.method]),
    ]
