"""What `commeff plan` prints and draws."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commeff.experiments.cli.common import table

if TYPE_CHECKING:
    from commeff.experiments.config.plugins import Choice
    from commeff.experiments.planning.question import Question
    from commeff.experiments.planning.robust import RankedPlan

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


def _framework(question: Question) -> list[str]:
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
        _show_explained(**report["explain"])


def _show_explained(machine: list[dict[str, Any]], policies: list[dict[str, Any]]) -> None:
    lines = [[row["better"], _percent(row["saved_by_twice"]), f"{abs(row['derivative']):.3f}"] for row in machine]
    table(("of the machine", "twice as good saves", "derivative"), lines)
    lines = [
        [row["change"], f"{row['step_seconds']:.4g}", _percent(row["saved"]), "yes" if row["fits"] else "no"]
        for row in policies
    ]
    if lines:
        table(("of the policy", "step s", "saves", "fits"), lines)
    else:
        typer.echo("No policy that differs in one choice is faster and fits.")


def _percent(share: float) -> str:
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


def show_search(
    question: Question, method: str, budget: int | None, top: int, seed: int, explained: bool, as_json: bool
) -> None:
    """The best policies found, ties first, each with a reason, and what would help the first. Ties that differ in
    workers alone are one row.
    """
    from commeff.experiments.planning.question import SEARCHED

    if "method" in question.policy:
        raise ValueError(
            f"--search must be of psgd, got method={question.policy['method']}: leave the method out, or let "
            "commeff gain find its best policy, with the same words but --search"
        )
    leave("--search", [key for key in question.policy if key not in SEARCHED])

    from commeff.experiments.planning.explain import explain
    from commeff.experiments.planning.plan import describe, policy_words, reason
    from commeff.experiments.planning.robust import CANDIDATES, MORE, ranked
    from commeff.planner import search
    from commeff.planner.constants import HELD_OUT, TIE

    fixed = {key: question.policy[key] for key in SEARCHED if key in question.policy}
    most = max(top, CANDIDATES)
    options = {"seed": seed, "top": most, "framework": question.framework, "constants": question.constants, **fixed}
    plans = search(question.model, question.cluster, question.global_batch, budget, method, **options)
    found = ranked(question, plans)
    first = found[0].plan
    helps = explain(question, first.policy, first.prediction) if explained else {}
    if as_json:
        reports = []
        for plan, tied, lost, _ in found[:top]:
            why = {"tied": tied, "lost_at_worst": lost, "reason": reason(question, plan, first)}
            reports.append({**describe(question, plan.policy, plan.prediction), **why})
        reports[0] |= {"explain": helps} if explained else {}
        typer.echo(json.dumps(reports, indent=2))
        return
    typer.echo(f"{heading(question)}; {method} search\n")
    alike: dict[Any, list[RankedPlan]] = {}
    for one in found:
        key = (replace(one.plan.policy, workers=1), one.roomy) if one.tied else one.plan.policy
        alike.setdefault(key, []).append(one)
    rows = []
    for group in list(alike.values())[:top]:
        (policy, p, _), _, lost, _ = group[0]
        numbers = f"{p.step_seconds:.4g}", f"+{_percent(lost)}", f"{100 * p.mfu:.1f}", f"{p.memory_bytes / GIB:.1f}"
        several = {"workers": tuple(one.plan.policy.workers for one in group)} if group[1:] else {}
        rows += [[policy_words(policy, **several), *numbers], [f"  {reason(question, group[0].plan, first)}"]]
    table(("policy", "step s", "at worst", "MFU %", "GiB"), rows)
    ties = sum(one.tied for one in found)
    if ties > 1 and not question.is_bound:
        typer.echo(
            f"{ties} of the {len(found)} fastest are a tie: at most {100 * TIE - 100:.0f} % slower than "
            f"{plans[0].step_seconds:.4g} s, which the planner does not tell apart.\nFirst come those with room "
            f"for {100 * MORE - 100:.0f} % more than they need, and of these the ones that lose least to the best of "
            f"them\nat worst: with one part of the machine {HELD_OUT[1]} times as slow. "
            "Measure a few steps of each before you choose."
        )
        if len(alike) < len(found):
            typer.echo(
                "A row with several workers= is ties that differ in nothing else, with the numbers of the first."
            )
    if helps:
        typer.echo("\nof the first:\n")
        _show_explained(**helps)


def show_sweep(question: Question, figure: Path | None, as_json: bool) -> None:
    """Seconds of every way to communicate, by the bandwidth of a NIC."""
    from commeff.experiments.planning.evidence import TYPICAL, assumptions, said
    from commeff.experiments.planning.sweeps import BANDWIDTHS, BETWEEN, bandwidth_sweep, sweep_rows

    leave("--bandwidth-sweep", _framework(question) + [key for key in question.policy if key in BETWEEN])
    policy = question.one()
    assumed = assumptions(question.model)
    sweeps = bandwidth_sweep(question, policy, [evidence.way for evidence in assumed])
    if figure is not None:
        from commeff.experiments.planning import figures

        figures.save(figure, (8.0, 4.2), lambda canvas: figures.sweep(canvas, sweeps, heading(question)))
        typer.echo(str(figure), err=True)
    if as_json:
        reports = [
            {
                "way": sweep.way.name,
                "steps": {str(workers): sweep.way.steps_of(workers) for workers in TYPICAL},
                "pays_below_gigabits": sweep.pays_below,
                "seconds": {
                    f"{x:g}": y if y < float("inf") else None for x, y in zip(BANDWIDTHS, sweep.seconds, strict=True)
                },
            }
            for sweep in sweeps
        ]
        typer.echo(json.dumps(reports, indent=2))
        return
    rows = sweep_rows(sweeps)
    typer.echo(f"{heading(question)}\nseconds for the work of one step of psgd, by Gb/s of one NIC; * the least\n")
    table([*rows[0]], [[*row.values()] for row in rows])
    typer.echo(
        "steps: to the same loss, in units of psgd's, by papers on large models, not measured here; several are those\n"
        f"with {', '.join(map(str, TYPICAL))} workers:"
    )
    for evidence in assumed:
        typer.echo(f"  {evidence.way.name}: {said(evidence.way)}; {evidence.why}")


def show_largest(question: Question, figure: Path | None, as_json: bool) -> None:
    """The largest GPT that fits, by data-parallel ranks and ZeRO stage."""
    from commeff.experiments.planning.sweeps import ALONG, largest
    from commeff.planner import Policy

    leave("--largest", _framework(question) + [key for key in question.policy if key in ALONG])
    policy = Policy(**{"recompute": "full", **question.policy})
    rows = largest(question.model, question.cluster, policy)
    if figure is not None:
        from commeff.experiments.planning import figures

        title = f"Largest GPT that fits on {question.cluster.gpu.name}"
        figures.save(figure, (6.5, 3.6), lambda canvas: figures.largest(canvas, rows, title))
        typer.echo(str(figure), err=True)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    context = f"context={policy.context} " if policy.context > 1 else ""
    typer.echo(
        f"largest GPT (billion parameters) on {question.cluster.gpu.name}, tensor={policy.tensor} {context}"
        f"micro_batch={policy.micro_batch} recompute={policy.recompute};\n"
        "in brackets with 16 bytes of states a parameter alone, as the lecture\n"
    )
    lines = [
        [f"{row['data']:g}", *(f"{row[f'zero={z}'] / 1e9:.3g} ({row[f'states zero={z}'] / 1e9:.3g})" for z in range(4))]
        for row in rows
    ]
    table(("data-parallel ranks", "no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3"), lines)


def show_zero(question: Question, as_json: bool) -> None:
    """Bytes on a rank of each ZeRO stage, the textbook's beside ours."""
    from commeff.experiments.planning.question import OF_STAGE_3
    from commeff.experiments.planning.sweeps import zero_stages
    from commeff.planner import Policies

    leave("--zero-stages", _framework(question) + [key for key in question.policy if key in ("zero", *OF_STAGE_3)])
    policy = question.one()
    policy.check(question.model, question.cluster, question.global_batch)
    rows = zero_stages(question, policy)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    sizes = [int(size) for size in Policies.of([policy]).states]
    typer.echo(
        f"{heading(question)}\nGB on the fullest rank; ranks that share: {policy.shard}\n\n"
        "textbook  16 bytes a parameter (2 weights, 2 gradients, 12 optimizer), and nothing else\n"
        f"ours      {sum(sizes)} bytes ({sizes[0]}, {sizes[1]}, {sizes[2]}) with {policy.precision}; also a bucket of "
        "gradients,\n          at stage 3 the layers that are gathered, and at the ends of a pipeline the embedding\n"
        "others    activations, logits, a reserve\n"
    )
    table(
        ("stage", *(name for name in rows[0] if name != "zero")),
        [[f"{row.pop('zero'):g}", *(f"{value / 1e9:.3g}" for value in row.values())] for row in rows],
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
