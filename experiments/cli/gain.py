"""`commeff gain`: what each method would gain over psgd on a job, and up to how many steps."""

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
        str | None,
        typer.Option("--steps", metavar="LEAST,MOST", help="What the named methods need, in units of psgd's steps."),
    ] = None,
    plugin: Plugins = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write gain.csv, .md, .png and .pdf into this folder.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Also write every figure of the table here.")] = None,
    as_json: Json = False,
) -> None:
    """What each method would gain over psgd on a model, so many GPUs and a network: time, memory, lines of code.

    * `commeff gain model=llama2-7b cluster=a100_10g gpus=64`
    * `commeff gain parameters=1e9 cluster=h100_400g gpus=64 bandwidth="25 Gb/s" tokens=100e9 --out gain`
    * `commeff gain model=tinyllama-1.1b cluster=two_sites method=diloco method.period=200 --steps 1,1.2`

    psgd's best policy stands beside each method's best one, over tensor, pipeline and data parallelism, ZeRO,
    micro-batch, schedule, recomputation and workers, as `commeff plan --search` finds it; psgd with 16-bit gradients
    and with a larger batch are compared too. Seconds are modelled and follow from what each method sends. "wins up to"
    is the break-even: how many times psgd's steps the method may need and still be the first to psgd's loss. How many
    it does need is a range from papers and from small runs here (experiments/planning/convergence.yaml); what nobody
    has published or measured is marked assumed. The verdict: "wins" if all of the range is below the break-even,
    "depends" if some is, "loses" if none is, "unknown" where no source goes so far.

    KEYs are those of `commeff plan`: `model=`, `parameters=` (a GPT of about so many) or sizes; `cluster=` a name or a
    YAML file, `gpus= bandwidth= global_batch= tokens= precision= overlap=`. Each `method=` with its words names a
    method to compare, instead of those that ship.
    """
    with refusals():
        from commeff.experiments.config.method_words import split_methods
        from commeff.experiments.planning.question import SEARCHED, is_method_word, read_method, read_question

        try_folder("--out", out)
        try_file("--csv", csv)
        span = read_span(steps)
        words, plugins = list(settings or []), adopted(plugin)
        named = split_methods([word for word in words if is_method_word(word)])
        if span is not None and not named:
            raise ValueError("--steps must be of a named method, got none: name it, such as method=diloco")
        for own in named or [[]]:
            question = read_question([*(word for word in words if not is_method_word(word)), *own], plugins)
        leave("gain", [key for key in question.policy if key not in (*SEARCHED, "method")])

        from commeff.experiments.planning.gain import conclusion, gains, given_methods, table_rows, tokens_of
        from commeff.planner import WorkerMethod

        given = given_methods([WorkerMethod(read_method(own, plugins)) for own in named], span, question.model)
        rows = gains(question, given)
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
            pd.DataFrame([each.row() for each in rows]).to_csv(csv, index=False)
    if as_json:
        typer.echo(json.dumps({"conclusion": sentence, "rows": [each.row() for each in rows]}, indent=2))
        return
    typer.echo(f"{heading(question)};\nhours are modelled, to psgd's loss after {tokens_of(question):.3g} tokens\n")
    shown = table_rows(rows)
    table([*shown[0]], [[*row.values()] for row in shown], texts=(0, 6, 7))
    coded = [f"{each.name} {each.coding}" for each in rows if each.coding]
    if coded:
        typer.echo(f"encoding and decoding: {'; '.join(coded)}")
    typer.echo("steps, by their sources:")
    for each in rows[1:]:
        typer.echo(f"  {each.name}: {each.silence or each.of.why}")
    typer.echo(f"\n{sentence}")
    if best.changes:
        typer.echo("\n" + "\n".join(best.changes))


def read_span(text: str | None) -> tuple[float, float] | None:
    """Two numbers of --steps.

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
