"""`commeff plan`: predict a training step, and search for the best way to run it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from commeff.experiments.cli.columns import table
from commeff.experiments.cli.common import Json, Plugins, Settings, Store, adopted, refusals, try_figure

if TYPE_CHECKING:
    from commeff.experiments.config.plugins import Choice
    from commeff.experiments.published.planner.question import Question

GIB = 2**30


def plan(
    settings: Settings = None,
    search: Annotated[
        bool, typer.Option("--search", help="Find the fastest policy that fits, instead of pricing one.")
    ] = False,
    method: Annotated[
        Literal["exhaustive", "dp", "ilp", "evolution", "bayes", "reinforce", "random"],
        typer.Option("--method", help="How to search."),
    ] = "exhaustive",
    budget: Annotated[
        int | None, typer.Option("--budget", min=1, help="Policies that the search may price.", show_default=False)
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Plans of the search to show.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of searches that draw at random.")] = 0,
    every_way: Annotated[
        bool,
        typer.Option("--ways", help="Search gossip, local steps and compression too; their steps are an assumption."),
    ] = False,
    sweep: Annotated[
        bool, typer.Option("--bandwidth-sweep", help="Which NIC makes gossip, local steps or compression pay.")
    ] = False,
    largest: Annotated[bool, typer.Option("--largest", help="The largest GPT that fits, by ZeRO stage.")] = False,
    timeline: Annotated[
        Path | None, typer.Option("--timeline", metavar="FILE", help="Draw the pipeline: .pdf, .png or .svg.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option("--figure", metavar="FILE", help="Draw the sweep, or the largest models.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="What a run of `commeff train` with these settings sends and holds.")
    ] = False,
    store: Store = Path("runs"),
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Predict the time, the memory and the cost of a training step on a cluster; search for the best policy.

    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 tensor=8 pipeline=16 tokens=300e9`
    * `commeff plan model=gpt3-175b cluster=a100_selene gpus=1024 --search`
    * `commeff plan model=llama2-7b cluster=h100_400g gpus=64 --search --method evolution --budget 500`
    * `commeff plan model=llama2-7b cluster=a100_4nic gpus=64 bandwidth="10 Gb/s" --search --ways`
    * `commeff plan layers=24 hidden=2048 heads=16 sequence=1024 vocab=51200 gpus=8 zero=1`
    * `commeff plan model=gpt3-13b gpus=32 tensor=4 pipeline=8 global_batch=64 --timeline pipeline.png`
    * `commeff plan model=llama2-7b gpus=64 recompute=full --bandwidth-sweep`
    * `commeff plan cluster=h100_400g --largest`
    * `commeff plan --run task=language model=llama_1m mesh.worker=2 mesh.tensor=2 method=diloco`
    * `commeff plan model=llama2-7b gpus=64 method=choco compressor=top_k compressor.ratio=0.01 topology=ring`

    KEYs: `model=` a name (gpt3-175b, llama2-70b, ...; a wrong one lists them all), or sizes: `layers= hidden= heads=
    sequence= vocab=` and perhaps `head_dim= kv_heads= ffn_hidden= gated= tied_embeddings= flash_attention=`. `cluster=`
    a name or a YAML file, `gpus=`, `bandwidth=` of one NIC. `global_batch=` sequences a step (two for each GPU unless
    told), `tokens=` of the whole run.

    The policy: `tensor= pipeline= data=` ranks (data: all that are left), `micro_batch= schedule= chunks= zero=
    recompute= sequence_parallel= precision= overlap= stages=`, and what the worker axis does: `workers=`, and a method
    by the words of `commeff train`: `method= compressor= topology=`, their settings (`compressor.ratio=0.01`) and
    `collective=`; `period=` is short for `method.period=`, `degree=` for a topology of that degree. Every data-parallel
    rank is a worker of such a method unless `workers=` says otherwise.

    Nothing is measured: seconds follow from counted work and seven constants, five of them fitted on published tables.
    results/planner/report.md says how far off they are there: 3 to 14 % on average.

    With --run the settings are those of `commeff train`. Bytes and memory are counted, not modelled: the run's own code
    is played on tensors that take no memory. What a run in --store has measured stands beside them.
    """
    with refusals():
        if run:
            _run_forecast(list(settings or []), adopted(plugin), store, as_json)
            return
        _agree(search, sweep, largest, timeline, figure)
        if not search and (method, budget, top, seed, every_way) != ("exhaustive", None, 10, 0, False):
            raise ValueError(
                "--method, --budget, --top, --seed and --ways must be left out without --search, got one of them: "
                "they say how to search; add --search"
            )
        from commeff.experiments.published.planner.question import read_question

        words = list(settings or [])
        question = read_question(
            [*words, "model=gpt3-175b"] if largest and not any(w.startswith("model=") for w in words) else words,
            adopted(plugin),
        )
        if not (search or largest):
            question.one().check(question.model, question.cluster, question.global_batch)
        if search:
            _search(question, method, budget, top, seed, every_way, as_json)
        elif largest:
            _largest(question, figure, as_json)
        elif sweep:
            _sweep(question, figure, as_json)
        else:
            _predict(question, as_json)
        if timeline is not None:
            _timeline(question, timeline)


def _agree(search: bool, sweep: bool, largest: bool, timeline: Path | None, figure: Path | None) -> None:
    """Refuse options that cannot be had together."""
    if search + sweep + largest > 1:
        raise ValueError(
            f"at most one of --search, --bandwidth-sweep and --largest must be given, got {search + sweep + largest}: "
            "they are different questions; ask one at a time"
        )
    if timeline is not None and (search or sweep or largest):
        raise ValueError(
            "--timeline must be given for a single policy, got a search or a sweep: it draws one policy; "
            "leave out --search, --bandwidth-sweep and --largest"
        )
    if figure is not None and not (sweep or largest):
        raise ValueError(
            "--figure must be given with --bandwidth-sweep or --largest, got neither: it draws one of them; "
            "add one, or draw the pipeline with --timeline FILE"
        )
    for path in (timeline, figure):
        try_figure("a figure's file", path)


def _run_forecast(settings: list[str], plugins: Sequence[Choice], store: Path, as_json: bool) -> None:
    """What a run will send and hold, beside what it has."""
    from commeff.experiments.config.compose import compose

    config = compose(settings, plugins)
    from commeff.experiments.run.forecast import forecast  # with torch, which a mistake does not wait for
    from commeff.experiments.run.store import RunFolder, run_id

    found = forecast(config)
    name = run_id(config)
    measured = RunFolder(store / name).read("summary.json")
    predicted = {**found.sent, "held_bytes": found.states}
    if as_json:
        held = {name: count for name, count in measured.items() if name in predicted}
        typer.echo(json.dumps({"run": name, "predicted": predicted, "held": found.held, "measured": held}, indent=2))
        return
    typer.echo(f"{name}, {config['steps']} steps; bytes of a worker over the run, and what its first process holds\n")
    if config["precision"] != "fp32":
        typer.echo("Bytes inside a worker and activations are those of precision=fp32.\n")
    if found.note:
        typer.echo(f"Of who takes part: {found.note}.\n")
    known = {key: f"{measured[key]:,.0f}" for key in predicted if key in measured}
    lines = [[key, f"{count:,.0f}", known.get(key, "")] for key, count in predicted.items()]
    table(("bytes", "predicted", "measured"), lines)
    table(("of those held", "bytes"), [[name, f"{count:,}"] for name, count in found.held.items()])


def _leave(option: str, words: list[str]) -> None:
    """Refuse keys that an option chooses."""
    if words:
        raise ValueError(
            f"{' '.join(words)} must be left out with {option}, got both: {option} chooses {' '.join(words)} itself; "
            f"leave them out, or leave {option} out"
        )


def _predict(question: Question, as_json: bool) -> None:
    from commeff.experiments.published.planner.plan import describe
    from commeff.planner import predict

    policy = question.one()
    prediction = predict(question.model, policy, question.cluster, global_batch=question.global_batch)
    report = describe(question, policy, prediction)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(_heading(question))
    typer.echo(
        f"{report['policy']}\n\n"
        f"step      {report['step_seconds']:.4g} s (modelled), {report['tokens_per_second']:,.0f} tokens/s\n"
        f"of peak   {100 * report['mfu']:.1f} % MFU, {100 * report['hfu']:.1f} % HFU, "
        f"{report['tflops_per_gpu']:.0f} TFLOP/s a GPU with what is computed again\n"
        f"memory    {report['why']}\n"
        f"limited   by {report['limits']}"
    )
    if report["run"] is not None:
        typer.echo(f"run       {_run(report['run'])}")
    typer.echo()
    seconds, held = report["seconds"], report["bytes"]
    table(("time", "seconds", "share"), _shares(seconds, 1.0, report["step_seconds"]))
    table(("memory", "GiB", "share"), _shares(held, GIB, report["memory_bytes"]))


def _heading(question: Question) -> str:
    cluster = question.cluster
    return (
        f"{question.name}, {question.model.parameters / 1e9:.4g} billion parameters, on {cluster.gpus} x "
        f"{cluster.gpu.name} ({cluster.name}), {question.global_batch} sequences a step"
    )


def _shares(parts: dict[str, float], unit: float, whole: float) -> list[list[str]]:
    """Parts, largest first, and what they are of the whole."""
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return [[name, f"{value / unit:.4g}", f"{value / whole:.1%}"] for name, value in ordered if value > 0]


def _run(run_report: dict[str, Any]) -> str:
    cost = "the cluster names no price" if run_report["dollars"] is None else f"{run_report['dollars']:,.0f} US dollars"
    return (
        f"{run_report['tokens']:.4g} tokens are {run_report['steps']:,.0f} steps: {run_report['days']:,.1f} days, "
        f"{run_report['gpu_hours']:,.0f} GPU-hours, {cost}"
    )


def _search(
    question: Question, method: str, budget: int | None, top: int, seed: int, every_way: bool, as_json: bool
) -> None:
    from commeff.experiments.published.planner.question import SEARCHED

    _leave("--search", [key for key in question.policy if key not in SEARCHED])

    from commeff.experiments.published.planner.models import assumptions
    from commeff.experiments.published.planner.plan import describe, policy_words
    from commeff.planner import WorkerMethod, search

    fixed = {key: question.policy[key] for key in SEARCHED if key in question.policy}
    plans = search(
        question.model,
        question.cluster,
        question.global_batch,
        budget,
        method,
        seed=seed,
        top=top,
        ways=[each.way for each in assumptions()] if every_way else [WorkerMethod()],
        **fixed,
    )
    if as_json:
        reports = [
            {**describe(question, each.policy, each.prediction), "steps": each.steps, "cost": each.cost}
            for each in plans
        ]
        typer.echo(json.dumps(reports, indent=2))
        return
    typer.echo(f"{_heading(question)}; {method} search\n")
    heads = ["policy", "step s", "MFU %", "GiB"]
    lines = [
        [f"{p.step_seconds:.4g}", f"{100 * p.prediction.mfu:.1f}", f"{p.prediction.memory_bytes / GIB:.1f}"]
        for p in plans
    ]
    if every_way:
        heads[1:1] = ["step s x steps", "steps"]
        lines = [[f"{p.cost:.4g}", f"{p.steps:.2f}", *line] for p, line in zip(plans, lines, strict=True)]
    table(heads, [[policy_words(p.policy), *line] for p, line in zip(plans, lines, strict=True)])
    if every_way:
        typer.echo(
            "steps: to the same loss, in units of psgd's; assumed, see experiments/published/planner/convergence.yaml"
        )


def _sweep(question: Question, figure: Path | None, as_json: bool) -> None:
    from commeff.experiments.published.planner.models import assumptions, way_label
    from commeff.experiments.published.planner.sweeps import BANDWIDTHS, BETWEEN, bandwidth_sweep, sweep_rows

    _leave("--bandwidth-sweep", [key for key in question.policy if key in BETWEEN])
    policy = question.one()
    policy.check(question.model, question.cluster, question.global_batch)
    sweeps = bandwidth_sweep(question, policy, [each.way for each in assumptions()])
    if figure is not None:
        from commeff.experiments.published.planner import figures

        figures.save(figure, (8.0, 4.2), lambda canvas: figures.sweep(canvas, sweeps, _heading(question)))
        typer.echo(str(figure), err=True)
    if as_json:
        reports = [
            {
                "way": way_label(each.way),
                "steps": each.way.steps,
                "pays_below_gigabits": each.pays_below,
                "seconds": {
                    f"{x:g}": y if y < float("inf") else None for x, y in zip(BANDWIDTHS, each.seconds, strict=True)
                },
            }
            for each in sweeps
        ]
        typer.echo(json.dumps(reports, indent=2))
        return
    rows = sweep_rows(sweeps)
    typer.echo(f"{_heading(question)}\nseconds for the work of one step of psgd, by Gb/s of one NIC; * the least\n")
    table([*rows[0]], [[*row.values()] for row in rows])
    typer.echo(
        "steps: to the same loss, in units of psgd's; assumed, see experiments/published/planner/convergence.yaml"
    )


def _largest(question: Question, figure: Path | None, as_json: bool) -> None:
    from commeff.experiments.published.planner.sweeps import ALONG, largest
    from commeff.planner import Policy

    _leave("--largest", [key for key in question.policy if key in ALONG])
    policy = Policy(**{"recompute": "full", **question.policy})
    rows = largest(question.model, question.cluster, policy)
    if figure is not None:
        from commeff.experiments.published.planner import figures

        title = f"Largest GPT that fits on {question.cluster.gpu.name}"
        figures.save(figure, (6.5, 3.6), lambda canvas: figures.largest(canvas, rows, title))
        typer.echo(str(figure), err=True)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    typer.echo(
        f"largest GPT (billion parameters) on {question.cluster.gpu.name}, tensor={policy.tensor} "
        f"micro_batch={policy.micro_batch} recompute={policy.recompute};\n"
        "in brackets with 16 bytes of states a parameter alone, as the lecture\n"
    )
    lines = [
        [f"{row['data']:g}", *(f"{row[f'zero={z}'] / 1e9:.3g} ({row[f'states zero={z}'] / 1e9:.3g})" for z in range(4))]
        for row in rows
    ]
    table(("data-parallel ranks", "no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3"), lines)


def _timeline(question: Question, path: Path) -> None:
    from commeff.experiments.published.planner import figures
    from commeff.planner import timeline

    policy = question.one()
    each = policy.data * policy.micro_batch
    whole = question.global_batch // each
    shown = min(whole, 3 * policy.pipeline)
    run = timeline(question.model, policy, question.cluster, global_batch=shown * each)
    words = f"{policy.schedule}, {policy.pipeline} stages, " + (
        f"{whole} micro-batches" if shown == whole else f"as with {shown} of the {whole} micro-batches"
    )
    size = (9.0, 1.4 + 0.28 * policy.pipeline)
    figures.save(path, size, lambda canvas: figures.timeline(canvas, run, words))
    typer.echo(str(path), err=True)
