"""Plug-ins that a user has named or installed: the code behind a name, executed, and its source files.

Those are the file itself, and the files beside it that it imports.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from commeff.experiments.config.contained import PREFIX, contained, importing, plugin_files
from commeff.experiments.config.registry import locate, split, third_party

LIBRARIES = ("site-packages", "dist-packages")  # folders in which files lie side by side without belonging together


def load(module: str) -> ModuleType:
    """Import a plug-in by its name, or by its file, which is executed once in a process.

    Only what the user of this command has named or installed comes here, never what a configuration names.

    The folder of a file is searched for what it imports, after all other places. A file beside it whose name is taken,
    by an installed module or by another plug-in's, would silently not be imported, and so is refused.

    Parameters
    ----------
    module : a dotted name, or a path that ends in .py.
    """
    if not module.endswith(".py"):
        if module in sys.modules or not third_party(module):
            return importlib.import_module(module)
        with importing(module):
            return importlib.import_module(module)
    path = Path(module).resolve()
    name = f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"no plug-in file {path}")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))
        try:
            with importing(str(path)):
                spec.loader.exec_module(sys.modules[name])
            if (clash := mistaken(path, plugin_files())) is not None:
                raise ValueError(f"it imports {clash[0]} and gets {clash[1]}, not the file beside it; rename that")
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def again(definition: Any) -> Any:
    """The same class or function from a second, fresh execution of its module; None where it has no file.

    Values that the first execution left in variables of the module or class are not there.
    """
    path = getattr(sys.modules[definition.__module__], "__file__", None)
    spec = importlib.util.spec_from_file_location(f"{definition.__module__}_again", path) if path else None
    if spec is None or spec.loader is None:
        return None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        with contained():
            spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return getattr(module, definition.__name__, None)


def defined_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public classes and functions written in `module`, or in the package that it is; not those it imports."""
    for name, value in vars(module).items():
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            home = value.__module__
            if home == module.__name__ or home.startswith(f"{module.__name__}."):
                yield name, value


def helpers(file: Path) -> dict[str, Path]:
    """The files in the folder of `file`, or below it, that it imports, and that these import in turn, by module.

    They are found in the text, wherever an import stands: what is imported only when it is called counts too.
    """
    folder, paths, waiting = file.parent, dict[str, Path](), [file]
    if not {*LIBRARIES}.isdisjoint(folder.parts):
        return {}
    while waiting:
        for name in imported(waiting.pop(), folder):
            place = folder.joinpath(*name.split("."))
            for path in (place / "__init__.py", place.with_name(f"{place.name}.py")):
                if name not in paths and path != file and third_party(name) and path.is_file():
                    paths[name] = path
                    waiting.append(path)
    return paths


def imported(file: Path, folder: Path) -> Iterator[str]:
    """The modules that a file may import, seen from `folder`, with the packages that they are in."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # importing it says why
    package = file.relative_to(folder).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            inside = [*package[: len(package) + 1 - node.level]] if node.level else []
            base = ".".join([*inside, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names if alias.name != "*")]
        else:
            continue
        for name in filter(None, names):
            parts = name.split(".")
            yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def mistaken(file: Path, others: Iterable[Path]) -> tuple[str, str] | None:
    """A helper of `file` in whose place another file of its name is imported, and that file; None if there is none.

    Parameters
    ----------
    file : of the plug-in.
    others : the plug-in files that the process has executed; their helpers may be imported later.
    """
    owners = {name: str(path) for other in others if other != file for name, path in helpers(other).items()}
    for name, path in helpers(file).items():
        other = getattr(sys.modules.get(name), "__file__", None) or owners.get(name)
        if other and Path(other).resolve() != path.resolve():
            return name, other
    return None


def source_digest(target: str) -> str:
    """SHA-256 of the source behind a target that is known.

    It covers its file and those beside it that it imports, or every Python file of the package it comes from.
    """
    definition, place = locate(target), split(target)[0]
    module = sys.modules[definition.__module__ if place.endswith(".py") else place.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(module, "__path__", [])]
    files = sorted((str(file.relative_to(folder)), file) for folder in folders for file in folder.rglob("*.py"))
    if not files:
        file = Path(inspect.getsourcefile(module) or "")
        files = [("", file), *sorted(helpers(file).items())]
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(name.encode() + file.read_bytes())
    return digest.hexdigest()
