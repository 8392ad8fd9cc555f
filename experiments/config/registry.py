"""Names of parts, as a `_target_` of the configuration has them, and what this command may build by them.

commeff.methods.choco          an attribute of a module, ours or of an installed plug-in
folder/mine.py:SignOfMean      an attribute of a file, or of a module, named on the command line: a plug-in

A configuration may come from anybody: a store, a list of cells, a grid file. `locate` is the only way from a name in
one to code, and it looks names up: it imports nothing, reads no file and runs nothing because a configuration says so.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

PACKAGES = {  # of each group; their public names are its choices
    "task": "commeff.experiments.tasks",
    "method": "commeff.methods",
    "compressor": "commeff.compressors",
    "topology": "commeff.topologies",
    "optimizer": "commeff.optimizers",
    "schedule": "commeff.schedules",
}
OURS = (*PACKAGES.values(), "commeff.transforms")  # packages whose public names are parts
TORCH = {  # what the configuration's own files name of torch
    "torch.optim": ("SGD", "Adam", "AdamW", "Adagrad", "RAdam", "NAdam", "Adafactor"),
    "torch.optim.lr_scheduler": ("ConstantLR", "CosineAnnealingLR", "MultiStepLR", "OneCycleLR"),
}
FIRST_PARTY = ("commeff", "torch")
ONCE_APART = ("compressors", "experiments", "topologies")  # were packages beside commeff; run names still say so
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

    >>> known("commeff.methods.choco"), known("commeff.methods.family.os"), known("folder/x.py:f"), known(["os"])
    (True, False, False, False)
    """
    try:
        locate(target)
    except UnknownPart:
        return False
    return True


def _built_in(target: str) -> Callable[..., Any] | None:
    place, name = split(target)
    if target != f"{place}.{name}":  # a colon is for plug-ins
        return None
    names = importlib.import_module(place).__all__ if place in OURS else TORCH.get(place, ())
    value = getattr(importlib.import_module(place), name) if name in names else None
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


def split(target: str) -> tuple[str, str]:
    """Module (or file) and name.

    >>> split("torch.optim.SGD"), split("mine.py:Mine")
    (('torch.optim', 'SGD'), ('mine.py', 'Mine'))
    """
    module, _, name = target.rpartition(":" if ":" in target else ".")
    return module, name


def lasting(target: str) -> str:
    """The name of a target in run identities, whatever package has it today.

    >>> lasting("commeff.compressors.TopK"), lasting("commeff.methods.choco"), lasting("mine.py:Mine")
    ('compressors.TopK', 'commeff.methods.choco', 'mine.py:Mine')
    """
    inner = target.removeprefix("commeff.")
    return inner if inner.split(".")[0] in ONCE_APART else target


def targets_in(node: Any) -> Iterator[Any]:
    """Every `_target_` of a configuration.

    >>> [*targets_in({"method": {"_target_": "mine.py:mine", "outer": {"_target_": "torch.optim.SGD"}}, "steps": 3})]
    ['mine.py:mine', 'torch.optim.SGD']
    >>> [*targets_in({"rules": [["*.bias", {"_target_": "mine.py:Mine"}]]})]
    ['mine.py:Mine']
    """
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from [value] if name == "_target_" else targets_in(value)
    elif isinstance(node, list):
        for item in node:
            yield from targets_in(item)


def today(target: Any) -> Any:
    """The inverse of `lasting`: where a stored target is today."""
    outside = isinstance(target, str) and target.split(".")[0] in ONCE_APART and target.count(".")
    return f"commeff.{target}" if outside else target


def foreign(target: str) -> bool:
    """Whether a target is somebody else's code, which may change while ours does not.

    >>> [foreign(t) for t in ("commeff.methods.choco", "torch.optim.SGD", "fractions.Fraction")]
    [False, False, False]
    >>> [foreign(t) for t in ("folder/mine.py:Mine", "their_package.methods.theirs")]
    [True, True]
    """
    return ":" in target or third_party(split(target)[0])


def plugins_in(node: Any) -> list[str]:
    """The targets of a configuration that are somebody else's code."""
    return [target for target in targets_in(node) if isinstance(target, str) and foreign(target)]


def third_party(name: str) -> bool:
    """Whether a module is neither ours nor of the standard library.

    >>> third_party("commeff.methods"), third_party("fractions"), third_party("my_helper")
    (False, False, True)
    """
    return name.partition(".")[0] not in {*FIRST_PARTY, *sys.stdlib_module_names}
