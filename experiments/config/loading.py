"""The loading of plug-ins that a user has named or installed: the code behind a name, executed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from commeff.experiments.config.contained import contained, importing
from commeff.experiments.config.registry import theirs
from commeff.experiments.config.sources import PREFIX, mistaken, plugin_files


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
        if module in sys.modules or not theirs(module):
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


def again(found: Any) -> Any:
    """The same class or function from a second, fresh execution of its module; None where it has no file.

    Values that the first execution left in variables of the module or class are not there.
    """
    path = getattr(sys.modules[found.__module__], "__file__", None)
    spec = importlib.util.spec_from_file_location(f"{found.__module__}_again", path) if path else None
    if spec is None or spec.loader is None:
        return None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        with contained():
            spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return getattr(module, found.__name__, None)


def defined_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public classes and functions written in `module`, or in the package that it is; not those it imports."""
    for name, value in vars(module).items():
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            home = value.__module__
            if home == module.__name__ or home.startswith(f"{module.__name__}."):
                yield name, value
