"""Pages of the reference: each package's public names, whose docstrings mkdocstrings sets."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from inspect import isclass, isfunction

PACKAGES = (
    "commeff.core",
    "commeff.transforms",
    "commeff.compressors",
    "commeff.topologies",
    "commeff.communicator",
    "commeff.training.task",
    "commeff.training.trainer",
    "commeff.profiling",
    "commeff.adapters.ddp_hook",
    "commeff.experiments.tasks",
    "commeff.sharding",
    "commeff.cluster",
    "commeff.planner",
    "commeff",  # last: what is left has no other home
)


def public(package: str) -> dict[str, str]:
    """The functions and classes that a package offers: name -> full name, where it is defined."""
    module = import_module(package)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    values = {name: getattr(module, name) for name in names}
    if not hasattr(module, "__all__"):  # a file: what it defines itself
        values = {name: value for name, value in values.items() if getattr(value, "__module__", "") == package}
    return {
        name: f"{value.__module__}.{value.__qualname__}"
        for name, value in values.items()
        if isclass(value) or isfunction(value)
    }


def pages(elsewhere: Collection[str] = ()) -> dict[str, str]:
    """The pages of the reference, by their place in the site; full names `elsewhere` are described on other pages."""
    result, done = {}, set(elsewhere)
    for package in PACKAGES:
        names = public(package)
        here = sorted(set(names.values()) - done)
        done |= {*here}
        text = f"# {package}\n\n" + "\n\n".join(f"::: {name}" for name in here)
        others = {name: full for name, full in names.items() if full not in here}
        if others:
            text += "\n\n## On other pages\n\n" + ", ".join(f"[`{name}`][{others[name]}]" for name in sorted(others))
        result[f"api/{package.rpartition('.')[2]}.md"] = text + "\n"
    return result
