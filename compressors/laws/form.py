"""What a compressor class must be before anything can be said about its messages: a frozen dataclass with samples."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, ClassVar, get_origin

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
        own = issubclass(owner, Compressor) and owner is not Compressor
        require(not own or not stray, f"{owner.__name__} annotates {', '.join(stray)} but is no dataclass: {advice}")
    for sample in _samples(kind):
        for field in _fields(kind):
            value, its = getattr(sample, field.name), f"{sample}: its {field.name}"
            require(
                _hashable(value),
                f"{its} is a {type(value).__name__}, which can change: make it a tuple or a number",
            )


def _samples(kind: type[Compressor]) -> list[Compressor]:
    """The samples of a dataclass; AssertionError that says what to write where there are none."""
    name = kind.__name__
    needed = [f.name for f in _fields(kind) if f.init and f.default is MISSING and f.default_factory is MISSING]
    if needed and kind.samples.__func__ is Compressor.samples.__func__:  # type: ignore[attr-defined]
        example = ", ".join(f"{field}=..." for field in needed)
        raise AssertionError(
            f"{name} needs {', '.join(needed)}, and the laws know no value: give defaults, or write "
            f"`@classmethod def samples(cls): return [cls({example})]`"
        )
    samples: list[Any] = list(kind.samples())
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
