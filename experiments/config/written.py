"""The annotations of a function as its source has them, without importing it: a typing error need not wait for torch.

What the source alone does not say (a name of the module in an annotation, a base class's constructor) is None here,
and the function has to be imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Union


class Tensor:
    """Stands for torch's in annotations: no value of a configuration is one."""


NAMES = {"int": int, "float": float, "bool": bool, "str": str, "list": list, "tuple": tuple, "Any": Any, "Union": Union}
NAMES |= {"Tensor": Tensor}
Definition = ast.ClassDef | ast.FunctionDef


def written_annotation(module: str, name: str, parameter: str) -> Any:
    """The annotation of a parameter of `name` in `module`, or None where the source does not say.

    >>> written_annotation("commeff.compressors", "TopK", "ratio"), written_annotation("torch.optim", "SGD", "nesterov")
    (float | None, <class 'bool'>)
    >>> written_annotation("commeff.methods", "choco", "topology") is None
    True
    """
    for argument, annotation in _arguments(module, name):
        if argument == parameter:
            try:
                return eval(ast.unparse(annotation), {"__builtins__": {}, "Literal": Literal, **NAMES})
            except (NameError, TypeError, AttributeError, SyntaxError):
                return None
    return None


def written_summary(module: str, name: str) -> str:
    """The first line of a docstring, or "" where the source does not have it.

    >>> written_summary("commeff.compressors", "TopK") != "", written_summary("torch.optim", "SGD")
    (True, '')
    """
    found = _definition(module, name)[1]
    return ((found and ast.get_docstring(found)) or "").partition("\n")[0]


def _arguments(module: str, name: str) -> Iterator[tuple[str, ast.expr]]:
    """Names and annotations: of a function, of a class's own constructor, or of the fields of a dataclass."""
    module, found = _definition(module, name)
    own = [found] if isinstance(found, ast.FunctionDef) else []
    if isinstance(found, ast.ClassDef):
        own = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if not own and any("dataclass" in ast.unparse(decorator) for decorator in found.decorator_list):
            fields = (each for each in found.body if isinstance(each, ast.AnnAssign))
            yield from ((each.target.id, each.annotation) for each in fields if isinstance(each.target, ast.Name))
            for base in found.bases:
                yield from _arguments(module, base.id if isinstance(base, ast.Name) else "")
    for function in own:
        arguments = (*function.args.args, *function.args.kwonlyargs)
        yield from ((each.arg, each.annotation) for each in arguments if each.annotation is not None)


def _definition(module: str, name: str, hops: int = 4) -> tuple[str, Definition | None]:
    """In which module a class or function is written, following the imports of packages; and how."""
    for statement in _body(module):
        if isinstance(statement, Definition) and statement.name == name:
            plain = isinstance(statement, ast.ClassDef) or not statement.decorator_list
            return module, statement if plain else None
    for statement in _body(module):
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level and hops:
            original = next((a.name for a in statement.names if (a.asname or a.name) == name), None)
            if original is not None:
                return _definition(statement.module, original, hops - 1)
    return module, None


@cache
def _body(module: str) -> Sequence[ast.stmt]:
    path = _file(module)
    try:
        return ast.parse(path.read_bytes()).body if path else ()
    except (OSError, SyntaxError, ValueError):
        return ()


def _file(module: str) -> Path | None:
    """The source of a module; the packages that it is in are not imported."""
    first, *rest = module.split(".")
    spec = find_spec(
        first
    )  # wherever it is installed, as an editable package too; the name of a package imports nothing
    name = first
    for part in rest:
        name = f"{name}.{part}"
        places = spec.submodule_search_locations if spec else None
        spec = PathFinder.find_spec(name, places) if places else None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
