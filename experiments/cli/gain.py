"""`commeff gain`: the gain of each method over psgd on a job, and its break-even number of steps."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, refusals, table, try_file, try_folder
from commeff.experiments.cli.planned import heading, leave


def gain(
    settings: Settings = None,
    steps: Annotated[
        str | None, typer.Option(metavar="LEAST,MOST", help="Steps of the named methods, in units of psgd's steps.")
    ] = None,
    plugin: Plugins = None,
    out: Annotated[Path | None, typer.Option(help="Write gain.csv, .md, .png and .pdf into this folder.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write all numbers of the table to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare each method with psgd for a model, a number of GPUs and a network: time, memory, lines of code.

    * `commeff gain model=llama2-7b cluster=a100_10g gpus=64`
    * `commeff gain parameters=1e9 cluster=h100_400g gpus=64 bandwidth="25 Gb/s" tokens=100e9 --out gain`
    * `commeff gain model=tinyllama-1.1b cluster=two_sites method=diloco method.period=200 --steps 1,1.2`

    Each method has its best policy over tensor, pipeline and data parallelism, ZeRO, micro-batch, schedule,
    recomputation and workers, as found by `commeff plan --search`. psgd with 16-bit gradients and with a larger batch
    are compared, too. Seconds are modelled from the messages of each method. "wins up to" is the break-even: the method
    is faster to psgd's loss if it needs at most this many times psgd's steps. "steps" is the number it needs, a range
    from papers and small runs here (experiments/planning/convergence.yaml); values without a source are marked assumed.
    The verdict is "wins" if the whole range is below the break-even, "depends" if a part is, "loses" if none is, and
    "unknown" if no source covers the job.

    KEYs are those of `commeff plan`: `model=`, `parameters=` (a GPT of about this size) or sizes; `cluster=` a name or
    a YAML file, `gpus= bandwidth= global_batch= tokens= precision= overlap=`. Each `method=` with its keys adds a
    method to compare, instead of the default ones.
    """
    with refusals():
        from commeff.experiments.config.method_words import split_methods
        from commeff.experiments.planning.question import SEARCHED, read_question
        from commeff.experiments.planning.worker_words import is_method_word, read_method

        try_folder("--out", out)
        try_file("--csv", csv)
        span = read_span(steps)
        words, plugins = list(settings or []), adopted(plugin)
        named = split_methods([word for word in words if is_method_word(word)])
        if span is not None and not named:
            raise ValueError("--steps must be of a named method, got none: name it, such as method=diloco")
        for method_words in named or [[]]:
            question = read_question([*(word for word in words if not is_method_word(word)), *method_words], plugins)
        leave("gain", [key for key in question.policy if key not in (*SEARCHED, "method")])

        from commeff.experiments.planning.gain import conclusion, gains, given_methods, table_rows, tokens_of
        from commeff.planner import WorkerMethod

        methods = given_methods([WorkerMethod(read_method(method, plugins)) for method in named], span, question.model)
        rows = gains(question, methods)
        cluster = question.cluster
        sentence, best = conclusion(rows, f"{cluster.gpus} x {cluster.gpu.name} ({cluster.name})")
        if out is not None:
            from commeff.experiments.planning.gain_page import save

            command = shlex.join(["commeff", "gain", *words, *(["--steps", steps] if steps else [])])
            page = {"sentence": sentence, "question": heading(question), "tokens": tokens_of(question)}
            for path in save(rows, out, page | {"command": command}):
                typer.echo(str(path), err=True)
        if csv is not None:
            import pandas as pd

            csv.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame([row.row() for row in rows]).to_csv(csv, index=False)
            typer.echo(str(csv), err=True)
    if as_json:
        typer.echo(json.dumps({"conclusion": sentence, "rows": [row.row() for row in rows]}, indent=2))
        return
    typer.echo(f"{heading(question)};\nhours are modelled, to psgd's loss after {tokens_of(question):.3g} tokens\n")
    shown = table_rows(rows)
    table([*shown[0]], [[*row.values()] for row in shown], texts=(0, 6, 7))
    coded = [f"{row.name} {row.coding}" for row in rows if row.coding]
    if coded:
        typer.echo(f"encoding and decoding: {'; '.join(coded)}")
    typer.echo("best policies:")
    for row in rows:
        if row.plan:
            typer.echo(f"  {row.name}: {row.row()['policy']}")
    typer.echo("steps, by their sources:")
    for row in rows[1:]:
        typer.echo(f"  {row.name}: {row.silence or row.of.why}")
    typer.echo(f"\n{sentence}")
    if best.changes:
        typer.echo("\n" + "\n".join(best.changes))


def read_span(text: str | None) -> tuple[float, float] | None:
    """The two numbers of --steps.

    >>> read_span("1,1.5"), read_span("1.2")
    ((1.0, 1.5), (1.2, 1.2))
    """
    if text is None:
        return None
    try:
        ends = [float(part) for part in text.split(",")]
    except ValueError:
        ends = []
    if len(ends) not in (1, 2) or not 0 < ends[0] <= ends[-1] < float("inf"):
        raise ValueError(f"--steps must be LEAST,MOST, two numbers above 0 such as 1,1.5, got {text!r}")
    return ends[0], ends[-1]
