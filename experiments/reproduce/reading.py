"""A table's file, executed: the names that it binds, and what is wrong in it, with its line."""

from __future__ import annotations

import ast
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from inspect import Parameter, signature
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from commeff import require
from commeff.experiments.config.contained import ProcessEnding, contained, is_interrupt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.escape import one_line
from commeff.require import did_you_mean

KEYS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("title", "paper", "about", "measure"), (str,)),
    **dict.fromkeys(("names", "settings", "left_open", "metrics", "base", "comparable", "scales", "cost"), (dict,)),
    **dict.fromkeys(("tune", "tolerance", "figure"), (dict,)),
    **dict.fromkeys(("parameters", "grid", "seeds", "show", "numbers"), (list, tuple)),
    "cluster": (str, dict),
    "claims": (FunctionType,),
}
WORDS = {str: "text", dict: "a dict", list: "a list", tuple: "", FunctionType: "a function, `def claims(r):`"}
T = TypeVar("T")


class TableError(Exception):
    """What a table says and cannot mean."""


@contextmanager
def table_code(path: Path) -> Iterator[None]:
    """Turn what is wrong in a table, and errors that passed through its code, into one line; another error passes.

    Raises
    ------
    ConfigError : with the file, the line if there is one, and the reason.
    """
    try:
        yield
    except BaseException as raised:
        error = raised.__cause__ if isinstance(raised, ProcessEnding) and raised.__cause__ else raised
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        if isinstance(error, TableError) and not lines:
            raise ConfigError([f"{path.name}{_line(path, str(error))}: {error}"]) from None
        if not lines or is_interrupt(error):
            raise
        known = isinstance(error, (TableError, ConfigError, OSError))
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        words = [*([] if known else [type(error).__name__]), *filter(None, [" ".join(text.split())])]
        raise ConfigError([f"{path.name} line {lines[-1]}: {': '.join(words)}"]) from None


def _line(path: Path, error: str) -> str:
    """The line of the first string of a table's file that an error quotes, in words; "" if there is none."""
    tree, quoted = ast.parse(path.read_bytes()), re.findall(r"'([^']+)'", error)
    strings = {node.value: node.lineno for node in reversed([*ast.walk(tree)]) if isinstance(node, ast.Constant)}
    return next((f" line {strings[word]}" for word in quoted if word in strings), "")


def execute(path: Path) -> dict[str, Any]:
    """What a table's file says, by its keys.

    Helpers in it are functions, classes, imports, names that begin with _ and constants in capitals.

    Raises
    ------
    ConfigError : where it cannot be read or executed, and for other names, which may be slips.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ConfigError([f"table {path} cannot be read: {error.strerror}"]) from None
    module = ModuleType(f"commeff_table_{path.stem}")
    module.__file__ = str(path)
    with table_code(path), contained():
        tree = ast.parse(source, str(path))
        sys.modules[module.__name__] = module  # as dataclasses want it
        exec(compile(tree, str(path), "exec"), vars(module))
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    faults = {}
    for name, value in vars(module).items():
        if name in KEYS and not isinstance(value, KEYS[name]):
            kinds = " or ".join(filter(None, map(WORDS.__getitem__, KEYS[name])))
            faults[name] = f"{name} must be {kinds}, got {value!r}"
        elif name not in (*KEYS, *imported) and not (name[0] == "_" or name.isupper() or callable(value)):
            faults[name] = f"a table has no use for {name!r}{did_you_mean(name, KEYS)}; a helper begins with _"
    if faults:
        lines = {node.id: node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in faults}
        raise ConfigError(f"{path.name} line {lines.get(name, 1)}: {fault}" for name, fault in faults.items())
    return {name: value for name, value in vars(module).items() if name in KEYS}


def read_words(node: Mapping[str, Any]) -> dict[str, str]:
    """Words by name, as text."""
    return {one_line(str(key)): one_line(str(value)) for key, value in node.items()}


def read_part(kind: Callable[..., T], node: Mapping[str, Any], part: str) -> T:
    """A part of a table as its class has it."""
    parameters = signature(kind).parameters
    check_keys(part, node, parameters)
    if missing := [key for key, p in parameters.items() if p.default is Parameter.empty and key not in node]:
        raise TableError(f"{part} has no {', '.join(missing)}")
    return kind(**node)


def check_keys(part: str, node: Iterable[Any], known: Iterable[str]) -> None:
    """Refuse a key that a part of a table does not have."""
    names = [*known]
    for key in node:
        if key not in names:
            raise TableError(f"{part} has no use for {str(key)!r}{did_you_mean(str(key), names)}")


def check_one_of(choices: Iterable[str], **values: object) -> None:
    """Refuse a name that is not among the choices."""
    try:
        require.one_of(choices, **values)
    except ValueError as error:
        raise TableError(str(error)) from None
