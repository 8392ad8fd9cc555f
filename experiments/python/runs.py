"""`commeff.run`: what `commeff train` does, from Python, with names or with objects of your own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from commeff.core import Strategy
from commeff.experiments.config.build import Parts, build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import Choice, adopt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.spec import words_of
from commeff.experiments.python.children import command
from commeff.experiments.python.results import TrainedRun
from commeff.experiments.report.data.records import read_record
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.progress import reporter
from commeff.experiments.run.runner import RunFailed, run_one
from commeff.experiments.run.store import check_version
from commeff.training.identity import describe

OBJECTS = ("method", "task")  # parts that may be given as objects
INSIDE = {"method": ("compressor", "topology", "optimizer", "schedule"), "task": ("model",)}  # what an object has


def run(
    settings: Mapping[str, Any] | None = None,
    /,
    *,
    store: str | Path = "runs",
    folder: str | Path | None = None,
    plugins: Sequence[str] = (),
    progress: bool = True,
    **keys: Any,
) -> TrainedRun:
    """Train one method on one task, as `commeff train` does with the same words, and give the result.

        commeff.run(task="digits", method="dsgd", topology="ring", workers=16, steps=400)
        commeff.run({"compressor.ratio": 0.01}, method="mem_sgd", compressor="top_k")
        commeff.run(task=MyTask(), method=methods.dsgd(optimizer, topologies.ring(8)), steps=400, folder="runs/mine")

    A finished run is not repeated, and Ctrl-C (a notebook's interrupt) stops with a checkpoint: the same call goes on.

    Parameters
    ----------
    settings : Mapping, optional
        Keys with a dot in them, such as `{"optimizer.lr": 0.1}`.
    store : str or Path
        The folder that holds one folder a run; the run's name follows from what decides its result.
    folder : str or Path
        Of this run. For objects only, which have no name that says what they do: give each setting a folder of its own.
    plugins : sequence of str
        Files or modules of your own, whose parts may be named.
    progress : bool
        Whether to say how far it is.
    **keys
        Every key of `commeff show`. `method` may be a `Strategy` or a function from the number of workers to one, and
        `task` a `Task`.

    Raises
    ------
    ValueError
        A key that is not there or does not fit, one line for each; nothing has been written then.
    """
    if not isinstance(settings, Mapping | None):
        raise ConfigError([f"settings must be a dict, got {settings!r:.60}; write commeff.run(task='digits')"])
    return train_given({**(settings or {}), **keys}, store, folder, plugins, progress)


def train_given(
    keywords: dict[str, Any],
    store: str | Path,
    folder: str | Path | None,
    plugins: Sequence[str],
    progress: bool,
    identity: Mapping[str, Any] | None = None,
) -> TrainedRun:
    """`run` of words and objects; with an identity, which says what the objects are, a store names their run too."""
    _check_plain({name: value for name, value in keywords.items() if name not in OBJECTS})
    objects = {name: keywords.pop(name) for name in OBJECTS if not isinstance(keywords.get(name, ""), str)}
    words = words_of(keywords)
    choices, complaints = adopt([*plugins])
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    if objects and folder is None and identity is None:
        raise ValueError("folder must be given for a task or a method that is an object, got none: it has no name")
    if not objects and folder is not None:
        raise ValueError("folder must be left out where parts have names: the store names the run; give store=...")
    config, parts = _of_objects(objects, words, choices, identity) if objects else (compose(words, choices), None)
    if folder is None:
        path = Path(store) / run_id(config)
        check_version(Path(store))
    else:
        path = Path(folder)
        before = read_record(path).config
        if before and run_id(before) != run_id(config):
            raise ValueError(f"{path} holds another run; give each setting a folder of its own, or remove it")
    if config["nproc"] > 1:  # forks of a process in which torch has worked may hang
        if command("train", *words, *(f"--plugin={file}" for file in plugins), f"--store={store}", shown=progress) == 1:
            raise RunFailed(f"{path} failed; see {path / 'error.txt'}")
    else:
        with reporter(config, path, shown=progress) as report:
            run_one(config, path, report, parts=parts)
    return TrainedRun(read_record(path))


def _check_plain(settings: Mapping[str, Any]) -> None:
    """Refuse objects where words are meant: parts as objects go into a method or a task that is one."""
    for key, value in settings.items():
        if not isinstance(value, (str, Number, list, tuple, Mapping, Path, type(None))):
            part = next((name for name, parts in INSIDE.items() if key.partition(".")[0] in parts), "method")
            example = {"method": "method=methods.dsgd(optimizer, topology)", "task": "a Task with that model"}[part]
            raise ConfigError(
                [f"{key} must be a name or a number, got a {type(value).__name__}: an object goes into {example}"]
            )


def _of_objects(
    objects: Mapping[str, Any],
    words: Sequence[str],
    choices: Sequence[Choice],
    identity: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], Parts]:
    """The configuration and the parts of a run whose task or method is there already: it says of them what it can."""
    within = {part for name in objects for part in (name, *INSIDE[name])}
    unused = [word for word in words if word.partition("=")[0].split(".")[0] in within]
    if unused:
        raise ConfigError([f"{word!r} must be left out: the object that was given has its own" for word in unused])
    task, method = objects.get("task"), objects.get("method")
    if task is not None:
        if isinstance(task, type) or not isinstance(getattr(task, "workers", None), int):
            raise ConfigError([f"task must be a name or a Task, which has workers, got {task!r:.60}"])
        words = [f"workers={task.workers}", *words]
    config = compose(words, choices)
    if config["nproc"] > 1:
        raise ConfigError(["nproc must be 1 for objects: processes build their own; write a plug-in file"])
    if method is not None and not isinstance(method, Strategy):
        made = method(config["workers"]) if callable(method) else method
        if not isinstance(made, Strategy):
            raise ConfigError([f"method must be a name, a Strategy or a function from n to one, got {made!r:.60}"])
        method = made
    parts = build(config, task, method)
    config = {name: value for name, value in config.items() if name not in within}
    if task is not None:
        facts = {"given": type(task).__qualname__} | dict(identity or {})
        config["task"] = {"_target_": "commeff.training.task.Task", **facts}
    if method is not None:
        config["method"] = {"_target_": "commeff.core.Strategy", "given": describe(method)}
    return config, parts
