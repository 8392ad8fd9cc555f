"""What `commeff plan` prints of many policies: a search, a sweep of bandwidths, the largest models, the ZeRO stages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from commeff.experiments.cli.common import table
from commeff.experiments.cli.planned import GIB, framework_key, heading, leave, percent, show_explained

if TYPE_CHECKING:
    from commeff.experiments.planning.question import Question
    from commeff.experiments.planning.robust import RankedPlan


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
        numbers = f"{p.step_seconds:.4g}", f"+{percent(lost)}", f"{100 * p.mfu:.1f}", f"{p.memory_bytes / GIB:.1f}"
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
        show_explained(**helps)


def show_sweep(question: Question, figure: Path | None, as_json: bool) -> None:
    """Seconds of every way to communicate, by the bandwidth of a NIC."""
    from commeff.experiments.planning.evidence import TYPICAL, assumptions, said
    from commeff.experiments.planning.sweeps import BANDWIDTHS, BETWEEN, bandwidth_sweep, sweep_rows

    leave("--bandwidth-sweep", framework_key(question) + [key for key in question.policy if key in BETWEEN])
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

    leave("--largest", framework_key(question) + [key for key in question.policy if key in ALONG])
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

    leave("--zero-stages", framework_key(question) + [key for key in question.policy if key in ("zero", *OF_STAGE_3)])
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
