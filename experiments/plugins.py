"""Plug-ins: what a reader writes in one file becomes choices of the configuration, its signature the schema.

A public subclass of `Compressor` becomes `compressor=<its name in snake case>`, a public function annotated
`-> Strategy` becomes `method=<its name>`, one annotated `-> Topology` becomes `topology=<its name>`. Parameters that
carry the name of another part are wired to it, the others keep their defaults and can be set: `method.period=3`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from experiments.groups import built_in
from experiments.schema import parameters, returned
from experiments.targets import defined_in, load

WIRES = {
    "optimizer": "${optimizer}",
    "compressor": "${compressor}",
    "topology": "${topology}",
    "n": "${workers}",
    "workers": "${workers}",
    "seed": "${seed}",
    "data_dir": "${data_dir}",
}


@dataclass(frozen=True)
class Choice:
    """One choice of a group: what its YAML file would hold."""

    group: str
    name: str
    node: dict[str, Any]


def snake_case(name: str) -> str:
    """
    >>> snake_case("TopK"), snake_case("QSGD"), snake_case("PerTensor"), snake_case("Int8")
    ('top_k', 'qsgd', 'per_tensor', 'int8')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def choices(plugin: str) -> list[Choice]:
    """The choices that a plug-in file or module adds; one that adds none, or hides a built-in, is refused."""
    try:
        module = load(plugin)
    except Exception as error:  # whatever the reader's own code raises
        raise ValueError(f"plug-in {plugin} cannot be loaded: {type(error).__name__}: {error}") from error
    found = list(_choices(module, str(module.__file__) if plugin.endswith(".py") else plugin))
    if not found:
        advice = "write a subclass of Compressor, or a function annotated -> Strategy or -> Topology"
        raise ValueError(f"plug-in {plugin} adds nothing; {advice}")
    for choice in found:
        if choice.name in built_in(choice.group):
            raise ValueError(f"plug-in {plugin} hides the built-in {choice.group} {choice.name!r}; choose another name")
    return found


def _choices(module: ModuleType, place: str) -> Iterator[Choice]:
    from commeff.strategy import Strategy
    from compressors import Compressor
    from topologies import Topology

    for name, value in defined_in(module):
        if inspect.isclass(value):
            group = "compressor" if issubclass(value, Compressor) and not inspect.isabstract(value) else None
        else:
            group = {Strategy: "method", Topology: "topology"}.get(returned(value))
        if group is not None:
            choice = snake_case(name) if group == "compressor" else name
            yield Choice(group, choice, signature_node(value, f"{place}:{name}", group))


def signature_node(value: Any, target: str, group: str) -> dict[str, Any]:
    """The YAML of a function or class: wired parameters, defaults, and `???` where there is none."""
    node: dict[str, Any] = {"_target_": target}
    for name, parameter in parameters(value).items():
        if name in WIRES and name != group:
            node[name] = WIRES[name]
        elif parameter.default is inspect.Parameter.empty:
            node[name] = "???"
        elif parameter.default is None or isinstance(parameter.default, (int, float, str, bool, list, tuple)):
            node[name] = parameter.default
    return node
