"""What a configuration may hold: groups and their choices, and of each choice its version and the values that it takes.

Signatures are the schema: the parameters of a function or class are the keys of its choice, their annotations say which
values these take. What a signature does not say is in one table for each group, `conf/GROUP.yaml`.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from inspect import Parameter
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from commeff.experiments.config.registry import PACKAGES, today
from commeff.experiments.config.signature import annotation, exported, signature

GROUPS = tuple(PACKAGES)
OPTIONAL = ("compressor", "topology")  # for methods that refer to them
OF_FUNCTIONS = ("method", "topology")  # every function of the package is one
OF_FACTORIES = ("optimizer", "schedule")  # a choice is a call that lacks its first argument
WIRES = {  # parameters of these names follow what they name
    "optimizer": "${optimizer}",
    "compressor": "${compressor}",
    "topology": "${topology}",
    "n": "${workers}",
    "workers": "${workers}",
    "seed": "${seed}",
    "data_dir": "${data_dir}",
}
FIRST = {  # of a part within a part, by its annotation
    "Compressor": "compressor=top_k",
    "Topology": "topology=ring",
    "Optimizer": "optimizer=sgd",  # of what makes one
}

TARGET = "_target_"  # the name of what is built
PARTIAL = "_partial_"  # it is a call that lacks an argument; an entry of a table that says so stands as it is written
PART = "_part_"  # GROUP=NAME: a part within the part, and beside it keys of that which have another default
BESIDE = "_beside_"  # {GROUP: NAME}: parts that suit a method, unless others are chosen
VERSION = "_version_"  # of a choice whose meaning was corrected: how many meanings it has had

CONTAINERS = ("builtins", "collections.abc", "typing")  # modules of the classes that a list may be
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
    list: "a list",
}


class ConfigError(ValueError):
    """A configuration that cannot be run.

    Parameters
    ----------
    faults : a line for each reason; equal ones count once.
    """

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(dict.fromkeys(faults))
        super().__init__("\n".join(self.faults))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return ConfigError, (self.faults,)


def built_in(group: str) -> list[str]:
    """The choices of a group.

    >>> built_in("schedule")
    ['constant', 'cosine', 'inverse_time', 'multi_step', 'one_cycle', 'wsd']
    """
    return [*_targets(group)]


@cache
def node(group: str, name: str) -> dict[str, Any]:
    """The node of a choice, never to be written: the signature of what it names, and the entries of its group's table.

    >>> node("topology", "base_graph")
    {'_target_': 'commeff.topologies.base_graph', 'n': '${workers}', 'k': 1}
    """
    entry, target = _table(group).get(name) or {}, _targets(group)[name]
    if PARTIAL in entry:
        return entry
    parameters = dict(signature(target))
    if group in OF_FACTORIES:
        parameters.pop(next(iter(parameters)))  # what optimizers and schedules are of
        entry = {PARTIAL: True, **entry}
    return signature_node(parameters, target, group) | entry


@cache
def _targets(group: str) -> dict[str, str]:
    """The target of each choice: a function that the package of the group exports, or what an entry of the table names:
    by its target, or by the class that is spelled alike.
    """
    package, table = PACKAGES[group], _table(group)
    names = exported(package)
    classes = {plain(name): name for name in names}
    targets = {name: f"{package}.{name}" for name in names if group in OF_FUNCTIONS and name.islower()}
    for name, entry in table.items():
        targets[name] = (entry or {}).get(TARGET) or f"{package}.{classes[plain(name)]}"
    return dict(sorted(targets.items()))


@cache
def _table(group: str) -> dict[str, dict[str, Any] | None]:
    text = resources.files("commeff.experiments.conf").joinpath(f"{group}.yaml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Any] | None] = yaml.safe_load(text)
    return table


def signature_node(parameters: Mapping[str, Parameter], target: str, group: str) -> dict[str, Any]:
    """Parameters as a node of the configuration: those with the name of another part follow it (`WIRES`), a
    required part has a first choice (`FIRST`), others have their defaults, and `???` where there is none.

    A parameter whose name begins with _ is not set, nor one whose default is no plain value.
    """
    tree: dict[str, Any] = {TARGET: target}
    for name, parameter in parameters.items():
        default, kind = parameter.default, _kind(parameter.annotation)
        if name.startswith("_") or parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        if name in WIRES and name != group:
            tree[name] = WIRES[name]
        elif default is Parameter.empty:
            tree[name] = {PART: FIRST[kind]} if kind in FIRST else "???"
        elif isinstance(default, (list, tuple)):
            tree[name] = [*default]
        elif default is None or isinstance(default, (int, float, str, bool)):
            tree[name] = default
    return tree


def _kind(hint: Any) -> str:
    """The name of a class, or of what a callable gives.

    >>> _kind(int), _kind(Callable[[Any], dict]), _kind(list[int])
    ('int', 'dict', 'list')
    """
    gives = get_args(hint)[-1] if get_origin(hint) is Callable else hint
    return getattr(gives, "__name__", "")


def plain(name: str) -> str:
    """A name without the characters that may vary in writing.

    >>> plain("QSGD"), plain("top-k"), plain("tern_grad") == plain("TernGrad")
    ('qsgd', 'topk', True)
    """
    return name.lower().replace("_", "").replace("-", "")


def gathered(target: object) -> dict[str, dict[str, Any]]:
    """The parts of a method that have keys which once were its own, by which its runs are still named.

    >>> gathered("commeff.methods.zero_one_adam")["updates"]
    {'_target_': 'commeff.transforms.Thinning', 'freeze': 400, 'kappa': 16}
    """
    name = str(target).removeprefix(f"{PACKAGES['method']}.")
    entry = _table("method").get(name) or {}
    return {key: value for key, value in entry.items() if isinstance(value, dict) and TARGET in value}


def current(node: Any) -> Any:
    """A stored configuration with today's names of targets that were outside commeff when it was written, and with keys
    where they are today.

    >>> current({"topology": {"_target_": "topologies.ring", "n": 4}})
    {'topology': {'_target_': 'commeff.topologies.ring', 'n': 4}}
    >>> current({"_target_": "commeff.methods.diloco", "delay": 1})["exchange"]
    {'_target_': 'commeff.transforms.Exchange', 'delay': 1}
    """
    if not isinstance(node, dict):
        return node
    updated = {name: today(value) if name == TARGET else current(value) for name, value in node.items()}
    for part, of in gathered(updated.get(TARGET)).items():
        if moved := {key: updated.pop(key) for key in of if key in updated and key != TARGET}:
            updated[part] = {TARGET: of[TARGET]} | moved
    return updated


def version(part: Mapping[str, Any]) -> int:
    """The version of a part's meaning, 1 until it is corrected. It is in the names of its runs: old results stay apart.

    >>> version(node("method", "post_local_sgd")), version(node("method", "local_sgd"))
    (2, 1)
    """
    return int(part.get(VERSION, 1))


def meshed(config: Mapping[str, Any]) -> bool:
    """Whether a configuration has a mesh of more than one process.

    >>> meshed({"mesh": {"worker": 1, "tensor": 2, "schedule": "1f1b"}}), meshed({})
    (True, False)
    """
    return any(isinstance(degree, int) and degree > 1 for degree in config.get("mesh", {}).values())


def over_mesh(config: Mapping[str, Any]) -> bool:
    """Whether each worker lies on several processes; otherwise a mesh says where whole ones would be cut.

    >>> over_mesh({"mesh": {"tensor": 2}, "nproc": 2}), over_mesh({"mesh": {"tensor": 2}, "nproc": 1})
    (True, False)
    """
    return meshed(config) and config.get("nproc", 1) > 1


def check_version(group: str, part: Mapping[str, Any]) -> None:
    """Refuse a part of a stored configuration that has been corrected since."""
    nodes = [node(group, name) for name in built_in(group)]
    today = next((version(choice) for choice in nodes if choice["_target_"] == part.get("_target_")), version(part))
    if today != version(part):
        name = str(part["_target_"]).rpartition(".")[2]
        raise ValueError(
            f"{name} must have version {today}, which this commeff has, got {version(part)}: its meaning was corrected "
            "since; run it anew from its settings"
        )


def takes(method: dict[str, Any]) -> list[str]:
    """The optional parts that a method refers to.

    >>> takes(node("method", "choco")), takes(node("method", "psgd"))
    (['compressor', 'topology'], [])
    """
    return [part for part in OPTIONAL if f"${{{part}}}" in method.values()]


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type `hint`; a node with a `_target_` may be any object.

    >>> fits(3, float), fits("fast", float), fits(None, int | None), fits(True, int), fits("awc", Literal["atc", "awc"])
    (True, False, True, False, True)
    >>> fits(True, Literal[1, 2]), fits([True], list[float]), fits(False, bool | float)
    (False, False, True)
    >>> fits([1, 2], list[int]), fits([0.9, 0.999], tuple[float, float]), fits(["a"], list[int])
    (True, True, False)
    >>> fits(["a", 1], tuple[str, int]), fits(["a"], tuple[str, int]), fits([0.1, 0.2], float | inspect.Signature)
    (True, False, False)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, inspect.Parameter.empty):
        return True
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is Literal:
        return any(value == literal and type(value) is type(literal) for literal in arguments)
    if isinstance(value, list) and origin is tuple and Ellipsis not in arguments:
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if isinstance(value, list) and origin is None and inspect.isclass(hint) and hint.__module__ not in CONTAINERS:
        return False
    if isinstance(value, list):
        inner = [a for a in arguments if a is not Ellipsis] or [Any]
        return (origin or hint) not in WORDS.keys() - {list} and any(all(fits(v, i) for v in value) for i in inner)
    if isinstance(value, dict):
        return hint not in WORDS
    return isinstance(value, (int, float) if hint is float else hint if hint in WORDS else ()) and (
        hint is bool or not isinstance(value, bool)
    )


def words(hint: Any) -> str:
    """A type in words.

    >>> words(float | None), words(Literal["atc", "awc"])
    ('a number or null', "'atc' or 'awc'")
    >>> words(tuple[float, float])
    'a list of 2'
    """
    if get_origin(hint) in (Union, types.UnionType):
        hints = [h for h in get_args(hint) if get_origin(h) or h in WORDS]
        return " or ".join(dict.fromkeys(words(h) for h in hints or get_args(hint)))
    if get_origin(hint) is tuple and Ellipsis not in get_args(hint):
        return f"{WORDS[list]} of {len(get_args(hint))}"
    if get_origin(hint) is Literal:
        return " or ".join(repr(choice) for choice in get_args(hint))
    return WORDS.get(hint, WORDS[list] if get_args(hint) else getattr(hint, "__name__", str(hint)))


def misfit(target: str, name: str, value: Any) -> str | None:
    """The type of a parameter of `target` in words, if `value` is of another; else None.

    >>> misfit("commeff.topologies.ring", "n", 3), misfit("commeff.methods.choco", "gamma", "big")
    (None, 'a number')
    """
    hint = annotation(target, name)
    return None if fits(value, hint) else words(hint)
