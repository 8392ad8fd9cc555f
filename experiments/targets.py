"""What a `_target_` of the configuration points at: an importable name, or one in a plug-in file.

commeff.methods.choco          an attribute of a module
folder/mine.py:SignOfMean      an attribute of a file: a plug-in
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def locate(target: str) -> Callable[..., Any]:
    """The function or class that `target` names.

    >>> locate("fractions.Fraction")("1/3")
    Fraction(1, 3)
    """
    module, name = split(target)
    found: Callable[..., Any] = getattr(load(module), name)
    return found


def split(target: str) -> tuple[str, str]:
    """Module (or file) and name.

    >>> split("torch.optim.SGD"), split("mine.py:Mine")
    (('torch.optim', 'SGD'), ('mine.py', 'Mine'))
    """
    module, _, name = target.rpartition(":" if ":" in target else ".")
    return module, name


def load(module: str) -> ModuleType:
    """A module by its name, or by its file, which is executed once in a process."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    path = Path(module).resolve()
    name = f"commeff_plugin_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise ValueError(f"no plug-in file {path}")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def defined_in(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public classes and functions written in `module` itself, not those it imports."""
    for name, value in vars(module).items():
        if (
            not name.startswith("_")
            and (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__
        ):
            yield name, value


def source_digest(target: str) -> str:
    """SHA-256 of the source file behind a target."""
    return hashlib.sha256(Path(inspect.getsourcefile(load(split(target)[0])) or "").read_bytes()).hexdigest()
