"""Names of parts, as a `_target_` of the configuration has them, and the loading of plug-ins that a user has named.

commeff.methods.choco          an attribute of a module, ours or of an installed plug-in
folder/mine.py:SignOfMean      an attribute of a file, or of a module, named on the command line: a plug-in
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from commeff.experiments.config.contained import contained, importing
from commeff.experiments.config.sources import PREFIX, mistaken, plugin_files, theirs

ONCE_APART = ("compressors", "experiments", "topologies")  # were packages beside commeff; run names still say so


def split(target: str) -> tuple[str, str]:
    """Module (or file) and name.

    >>> split("torch.optim.SGD"), split("mine.py:Mine")
    (('torch.optim', 'SGD'), ('mine.py', 'Mine'))
    """
    module, _, name = target.rpartition(":" if ":" in target else ".")
    return module, name


def lasting(target: str) -> str:
    """The name of a target in run identities, whatever package has it today.

    >>> lasting("commeff.compressors.TopK"), lasting("commeff.methods.choco"), lasting("mine.py:Mine")
    ('compressors.TopK', 'commeff.methods.choco', 'mine.py:Mine')
    """
    inner = target.removeprefix("commeff.")
    return inner if inner.split(".")[0] in ONCE_APART else target


def targets_in(node: Any) -> Iterator[Any]:
    """Every `_target_` of a configuration.

    >>> [*targets_in({"method": {"_target_": "mine.py:mine", "outer": {"_target_": "torch.optim.SGD"}}, "steps": 3})]
    ['mine.py:mine', 'torch.optim.SGD']
    """
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from [value] if name == "_target_" else targets_in(value)


def current(node: Any) -> Any:
    """A stored configuration with today's names of targets that were outside commeff when it was written.

    >>> current({"topology": {"_target_": "topologies.ring", "n": 4}})
    {'topology': {'_target_': 'commeff.topologies.ring', 'n': 4}}
    """
    if not isinstance(node, dict):
        return node
    return {name: _current(value) if name == "_target_" else current(value) for name, value in node.items()}


def _current(target: Any) -> Any:
    apart = isinstance(target, str) and target.split(".")[0] in ONCE_APART and target.count(".")
    return f"commeff.{target}" if apart else target


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


def foreign(target: str) -> bool:
    """Whether a target is somebody else's code, which may change while ours does not.

    >>> [foreign(t) for t in ("commeff.methods.choco", "torch.optim.SGD", "fractions.Fraction")]
    [False, False, False]
    >>> [foreign(t) for t in ("folder/mine.py:Mine", "their_package.methods.theirs")]
    [True, True]
    """
    return ":" in target or theirs(split(target)[0])
