"""The signatures of parts, which are the schema of the configuration: names, types and defaults of what can be set.

Those of ours and of torch are read from the source, so that a typing error need not wait for torch; those of plug-ins
from the objects. What a source alone does not say (a name of its module in an annotation) is `UNSAID`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal, Union

from commeff.experiments.config.registry import foreign, locate, split

NAMES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, bool, str, list, tuple)}
NAMES |= {"Any": Any, "Union": Union, "Literal": Literal}
NAMES |= {name: type(name, (), {}) for name in ("Tensor", "Compressor", "Topology")}  # stand for those of that name
UNSAID: Any = object()
Definition = ast.ClassDef | ast.FunctionDef


def signature(target: str) -> Mapping[str, Parameter]:
    """The parameters of a target that this command knows, or of one of ours that need not be imported.

    >>> [*signature("commeff.compressors.TopK")], signature("commeff.methods.local_sgd")["period"].default
    (['ratio', 'k', 'coded'], 8)
    """
    known = None if foreign(target) else written(*split(target))
    return parameters(locate(target)) if known is None else known


def annotation(target: str, name: str) -> Any:
    """The type of a parameter of a target, for which it is imported where the source does not say; `empty`: any.

    >>> annotation("commeff.compressors.TopK", "ratio"), annotation("torch.optim.SGD", "nesterov")
    (float | None, <class 'bool'>)
    """
    parameter = signature(target).get(name)
    if parameter is not None and parameter.annotation is UNSAID:
        parameter = parameters(locate(target)).get(name)
    return Parameter.empty if parameter is None else parameter.annotation


def parameters(value: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function or of a class's constructor, annotations evaluated (`empty` where they cannot be).

    >>> def f(a: int, b: float | None = None): ...
    >>> [(p.name, p.annotation) for p in parameters(f).values()]
    [('a', <class 'int'>), ('b', float | None)]
    """
    originals = inspect.signature(value).parameters
    return {name: p.replace(annotation=_evaluated(p.annotation, value)) for name, p in originals.items()}


def returned(function: Callable[..., Any]) -> Any:
    """The return annotation of a function, evaluated."""
    return _evaluated(inspect.signature(function).return_annotation, function)


def _evaluated(annotation: Any, where: Callable[..., Any]) -> Any:
    try:
        return eval(annotation, vars(sys.modules[where.__module__])) if isinstance(annotation, str) else annotation
    except NameError:  # imported for type checkers only
        return Parameter.empty


@cache
def written(module: str, name: str) -> Mapping[str, Parameter] | None:
    """The parameters of `name` in `module` as the source has them; None where it does not.

    >>> written("commeff.compressors", "TopK")["coded"].default, written("commeff.methods", "nothing")
    (False, None)
    """
    lineage, fields = [*_lineage(module, name)], dict[str, Parameter]()
    for definition in reversed(lineage):  # bases first
        if isinstance(definition, ast.FunctionDef):
            fields = _arguments(definition)
        elif init := [n for n in definition.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]:
            _, *parameters = _arguments(init[0]).values()
            fields = {field.name: field for field in parameters}
        elif any("dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list):
            for line in definition.body:
                if isinstance(line, ast.AnnAssign) and "ClassVar" not in ast.unparse(line.annotation):
                    field = ast.unparse(line.target)
                    fields[field] = _parameter(field, line.annotation, line.value)
                    if isinstance(line.value, ast.Call) and "init=False" in ast.unparse(line.value):
                        del fields[field]  # its class sets it itself
    return fields if lineage else None


def written_docstrings(target: str) -> list[str]:
    """The docstrings of a part and of its bases, nearest first, from the source; [] where that does not have them.

    >>> written_docstrings("commeff.compressors.TopK")[0].partition(" ")[0], written_docstrings("x.y")
    ('The', [])
    """
    docstrings = [] if foreign(target) else [ast.get_docstring(definition) for definition in _lineage(*split(target))]
    return [text or "" for text in docstrings]


def is_written(target: str, base: str) -> bool | None:
    """Whether the source says that a class of ours has a base of this name; None where it does not have the class."""
    lineage = [] if foreign(target) else [*_lineage(*split(target))]
    return any(definition.name == base for definition in lineage) if lineage else None


def _lineage(module: str, name: str) -> Iterator[Definition]:
    """A class or function, and the bases of a class, as far as they are written by their names."""
    module, definition = _definition(module, name)
    if definition is not None:
        yield definition
    for base in definition.bases if isinstance(definition, ast.ClassDef) else ():
        yield from _lineage(module, base.id if isinstance(base, ast.Name) else "")


@cache
def exported(package: str) -> tuple[str, ...]:
    """The names in a package's `__all__`.

    >>> "choco" in exported("commeff.methods")
    True
    """
    lists = (statement.value for statement in _body(package) if isinstance(statement, ast.Assign))
    return next(tuple(map(ast.literal_eval, statement.elts)) for statement in lists if isinstance(statement, ast.List))


def _arguments(function: ast.FunctionDef) -> dict[str, Parameter]:
    a = function.args
    positional = [*a.posonlyargs, *a.args]
    defaults = [*[None] * (len(positional) - len(a.defaults)), *a.defaults, *a.kw_defaults]
    pairs = zip((*positional, *a.kwonlyargs), defaults, strict=True)
    return {argument.arg: _parameter(argument.arg, argument.annotation, default) for argument, default in pairs}


def _parameter(name: str, annotation: ast.expr | None, default: ast.expr | None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=_value(annotation), default=_value(default))


def _value(expression: ast.expr | None) -> Any:
    if expression is None:
        return Parameter.empty
    try:
        return eval(ast.unparse(expression), {"__builtins__": {}, **NAMES})
    except (NameError, TypeError, AttributeError, SyntaxError):
        return UNSAID


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
    """What is written in a module; the packages that it is in are not imported."""
    first, *rest = module.split(".")
    spec = find_spec(first)  # wherever it is installed, as an editable package too; imports nothing
    if spec is None or spec.origin is None:
        return ()
    place = Path(spec.origin).parent.joinpath(*rest) if rest else Path(spec.origin)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    try:
        return ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ()
