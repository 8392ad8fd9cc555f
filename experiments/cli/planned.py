"""What `commeff plan` prints and draws of one policy or two."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commeff.experiments.cli.common import table

if TYPE_CHECKING:
    from commeff.experiments.config.plugins import Choice
    from commeff.experiments.planning.question import Question

GIB = 2**30


def show_run(settings: list[str], plugins: Sequence[Choice], store: Path, as_json: bool) -> None:
    """Predict the bytes that a run sends and holds, beside the measured ones."""
    from commeff.experiments.config.compose import compose

    config = compose(settings, plugins)
    from commeff.experiments.planning.forecast import forecast  # with torch, which a mistake does not wait for
    from commeff.experiments.run.naming import run_id
    from commeff.experiments.run.store import RunFolder

    costs = forecast(config)
    name = run_id(config)
    measured = RunFolder(store / name).read("summary.json")
    predicted = {**costs.sent, "held_bytes": costs.states}
    if costs.peak is not None:
        predicted["peak_bytes"] = costs.peak
    if as_json:
        held = {name: count for name, count in measured.items() if name in predicted}
        typer.echo(json.dumps({"run": name, "predicted": predicted, "held": costs.held, "measured": held}, indent=2))
        return
    typer.echo(
        f"{name}, {config['steps']} steps; bytes of a worker over the run, and of its first process:\n"
        "held between two steps, and at its peak, with Python, data, evaluation and checkpoints\n"
    )
    if costs.peak is None:
        typer.echo("The peak is not known: the task reads numbers of the model.\n")
    if costs.note:
        typer.echo(f"Of who takes part: {costs.note}.\n")
    known = {key: f"{measured[key]:,.0f}" for key in predicted if key in measured}
    lines = [[key, f"{count:,.0f}", known.get(key, "")] for key, count in predicted.items()]
    table(("bytes", "predicted", "measured"), lines)
    table(("of those held", "bytes"), [[name, f"{count:,}"] for name, count in costs.held.items()])


def leave(option: str, words: list[str]) -> None:
    """Refuse keys that an option chooses."""
    if words:
        raise ValueError(
            f"{' '.join(words)} must be left out with {option}, got both: {option} sets {' '.join(words)} itself; "
            "`commeff plan` without an option prices the policy that you give"
        )


def framework_key(question: Question) -> list[str]:
    """The key of a framework, to be left out of what goes through stages of ZeRO itself."""
    return ["framework"] if question.framework else []


def show_step(question: Question, explained: bool, as_json: bool) -> None:
    """Time and memory of a step of one policy, by part, and what would help."""
    from commeff.experiments.planning.plan import describe

    policy = question.one()
    prediction = question.predict(policy)
    report = describe(question, policy, prediction)
    if explained:
        from commeff.experiments.planning.explain import explain

        report["explain"] = explain(question, policy, prediction)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
        return
    typer.echo(heading(question))
    trust = "the least that the data sheet allows"
    if report["step_range"] is not None:
        trust = "modelled; {:.4g} to {:.4g} s in 9 of 10 tests".format(*report["step_range"])
    typer.echo(
        f"{report['policy']}\n\n"
        f"step      {report['step_seconds']:.4g} s ({trust}), "
        f"{report['tokens_per_second']:,.0f} tokens/s\n"
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
    if explained:
        show_explained(**report["explain"])


def show_explained(machine: list[dict[str, Any]], policies: list[dict[str, Any]]) -> None:
    lines = [[row["better"], percent(row["saved_by_twice"]), f"{abs(row['derivative']):.3f}"] for row in machine]
    table(("of the machine", "twice as good saves", "derivative"), lines)
    lines = [
        [row["change"], f"{row['step_seconds']:.4g}", percent(row["saved"]), "yes" if row["fits"] else "no"]
        for row in policies
    ]
    if lines:
        table(("of the policy", "step s", "saves", "fits"), lines)
    else:
        typer.echo("No policy that differs in one choice is faster and fits.")


def percent(share: float) -> str:
    return f"{100 * share + 0.0:.1f} %".replace("-0.0", "0.0")


def calibration(
    measured: Path | None, words: list[str], plugins: Sequence[Choice], aside: bool
) -> Callable[[Question], Question]:
    """A function that calibrates a question to the user's machine; without measured steps, the identity."""
    if measured is None:
        return lambda question: question
    from commeff.experiments.planning.calibrate import calibrated, read_steps

    fit, summary = calibrated(read_steps(measured, words, plugins))
    typer.echo(summary + "\n", err=aside)
    return fit.of


def show_compared(
    files: tuple[Path, Path],
    words: list[str],
    plugins: Sequence[Choice],
    calibrated: Callable[[Question], Question],
    as_json: bool,
) -> None:
    """Two plans beside each other, part by part."""
    from commeff.experiments.planning.plan import describe
    from commeff.experiments.planning.question import read_file, read_question

    if files[0] == files[1]:
        raise ValueError(f"--compare must be given two files, got {files[0]} twice")
    reports = []
    for file in files:
        try:
            question = calibrated(read_question([*read_file(file), *words], plugins))
            policy = question.one()
            policy.check(question.model, question.cluster, question.global_batch)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        reports.append(describe(question, policy, question.predict(policy)) | {"heading": heading(question)})
    if as_json:
        typer.echo(json.dumps(dict(zip(map(str, files), reports, strict=True)), indent=2))
        return
    for file, report in zip(files, reports, strict=True):
        typer.echo(f"{file}: {report['heading']}\n{report['policy']}\n{report['why']}\n")
    for what, unit, whole in (("seconds", 1.0, "step_seconds"), ("bytes", GIB, "memory_bytes")):
        first, second = ({"all": report[whole], **report[what]} for report in reports)
        largest = sorted(first, key=lambda name: -max(first[name], second[name]))
        lines = [
            [name, *(f"{value / unit:.4g}" for value in (first[name], second[name], second[name] - first[name]))]
            for name in largest
            if first[name] or second[name]
        ]
        heads = (file.stem if files[0].stem != files[1].stem else str(file) for file in files)
        table((what if unit == 1 else "GiB", *heads, "difference"), lines)


def show_flags(question: Question, framework: str, as_json: bool) -> None:
    """The flags of a framework, one a line."""
    from commeff.experiments.planning.emit import FRAMEWORKS

    flags = FRAMEWORKS[framework](question, question.one())
    typer.echo(json.dumps(flags, indent=2) if as_json else "\n".join(flags))


def heading(question: Question) -> str:
    """The model and where it is trained."""
    cluster, model = question.cluster, question.model
    active = f" ({model.active_parameters / 1e9:.4g} active)" * (model.experts > 1)
    runs = "" if question.framework is None else f", framework={question.framework}"
    return (
        f"{question.name}, {model.parameters / 1e9:.4g} billion parameters{active}, on {cluster.gpus} x "
        f"{cluster.gpu.name} ({cluster.name}), {question.global_batch} sequences a step{runs}"
    )


def _shares(parts: dict[str, float], unit: float, whole: float) -> list[list[str]]:
    """Parts, largest first, with their shares of the whole."""
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return [[name, f"{value / unit:.4g}", f"{value / whole:.1%}"] for name, value in ordered if value > 0]


def _run(run_report: dict[str, Any]) -> str:
    cost = "the cluster names no price" if run_report["dollars"] is None else f"{run_report['dollars']:,.0f} US dollars"
    return (
        f"{run_report['tokens']:.4g} tokens are {run_report['steps']:,.0f} steps: {run_report['days']:,.1f} days, "
        f"{run_report['gpu_hours']:,.0f} GPU-hours, {cost}"
    )


def draw_timeline(question: Question, path: Path) -> None:
    """The pipeline of one policy."""
    from commeff.experiments.planning import figures
    from commeff.planner import stage_memory, timeline

    policy = question.one()
    samples = policy.data * policy.micro_batch
    whole = question.global_batch // samples
    shown = min(whole, 3 * policy.pipeline)
    subject, constants = (question.model, policy, question.cluster), question.constants
    run = timeline(*subject, global_batch=shown * samples, constants=constants)
    words = f"{policy.schedule}, {policy.pipeline} stages, " + (
        f"{whole} micro-batches" if shown == whole else f"as with {shown} of the {whole} micro-batches"
    )
    size = (9.0, 3.2 + 0.28 * policy.pipeline)
    none, one = (stage_memory(*subject, k, global_batch=question.global_batch, constants=constants) for k in (0, 1))
    figures.save(path, size, lambda canvas: figures.timeline(canvas, run, words, none, one))
    typer.echo(str(path), err=True)
