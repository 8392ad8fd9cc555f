"""What a compressor class must be before anything can be said about its messages: a frozen dataclass with samples."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import chain
from types import UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import LAYOUT, noise, require, streams
from commeff.compressors.message import Message


def cases(kind: type[Compressor]) -> list[Compressor]:
    """The samples on which the laws run, of a class that has the right form."""
    check_form(kind)
    return _samples(kind)


def check_form(kind: type[Compressor]) -> None:
    """A frozen dataclass, compared by its values, with `samples()` that can be made, hashed and bound."""
    name, advice = kind.__name__, "put @dataclass(frozen=True) above the class"
    require(is_dataclass(kind), f"{name} is no dataclass: make it @dataclass(frozen=True), a value that never changes")
    settings: Any = vars(kind).get("__dataclass_params__", getattr(kind, "__dataclass_params__", None))
    require(settings.frozen, f"{name} is a dataclass that can be changed: make it @dataclass(frozen=True)")
    require(settings.eq, f"{name} is compared by identity: drop eq=False, equal settings make equal compressors")
    names = {field.name for field in _fields(kind)}
    for owner in kind.__mro__:
        stray = [n for n, hint in inspect.get_annotations(owner).items() if n not in names and not _of_class(hint)]
        plugin = issubclass(owner, Compressor) and owner is not Compressor
        require(not plugin or not stray, f"{owner.__name__} annotates {', '.join(stray)} but is no dataclass: {advice}")
    for sample in _samples(kind):
        for field in _fields(kind):
            value, prefix = getattr(sample, field.name), f"{sample}: its {field.name}"
            require(
                _hashable(value),
                f"{prefix} is a {type(value).__name__}, which can change: make it a tuple or a number",
            )


def _samples(kind: type[Compressor]) -> list[Compressor]:
    """The samples of a dataclass, its own or with each field changed once."""
    name = kind.__name__
    has_samples = kind.samples.__func__ is not Compressor.samples.__func__  # type: ignore[attr-defined]
    samples: list[Any] = list(kind.samples()) if has_samples else list(_varied(kind))
    strangers = [sample for sample in samples if not isinstance(sample, kind)]
    require(bool(samples) and not strangers, f"{name}.samples() gives {samples}: return a list of {name} objects")
    for sample in samples:
        bound = sample.bind(LAYOUT)
        require(
            isinstance(bound, Compressor),
            f"{sample}: bind returns a {type(bound).__name__}: return self, or the compressor for the layout",
        )
        message: object = bound.compress(noise(0, 2), streams(2))
        require(
            isinstance(message, Message),
            f"{sample}: compress returns a {type(message).__name__}: return a Message, such as Dense().compress(...), "
            "or a frozen dataclass of your own under Message",
        )
    return samples


def _varied(kind: type[Compressor]) -> Iterator[Compressor]:
    """A compressor with its defaults, and with one field at a time at another value, where it takes that one.

    AssertionError that says what to write where a field has no default, and a type of which no value is known.
    """
    hints, axes = _hints(kind), dict[str, list[Any]]()
    for field in _fields(kind):
        if field.init:
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            values = [] if default is MISSING else [default]
            larger = [(1 + value) / 2 for value in values if isinstance(value, float) and 0 < value < 1]
            axes[field.name] = values + other_values(hints.get(field.name), *values) + larger
    if needed := [name for name, values in axes.items() if not values]:
        example = ", ".join(f"{name}=..." for name in needed)
        raise AssertionError(
            f"{kind.__name__} needs {', '.join(needed)}, and the laws know no value: give defaults, or write "
            f"`@classmethod def samples(cls): return [cls({example})]`"
        )
    first = {name: values[0] for name, values in axes.items()}
    yield kind(**first)
    for name, values in axes.items():
        for value in values[1:]:
            with suppress(ValueError):  # out of its range
                yield kind(**first | {name: value})


def other_values(hint: Any, *default: Any) -> list[Any]:
    """Values of a type other than the default, if there is one: what a setting may be. [] where no value is known.

    >>> other_values(int, 8), other_values(float, 0.2), other_values(bool, False), other_values(tuple, ())
    ([1, 2], [0.1], [True], [])
    >>> other_values(Literal["up", "down"], "up"), other_values(int | None, None), other_values(float)
    (['down'], [1, 2], [0.5])
    """
    if get_origin(hint) in (Union, UnionType):
        return list(chain.from_iterable(other_values(member, *default) for member in get_args(hint)))
    if get_origin(hint) is Literal:
        values: list[Any] = [*get_args(hint)]
    elif hint is float:
        values = [default[0] / 2 if default and default[0] else 0.5]
    elif hint is Compressor:
        from commeff.compressors import Natural, ScaledSign  # which are checked by what is here

        values = [ScaledSign(), Natural()]
    else:
        values = [False, True] if hint is bool else [1, 2] if hint is int else []
    return [value for value in values if value not in default]


def _hints(kind: type[Compressor]) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except NameError:  # imported for type checkers only
        return {}


def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


def _of_class(hint: Any) -> bool:
    return hint is ClassVar or get_origin(hint) is ClassVar or (isinstance(hint, str) and "ClassVar" in hint)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
