"""A question to the landscape: the words of `commeff advise` as a task, a cluster, workers and a model's size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from commeff.experiments.config.clusters import Place, read_place
from commeff.experiments.config.schema import built_in, did_you_mean
from commeff.experiments.published.landscape.evidence import TABLES, TaskEvidence, load

KEYS = ("task", "cluster", "data", "workers", "parameters", "step_seconds", "efficiency")
PLACE = ("cluster", "step_seconds", "efficiency")
DATA = ("iid", "skewed")
MOST_WORKERS = 4096
MOST_PARAMETERS = 1e13


@dataclass(frozen=True)
class AdviceQuestion:
    """A question to the landscape.

    Attributes
    ----------
    task, data : what is trained, and whether workers' data are "iid" or "skewed".
    place : the cluster, and how fast a worker computes there.
    workers : how many.
    parameters : of the model; None: those of the evidence's.
    counted : whether an efficiency was given, so that FLOPs say how long computing takes.
    evidence : the nearest that there is.
    """

    task: str
    data: str
    place: Place
    workers: int
    parameters: float | None
    counted: bool
    evidence: TaskEvidence


def read_advice(words: Sequence[str], tables: Path = TABLES) -> AdviceQuestion:
    """Read the words, and find the nearest evidence.

    Parameters
    ----------
    words : `key=value`.
    tables : the folder of the evidence.

    Raises
    ------
    ValueError
        With what is wrong, and what to write instead.
    """
    given = _given(words)
    task = _choice("task", given, built_in("task"), "what is trained decides which runs are evidence")
    data = _choice("data", {"data": "iid", **given}, DATA, "it says whether workers' data are alike")
    if "cluster" not in given:
        raise ValueError(
            "cluster must be given, got none: what a step costs depends on the link; give cluster=ethernet_1g, or a "
            "YAML file such as `commeff bench comm --profile` writes"
        )
    if {"step_seconds", "efficiency"} <= given.keys():
        raise ValueError(
            "step_seconds and efficiency must not both be given, got both: each says how long a worker computes; leave "
            "one out"
        )
    place = read_place(
        {key: value if key == "cluster" else _number(key, value) for key, value in given.items() if key in PLACE}
    )
    found = nearest(load(tables), task, data)
    workers = _number("workers", given.get("workers", str(found.task.workers)))
    if workers != int(workers) or not 2 <= workers <= MOST_WORKERS:
        raise ValueError(
            f"workers must be a whole number from 2 to {MOST_WORKERS}, got {given['workers']}: one alone has nobody to "
            "send to"
        )
    parameters = _number("parameters", given["parameters"]) if "parameters" in given else None
    if parameters is not None and not 1 <= parameters <= MOST_PARAMETERS:
        raise ValueError(
            f"parameters must be from 1 to {MOST_PARAMETERS:g}, got {given['parameters']}: it is the size of your "
            "model; write parameters=7e9"
        )
    return AdviceQuestion(task, data, place, int(workers), parameters, "efficiency" in given, found)


def _given(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise ValueError(f"settings must be key=value, such as task=digits, got {word!r}")
        if key not in KEYS:
            raise ValueError(
                f"key must be one of {', '.join(KEYS)}, got {key!r}{did_you_mean(key, KEYS)}: methods are what is "
                "advised, so their settings are those of the landscape"
            )
        if key in given:
            raise ValueError(f"{key} must be given once, got {given[key]} and {value}; keep one")
        given[key] = value
    return given


def _choice(key: str, given: Mapping[str, str], choices: Sequence[str], why: str) -> str:
    value = given.get(key, "")
    if value not in choices:
        shown, near = (repr(value), did_you_mean(value, choices)) if value else ("none", "")
        raise ValueError(
            f"{key} must be one of {', '.join(choices)}, got {shown}{near}: {why}; give {key}={choices[0]}"
        )
    return value


def _number(key: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"{key} must be a number, got {text!r}; write {key}=16, or 1e9")
    return value


def nearest(found: Mapping[str, TaskEvidence], task: str, data: str) -> TaskEvidence:
    """Of tasks that are like it, the one whose data are alike too, or else the first."""
    like = [each for each in found.values() if task in each.task.like]
    if not like:
        measured = ", ".join(sorted({name for each in found.values() for name in each.task.like})) or "none yet"
        raise ValueError(
            f"task must be one that the landscape has runs for, or is like one, got {task}: there is no evidence to "
            f"advise on; choose from {measured}"
        )
    return next((each for each in like if each.task.data == data), like[0])
