"""What this command may build: the parts of commeff, and of the plug-ins that it was given or that are installed.

A configuration may come from anybody: a store, a list of cells, a grid file. `locate` is the only way from a name in
one to code, and it looks names up: it imports nothing, reads no file and runs nothing because a configuration says so.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.config.sources import helpers
from commeff.experiments.config.targets import split

OURS = (  # packages whose public names are parts
    "commeff.compressors",
    "commeff.experiments.tasks",
    "commeff.methods",
    "commeff.topologies",
    "commeff.transforms",
)
TORCH = {  # what the configuration's own files name of torch
    "torch.optim": ("SGD", "Adam", "AdamW"),
    "torch.optim.lr_scheduler": ("ConstantLR", "CosineAnnealingLR", "MultiStepLR"),
}
_offered: dict[str, Callable[..., Any]] = {}  # by the plug-ins of this command, by target


class UnknownPart(ValueError):
    """A name in a configuration that is none of a part that this command knows."""

    def __init__(self, target: object) -> None:
        named = isinstance(target, str) and (":" in target or target.count("."))
        remedy = "name its file or module with --plugin if you trust it" if named else "a part is named by _target_"
        super().__init__(f"{str(target)[:200]!r} is unknown here: {remedy}")


def offer(parts: Mapping[str, Callable[..., Any]]) -> None:
    """Make the parts of a plug-in known, by target; for whoever loads what a user has named or installed."""
    _offered.update(parts)


def locate(target: object) -> Callable[..., Any]:
    """The function or class that `target` names, if this command knows it.

    A plug-in file is known by its name and content, not by its folder, which may be another on another machine: the
    part of a file called alike that this command was given is the one meant, if there is one such.

    Parameters
    ----------
    target : "module.name", or "file.py:name" of a plug-in.

    Raises
    ------
    UnknownPart : for any other name.

    Examples
    --------
    >>> locate("commeff.topologies.ring")(4).n
    4
    """
    value = _built_in(target) or _plugged_in(target) if isinstance(target, str) else None
    if value is None:
        raise UnknownPart(target)
    return value


def known(target: object) -> bool:
    """Whether this command may build what `target` names.

    >>> known("commeff.methods.choco"), known("commeff.methods.family.os"), known("/tmp/x.py:f"), known(["os"])
    (True, False, False, False)
    """
    try:
        locate(target)
    except UnknownPart:
        return False
    return True


def _built_in(target: str) -> Callable[..., Any] | None:
    place, name = split(target)
    if place in OURS:
        module = importlib.import_module(place)
        value = getattr(module, name) if name in module.__all__ else None
    else:
        value = getattr(importlib.import_module(place), name) if name in TORCH.get(place, ()) else None
    return value if callable(value) else None


def _plugged_in(target: str) -> Callable[..., Any] | None:
    if target in _offered:
        return _offered[target]
    alike = {id(value): value for other, value in _offered.items() if ":" in target and _file(other) == _file(target)}
    return next(iter(alike.values())) if len(alike) == 1 else None


def _file(target: str) -> tuple[str, str]:
    """A part's file, without its folder, and its name."""
    place, name = split(target)
    return Path(place).name, name


def source_digest(target: str) -> str:
    """SHA-256 of the source behind a target that is known.

    It covers its file and those beside it that it imports, or every Python file of the package it comes from.
    """
    found, place = locate(target), split(target)[0]
    module = sys.modules[found.__module__ if place.endswith(".py") else place.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(module, "__path__", [])]
    files = sorted((str(file.relative_to(folder)), file) for folder in folders for file in folder.rglob("*.py"))
    if not files:
        file = Path(inspect.getsourcefile(module) or "")
        files = [("", file), *sorted(helpers(file).items())]
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(name.encode() + file.read_bytes())
    return digest.hexdigest()
