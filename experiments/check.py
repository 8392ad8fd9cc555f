"""`commeff check`: the laws on a plug-in of the reader's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

import commeff.laws
import compressors.laws
from experiments.plugins import choices
from experiments.schema import did_you_mean
from experiments.targets import locate


def check_plugin(plugin: str) -> bool:
    """Run the laws of compressors and of methods on FILE[:NAME], a line for each law; True if one is broken."""
    file, _, name = plugin.rpartition(":") if ".py:" in plugin else (plugin, "", "")
    found = {
        choice.node["_target_"].rpartition(":")[2]: choice for choice in choices(file) if choice.group != "topology"
    }
    if name and name not in found:
        raise ValueError(f"no {name!r} in {file}{did_you_mean(name, found)}; it has {', '.join(found)}")
    laws: dict[str, Callable[[Any], list[str]]] = {"compressor": _check_compressor, "method": commeff.laws.check}
    broken = False
    for own in [name] if name else found:
        try:
            passed = laws[found[own].group](locate(found[own].node["_target_"]))
        except Exception as error:  # a law that does not hold, or whatever the reader's own code raises
            broken = True
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            typer.echo(f"{own}: BROKEN: {kind}{error}")
        else:
            typer.echo(f"{own}: {len(passed)} laws hold: {', '.join(passed)}")
    return broken


def _check_compressor(kind: type[compressors.Compressor]) -> list[str]:
    for sample in kind.samples():
        compressors.laws.check(sample)
    return [law.__name__.removeprefix("check_") for law in compressors.laws.LAWS]
