"""What formulas may name: labels and settings that are numbers, `let`, and constants of a case's parts.

`task.NAME` is what the task's method `constants()` says, such as L and mu of `risk`, or d of its model, or how many
training samples it has; `topology.NAME` is rho, gap,
lambda_min or degree of the first mixing matrix, or the period; `compressor.NAME` is delta or omega for the d of the
task's model, or d.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.published.reproduce.cases import Case
from commeff.experiments.published.reproduce.formulas import evaluate
from commeff.experiments.published.reproduce.language import Expression, LanguageError, parse_formula
from commeff.experiments.published.reproduce.table import PublishedTable

DIGITS = 6  # of a number that a formula puts into a setting: libraries differ in the last digits
PARTS = ("task", "topology", "compressor")


class MissingPart(LanguageError):
    """A formula names a part that the method of the case does not take."""


def is_formula(value: str) -> bool:
    """Whether a setting's value is a formula."""
    return value.startswith("=")


def resolved(table: PublishedTable, case: Case) -> dict[str, str]:
    """The settings of a case, their formulas worked out.

    Raises
    ------
    LanguageError : for a name that means nothing there.
    """
    return {key: worked_out(table, case, key, value) for key, value in case.settings.items()}


def worked_out(table: PublishedTable, case: Case, key: str, value: str, parts: bool = True) -> str:
    """A value as it is written into a setting of a case; without `parts`, formulas may name none of them."""
    if not is_formula(value):
        return value
    text = value[1:].strip()
    if text in case.labels:  # a parameter, which may be a word
        return case.labels[text]
    try:
        number = evaluate(parse_formula(text), lambda name: constant(table, case, name, (), parts))
    except LanguageError as error:
        raise LanguageError(f"{key}: {error}") from None
    return f"{number:.{DIGITS}g}"


def constant(table: PublishedTable, case: Case, name: str, within: tuple[str, ...] = (), parts: bool = True) -> float:
    """The number that a name has in a case; without `parts`, those that need no part of it."""
    if name in within:
        raise LanguageError(f"{name} refers to itself")

    def inside(tree: Expression) -> float:
        return evaluate(tree, lambda other: constant(table, case, other, (*within, name), parts))

    if name in table.let:
        return inside(table.let[name])
    text = case.label(name) or case.settings.get(name)
    if text is not None and is_formula(text):
        return inside(parse_formula(text[1:]))
    if text is not None:
        try:
            return float(text)
        except ValueError:
            raise LanguageError(f"{name} is {text!r}, which is no number") from None
    part, _, inner = name.partition(".")
    if part in PARTS and inner:
        found = _of_parts(table, case, part) if parts else {}
        if inner in found:
            return found[inner]
        raise LanguageError(f"{part} has no constant {inner!r}{did_you_mean(inner, found)}; it has {', '.join(found)}")
    known = [*table.let, *case.labels, *case.settings]
    raise LanguageError(f"{name!r} is no number there{did_you_mean(name, known)}")


def _of_parts(table: PublishedTable, case: Case, part: str) -> Mapping[str, float]:
    """The constants of a part. Settings that themselves depend on constants of parts do not decide them."""
    plain = {}
    for key, value in case.settings.items():
        try:
            plain[key] = worked_out(table, case, key, value, parts=False)
        except LanguageError:
            continue
    return _computed(part, tuple(f"{key}={value}" for key, value in plain.items()), table.seeds[0])


@cache
def _computed(part: str, words: tuple[str, ...], seed: int) -> Mapping[str, float]:
    from commeff.experiments.config.compose import compose

    config = compose([*words, f"seed={seed}"])
    if part not in config:
        raise MissingPart(f"the method has no {part}")
    wanted = {part: config[part]} | ({"task": config["task"]} if part == "compressor" else {})
    return COMPUTED[part](json.dumps(wanted, sort_keys=True))


@cache
def task_of(config: str) -> Any:
    """The task of a configuration, made once."""
    from commeff.experiments.config import build

    return build.task(json.loads(config))


def _task_constants(config: str) -> Mapping[str, float]:
    task = task_of(config)
    constants: Callable[[], Mapping[str, float]] = getattr(task, "constants", dict)
    return {"d": _numbers_of(task), **({"samples": float(task.size)} if task.size else {}), **constants()}


def _numbers_of(task: Any) -> float:
    """d of a task's model."""
    return float(sum(parameter.numel() for parameter in task.model().parameters()))


@cache
def _topology_constants(config: str) -> Mapping[str, float]:
    from commeff.experiments.config import build

    topology = build.topology(json.loads(config))
    matrix = topology.at(0)
    found = {"rho": matrix.rho, "gap": 1 - matrix.rho, "degree": float(matrix.degree), "n": float(topology.n)}
    found |= {"lambda_min": matrix.lambda_min} if matrix.symmetric else {}
    return found | ({"period": float(topology.period)} if topology.period else {})


@cache
def _compressor_constants(config: str) -> Mapping[str, float]:
    from commeff.experiments.config import build

    both = json.loads(config)
    compressor = build.compressor(both)
    d = int(_numbers_of(task_of(json.dumps({"task": both["task"]}, sort_keys=True))))
    sizes = {"delta": compressor.delta(d), "omega": compressor.omega(d), "d": float(d)}
    return {name: float(size) for name, size in sizes.items() if size is not None}


COMPUTED: Mapping[str, Callable[[str], Mapping[str, float]]] = {
    "task": _task_constants,
    "topology": _topology_constants,
    "compressor": _compressor_constants,
}


def formula_of(table: PublishedTable, case: Case, tree: Expression) -> float:
    """The number of a formula in a case."""
    return evaluate(tree, lambda name: constant(table, case, name))
