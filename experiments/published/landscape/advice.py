"""Which methods the evidence recommends on a cluster, and on what evidence: the fronts, anew for that link and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from commeff.experiments.published.landscape.fronts import FrontPoint, front
from commeff.experiments.published.landscape.price import (
    MethodPrice,
    method_price,
    method_words,
    minibatch_seconds,
    model_layout,
)
from commeff.experiments.published.landscape.question import AdviceQuestion
from commeff.experiments.published.landscape.spec import BASELINE, RATE, Landscape, landscape
from commeff.experiments.report.data.statistics import Estimate, Ratio, estimate, paired_ratio


@dataclass(frozen=True)
class TimedMethod:
    """A method that reaches the target with every seed.

    Attributes
    ----------
    method, seconds : which, and its modelled seconds to the target, mean and interval.
    speed_up : over psgd, paired by seed; None for psgd.
    """

    method: str
    seconds: Estimate
    speed_up: Ratio | None


@dataclass(frozen=True, eq=False)
class Advice:
    """The answer.

    Attributes
    ----------
    question : what was asked.
    compute : seconds of a worker's minibatch.
    prices : by method, for the cluster, workers and model asked for.
    words : by method, those of `commeff train` with which it was run.
    by_seconds, by_bytes : the fronts of the measured value against seconds and bytes on the wire of a step.
    fastest : the methods that reach the target, the fastest first.
    left_out : methods without a price or without runs, and the reason.
    notes : what the evidence is, and what it is not.
    """

    question: AdviceQuestion
    compute: float
    prices: Mapping[str, MethodPrice]
    words: Mapping[str, list[str]]
    by_seconds: list[FrontPoint]
    by_bytes: list[FrontPoint]
    fastest: list[TimedMethod]
    left_out: Mapping[str, str]
    notes: list[str]


def advise(question: AdviceQuestion, field: Landscape | None = None) -> Advice:
    """Price every method that has evidence as the question says, and find the fronts.

    Raises
    ------
    ValueError
        If no method can be priced.
    """
    field, evidence = field or landscape(), question.evidence
    compute, source = minibatch_seconds(field, evidence, question.place, question.parameters, question.counted)
    prices, left_out = _priced(question, field, compute)
    if not prices:
        raise ValueError(
            f"workers={question.workers} must suit some method, got none that can be priced: "
            f"{next(iter(left_out.values()), 'there are no runs')}; try workers={evidence.task.workers}"
        )
    steps = evidence.task.steps
    values = {name: evidence.methods[name].values for name in prices}
    by_seconds = front({name: price.seconds / steps for name, price in prices.items()}, values, evidence.task.value)
    by_bytes = front({name: price.wire_bytes for name, price in prices.items()}, values, evidence.task.value)
    rates = {name: f"{RATE}={evidence.methods[name].rate:g}" for name in prices}
    words = {name: [*method_words(field.words(evidence.task, name)), rate] for name, rate in rates.items()}
    return Advice(
        question,
        compute,
        prices,
        words,
        by_seconds,
        by_bytes,
        _fastest(question, prices),
        left_out,
        _notes(question, source, prices),
    )


def _priced(
    question: AdviceQuestion, field: Landscape, compute: float
) -> tuple[dict[str, MethodPrice], dict[str, str]]:
    """Every method that has evidence, and why others have no price. Bytes are the counted ones where they fit."""
    evidence, layout = question.evidence, model_layout(question.evidence, question.parameters)
    counted = question.parameters is None and question.workers == evidence.task.workers
    prices: dict[str, MethodPrice] = {}
    left_out = {name: "not run yet" for name in evidence.task.competitors if name not in evidence.methods}
    left_out |= evidence.missing
    for method, found in evidence.methods.items():
        if found.outdated:
            left_out[method] = "its meaning has been corrected since it was run"
            continue
        try:
            price = method_price(field, evidence, method, question.place, compute, question.workers, layout)
        except ValueError as error:
            left_out[method] = str(error).splitlines()[0]
            continue
        if counted:
            price = replace(price, payload_bytes=found.payload_bytes, wire_bytes=found.wire_bytes)
        prices[method] = price
    return prices, left_out


def _fastest(question: AdviceQuestion, prices: Mapping[str, MethodPrice]) -> list[TimedMethod]:
    methods = question.evidence.methods
    seconds = {
        name: {seed: price.at(step) for seed, step in methods[name].to_target.items()}
        for name, price in prices.items()
        if len(methods[name].to_target) == len(methods[name].values)
    }
    theirs = seconds.get(BASELINE, {})
    found = [
        TimedMethod(name, mean, None if name == BASELINE else paired_ratio(theirs, own))
        for name, own in seconds.items()
        if (mean := estimate(own.values()))
    ]
    return sorted(found, key=lambda each: each.seconds.mean)


def _notes(question: AdviceQuestion, source: str, prices: Mapping[str, MethodPrice]) -> list[str]:
    """What the evidence is, and how it differs from what was asked."""
    found, task = question.evidence, question.evidence.task
    rough = [name for name, price in prices.items() if price.note]
    twins = [name for name, price in prices.items() if price.asynchronous]
    seeds = len(next(iter(found.methods.values())).values) if found.methods else 0
    notes = [
        f"Evidence: {task.title}; {task.reduced}. {seeds} seeds; each method had {len(task.rates)} learning rates, "
        f"chosen on validation data. Commit {found.commit}; simulated workers."
    ]
    if question.task != task.base["task"]:
        notes.append(
            f"No run here is of {question.task}: the nearest that was measured is {task.base['task']}, and accuracies "
            "and steps to the target are its own. Try the methods named here on your task before you rely on them."
        )
    if question.data != task.data:
        notes.append(f"You asked for {question.data} data; the only runs there are of this task have {task.data} data.")
    if question.workers != task.workers:
        notes.append(
            f"The runs had {task.workers} workers: accuracies are theirs; bytes and seconds are modelled for "
            f"{question.workers}."
        )
    if question.parameters is not None:
        notes.append(
            f"The runs' model has {found.parameters:,} parameters: accuracies are its own; bytes and seconds are "
            f"modelled for {question.parameters:,.4g}, in square matrices. What has a fixed size, such as a rank or a "
            "count, is then a smaller share than in the runs, and may be worse than it was there."
        )
    notes.append(
        f"Seconds are modelled, not measured: sending as {question.place.name} is described, computing {source}; "
        "compressing takes no time, and workers are equally fast."
    )
    if rough:
        notes.append(f"Roughly modelled, since profiles of them are not exact: {', '.join(rough)}; --json says why.")
    if twins:
        notes.append(f"With equally fast workers {', '.join(twins)} are the synchronous methods that they name.")
    return notes


def described(advice: Advice) -> dict[str, Any]:
    """The answer as plain values, for --json."""
    question, evidence = advice.question, advice.question.evidence
    return {
        "question": {
            "task": question.task,
            "data": question.data,
            "cluster": question.place.name,
            "workers": question.workers,
            "parameters": question.parameters,
            "minibatch_seconds": advice.compute,
        },
        "evidence": {
            "name": evidence.task.name,
            "task": evidence.task.base["task"],
            "same_task": question.task == evidence.task.base["task"],
            "data": evidence.task.data,
            "workers": evidence.task.workers,
            "parameters": evidence.parameters,
            "steps": evidence.task.steps,
            "value": evidence.task.value,
            "target": {evidence.task.by: evidence.target},
            "methods": len(evidence.methods),
            "commit": evidence.commit,
            "notes": advice.notes,
        },
        "by_seconds": [_point(advice, point) for point in advice.by_seconds],
        "by_bytes": [_point(advice, point) for point in advice.by_bytes],
        "fastest": [
            {
                "method": each.method,
                "modelled_seconds_to_target": each.seconds.mean,
                "half": each.seconds.half,
                "speed_up": each.speed_up and [each.speed_up.mean, each.speed_up.low, each.speed_up.high],
            }
            for each in advice.fastest
        ],
        "left_out": dict(advice.left_out),
    }


def _point(advice: Advice, point: FrontPoint) -> dict[str, Any]:
    found, price = advice.question.evidence.methods[point.method], advice.prices[point.method]
    return {
        "method": point.method,
        "words": advice.words[point.method],
        "rate_at_edge": found.edge or None,
        "mean": point.value.mean,
        "half": point.value.half,
        "seeds": point.value.n,
        "gain": point.gain and point.gain.mean,
        "gain_half": point.gain and point.gain.half,
        "told_apart": point.told_apart,
        "modelled_seconds_a_step": price.seconds / advice.question.evidence.task.steps,
        "wire_bytes_a_step": price.wire_bytes,
        "state_a_parameter": price.state,
        "note": price.note or None,
    }
