"""A table's file, executed: the names that it binds."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from commeff.experiments.config.contained import contained
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.reproduce.faults import own_code
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
    with own_code(path), contained():
        tree = ast.parse(source, str(path))
        sys.modules[module.__name__] = module  # as dataclasses want it
        exec(compile(tree, str(path), "exec"), vars(module))
    imported = {name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for name in _bound(node)}
    found = {name: value for name, value in vars(module).items() if name in KEYS}
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
    return found


def _bound(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import binds."""
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
