"""Plug-ins: what a user writes in one file becomes choices of the configuration, with its signature as the schema.

    public in the file                            becomes
    a subclass of `Compressor`                    compressor=its_name (in snake case)
    a class with all methods of a `Task`          task=its_name (in snake case)
    a function annotated `-> Strategy`            method=its_name
    a function annotated `-> Topology`            topology=its_name

Parameters that carry the name of another part follow it (`schema.WIRES`), the others keep their defaults and can be
set: `method.period=3`. A required compressor or topology of another name is a part within the part. A file or module
is named with `--plugin`; an installed package offers its own under the entry point group "commeff.plugins",
name = "module".
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from commeff.experiments.config.contained import ProcessEnding, raised_at
from commeff.experiments.config.loading import defined_in, load
from commeff.experiments.config.registry import locate, offer, plugins_in, split
from commeff.experiments.config.schema import ConfigError, built_in, node, signature_node
from commeff.experiments.config.signature import parameters, returned

ENTRY_POINTS = "commeff.plugins"
ADVICE = (
    "write a subclass of Compressor, a function annotated -> Strategy or -> Topology, or a task, such as a subclass of "
    "commeff.experiments.tasks.Supervised"
)


@dataclass(frozen=True)
class Choice:
    """One choice of a group.

    Attributes
    ----------
    group, name : as in `group=name`.
    node : what it stands for.
    """

    group: str
    name: str
    node: dict[str, Any] = field(hash=False)


def nodes(group: str, plugins: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """The nodes of all choices of a group, built-in and of plug-ins."""
    return {name: node(group, name) for name in built_in(group)} | {p.name: p.node for p in plugins if p.group == group}


def snake_case(name: str) -> str:
    """The name of a class as a choice.

    >>> snake_case("TopK"), snake_case("QSGD"), snake_case("PerTensor"), snake_case("Int8")
    ('top_k', 'qsgd', 'per_tensor', 'int8')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def file_and_name(plugin: str) -> tuple[str, str]:
    """The plug-in and the part of it that FILE, MODULE, FILE:NAME or MODULE:NAME says.

    >>> file_and_name("mine.py:Sign"), file_and_name("mine.py"), file_and_name("their.module:sign")
    (('mine.py', 'Sign'), ('mine.py', ''), ('their.module', 'sign'))
    """
    place, _, name = plugin.rpartition(":") if ":" in plugin.rpartition(".py")[2] else (plugin, "", "")
    return place, name


def adopt(plugins: Sequence[str]) -> tuple[list[Choice], list[str]]:
    """The choices of the given plug-ins, and of those that are installed.

    A given plug-in that cannot be used is refused; an installed one is left out, since it may have nothing to do with
    the command.

    Parameters
    ----------
    plugins : files that end in .py, or modules.

    Returns
    -------
    choices, complaints : and a line for each installed plug-in that is left out.

    Raises
    ------
    ConfigError : for a given plug-in that cannot be loaded, adds nothing, or has a name that is taken.
    """
    union: dict[tuple[str, str], Choice] = {}
    for plugin in plugins:
        union = _unite(union, choices(plugin))
    complaints = []
    for point in sorted(entry_points(group=ENTRY_POINTS)):
        try:
            union = _unite(union, choices(point.value, installed=True))
        except ValueError as error:
            source = f" of {point.dist.name}" if point.dist else ""
            complaints.append(f"the installed plug-in {point.name!r}{source} is left out: {error}")
    return list(union.values()), complaints


def admit(plugins: Sequence[str], config: Mapping[str, Any]) -> None:
    """Adopt the given and the installed plug-ins in a process that has not yet, if a configuration needs any."""
    if plugins_in(config):
        adopt(plugins)


def _unite(choices: dict[tuple[str, str], Choice], more: Sequence[Choice]) -> dict[tuple[str, str], Choice]:
    """All choices by group and name; two that share a name are refused, unless they are the same object."""
    united = dict(choices)
    for choice in more:
        rival = united.setdefault((choice.group, choice.name), choice)
        one, other = rival.node["_target_"], choice.node["_target_"]
        if locate(one) is not locate(other):
            raise ConfigError(
                [f"two plug-ins have a {choice.group} {choice.name!r}: {one} and {other}; rename one of them"]
            )
    return united


def loaded(plugin: str) -> ModuleType:
    """The module of a plug-in; what its own code raises is one line, a ConfigError."""
    try:
        return load(plugin)
    except ProcessEnding as error:
        raise ConfigError([f"plug-in {plugin} cannot be loaded: {error}"]) from error
    except Exception as error:  # whatever the user's own code raises
        reason = " ".join(str(error).split()) + raised_at(error, [Path(plugin)])
        if isinstance(error, ModuleNotFoundError) and f"{plugin}.".startswith(f"{error.name}."):
            reason += "; a plug-in is a file that ends in .py, or a module that is installed"
        raise ConfigError([f"plug-in {plugin} cannot be loaded: {type(error).__name__}: {reason}"]) from error


def choices(plugin: str, installed: bool = False) -> list[Choice]:
    """The choices that a plug-in adds.

    Parameters
    ----------
    plugin : a file that ends in .py, or a module.
    installed : whether an installed package offers it, whose names last.

    Raises
    ------
    ConfigError : if it cannot be loaded, adds nothing, or hides a built-in choice.
    """
    module = loaded(plugin)
    place = f"{module.__file__}:" if plugin.endswith(".py") else f"{plugin}{'.' if installed else ':'}"
    added = list(_choices(module, place))
    if not added:
        reasons = [*(sentence for _, sentence in unfinished(module).values()), *_unannotated(module)]
        raise ConfigError([f"plug-in {plugin} adds nothing: {'; '.join(reasons) or ADVICE}"])
    for choice in added:
        if choice.name in built_in(choice.group):
            reason = f"hides the built-in {choice.group} {choice.name!r}; choose another name"
            raise ConfigError([f"plug-in {plugin} {reason}"])
    targets = [choice.node["_target_"] for choice in added]
    offer({target: getattr(module, split(target)[1]) for target in targets})
    return added


def _choices(module: ModuleType, place: str) -> Iterator[Choice]:
    for name, value in defined_in(module):
        group = group_of(value)
        if group is not None:
            choice = snake_case(name) if inspect.isclass(value) else name
            yield Choice(group, choice, signature_node(parameters(value), place + name, group))


def group_of(value: Any) -> str | None:
    """The group that a class or function belongs to by its type, or None."""
    from commeff.compressors import Compressor
    from commeff.core.strategy import Strategy
    from commeff.topologies import Topology

    if not inspect.isclass(value):
        return {Strategy: "method", Topology: "topology"}.get(returned(value))
    if inspect.isabstract(value):
        return None
    if issubclass(value, Compressor):
        return "compressor"
    return None if lacking(value) else "task"


def lacking(kind: type) -> list[str]:
    """The methods of a `Task` that a class does not have."""
    from commeff.training.task import Task

    members = [name for name, value in vars(Task).items() if inspect.isfunction(value) and not name.startswith("_")]
    return [name for name in members if getattr(kind, name, None) in (None, getattr(Task, name))]


def unfinished(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Classes of a plug-in that lack a method to be a choice: the group, and a sentence on what they lack."""
    from commeff.compressors import Compressor

    empty = {}
    for name, value in defined_in(module):
        if not inspect.isclass(value) or group_of(value):
            continue
        missing = sorted(getattr(value, "__abstractmethods__", ())) or lacking(value)
        group = "compressor" if issubclass(value, Compressor) else "task"
        if group == "compressor" or {"batch", "loss"}.isdisjoint(lacking(value)):
            advice = "write them, or begin its name with _ if it is only a base"
            empty[name] = group, f"the {group} {name} lacks {', '.join(missing)}: {advice}"
    return empty


def _unannotated(module: ModuleType) -> Iterator[str]:
    from commeff.topologies import Topology

    for name, value in defined_in(module):
        if inspect.isclass(value) and issubclass(value, Topology):
            yield f"{name} is a topology: write a function that returns it, annotated -> Topology"
        elif inspect.isfunction(value) and returned(value) is inspect.Signature.empty:
            yield f"the function {name} does not say what it returns: annotate it -> Strategy or -> Topology"
