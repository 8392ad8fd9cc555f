"""The source files of a plug-in: the file itself, and the files beside it that it imports; and their digest."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from commeff.experiments.config.registry import locate, split, theirs

PREFIX = "commeff_plugin_"  # of the module that a plug-in file becomes
LIBRARIES = ("site-packages", "dist-packages")  # folders in which files lie side by side without belonging together


def plugin_files() -> list[Path]:
    """The plug-in files that this process has executed, or executes."""
    loaded = [module for name, module in sys.modules.items() if name.startswith(PREFIX)]
    return [Path(module.__file__) for module in loaded if module.__file__]


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
                if name not in paths and path != file and theirs(name) and path.is_file():
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


def raised_at(error: BaseException, plugins: Iterable[Path]) -> str:
    """' (line 3 of FILE)' for the last line that an error went through of a plug-in or a file beside one, or ''."""
    folders = {plugin.resolve().parent for plugin in plugins}
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f" (line {frame.lineno} of {frame.filename})" for frame in frames if Path(frame.filename).parent in folders
    ]
    return lines[-1] if lines else ""


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
    found, place = locate(target), split(target)[0]
    module = sys.modules[found.__module__ if place.endswith(".py") else place.partition(".")[0]]
    folders = [Path(folder) for folder in getattr(module, "__path__", [])]
    files = sorted((str(file.relative_to(folder)), file) for folder in folders for file in folder.rglob("*.py"))
    if not files:
        file = Path(inspect.getsourcefile(module) or "")
        files = [("", file), *sorted(helpers(file).items())]
    digest = hashlib.sha256()
    for name, file in files:
        digest.update(name.encode() + file.read_bytes())
    return digest.hexdigest()
