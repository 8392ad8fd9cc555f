"""What a configuration may hold: groups and their choices, and of each choice its version and the values that it takes.

Signatures are the schema: the annotations of a function say which values its part of the configuration may have.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, Union, get_args, get_origin

import yaml

from commeff.experiments.config.registry import locate, split
from commeff.experiments.config.written import written_annotation

GROUPS = ("task", "method", "compressor", "topology", "optimizer", "schedule")
OPTIONAL = ("compressor", "topology")  # for methods that refer to them
VERSION = "_version_"  # in the YAML of a choice whose meaning was corrected: how many meanings it has had

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
    ['constant', 'cosine', 'inverse_time', 'multi_step', 'one_cycle']
    """
    return [*_names(group)]


def node(group: str, name: str) -> dict[str, Any]:
    """The YAML file of a choice, as it is written."""
    return copy.deepcopy(_read(group, name))


@cache
def _names(group: str) -> tuple[str, ...]:
    files = resources.files("commeff.experiments.conf").joinpath(group).iterdir()
    return tuple(sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml")))


@cache
def _read(group: str, name: str) -> dict[str, Any]:
    text = resources.files("commeff.experiments.conf").joinpath(group, f"{name}.yaml").read_text(encoding="utf-8")
    tree: dict[str, Any] = yaml.safe_load(text)
    return tree


def version(part: Mapping[str, Any]) -> int:
    """Of what a part means; 1 until it is corrected. It is in the names of its runs, so that old results stay apart.

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
    today = next((version(each) for each in nodes if each["_target_"] == part.get("_target_")), version(part))
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


def parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function or of a class's constructor, annotations evaluated (`empty` where they cannot be).

    >>> def f(a: int, b: float | None = None): ...
    >>> [(p.name, p.annotation) for p in parameters(f).values()]
    [('a', <class 'int'>), ('b', float | None)]
    """
    signature = inspect.signature(target).parameters
    return {name: p.replace(annotation=_evaluated(p.annotation, target)) for name, p in signature.items()}


def returned(function: Callable[..., Any]) -> Any:
    """The return annotation of a function, evaluated."""
    return _evaluated(inspect.signature(function).return_annotation, function)


def _evaluated(annotation: Any, where: Callable[..., Any]) -> Any:
    try:
        return eval(annotation, vars(sys.modules[where.__module__])) if isinstance(annotation, str) else annotation
    except NameError:  # imported for type checkers only
        return inspect.Parameter.empty


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
        return any(value == each and type(value) is type(each) for each in arguments)
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
    hint = _hint(target, name)
    return None if fits(value, hint) else words(hint)


def _hint(target: str, name: str) -> Any:
    """The annotation of a parameter, from the source where that says it and nobody has imported it yet."""
    module, function = split(target)
    if ":" not in target and module not in sys.modules:
        written = written_annotation(module, function, name)
        if written is not None:
            return written
    parameter = parameters(locate(target)).get(name)
    return inspect.Parameter.empty if parameter is None else parameter.annotation


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """'; did you mean ...?' or nothing. Inside a part that exists only its keys count, then any key that ends alike.

    >>> keys = ["optimizer", "optimizer.lr", "task", "task.dtype", "steps"]
    >>> [did_you_mean(name, keys) for name in ("optimiser.lr", "lr", "step", "task.model")]
    ['; did you mean optimizer.lr?', '; did you mean optimizer.lr?', '; did you mean steps?', '']
    >>> [did_you_mean(name, keys) for name in ("learning_rate", "STEPS", "optimizer.LR")]
    ['; did you mean optimizer.lr?', '; did you mean steps?', '; did you mean optimizer.lr?']
    """
    known_names = [*names]
    part, _, end = name.rpartition(".")
    ends = {n.rpartition(".")[2]: n for n in reversed(known_names)}
    family = {n.rpartition(".")[2]: n for n in known_names if n.rpartition(".")[0] == part}
    near = [family[n] for n in _nearest(end, family)]
    if part and part not in known_names:
        near += difflib.get_close_matches(name, known_names, n=1)
    near += [ends[n] for n in _nearest(end, ends)]
    return f"; did you mean {near[0]}?" if near else ""


def _nearest(name: str, names: Iterable[str]) -> list[str]:
    """The name meant, if any: spelled alike, its beginning or a part of it, or its initials.

    >>> names = ["exponential", "one_peer_exponential", "scaled_sign", "lr", "weight_decay"]
    >>> [_nearest(name, names) for name in ("exponental", "one_peer", "sign", "learning_rate", "wd", "ring", "")]
    [['exponential'], ['one_peer_exponential'], ['scaled_sign'], ['lr'], ['weight_decay'], [], []]
    """
    plain = {n.lower().replace("_", "").replace("-", ""): n for n in reversed([*names])}
    word = name.lower().replace("_", "").replace("-", "")
    alike = difflib.get_close_matches(word, plain, n=1)
    if not alike:
        alike = [n for n in plain if min(len(word), len(n)) > 2 and (word in n or n in word)]
        alike = sorted(alike, key=lambda n: (not n.startswith(word), abs(len(n) - len(word))))
    if not alike and word:
        alike = [n for n, full in plain.items() if word == _initials(full) or n == _initials(name)]
    return [plain[n] for n in alike[:1]]


def _initials(name: str) -> str:
    words = name.lower().replace("-", "_").split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else ""
