"""Names of parts, as a `_target_` of the configuration has them.

commeff.methods.choco          an attribute of a module, ours or of an installed plug-in
folder/mine.py:SignOfMean      an attribute of a file, or of a module, named on the command line: a plug-in
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

OURS = ("commeff", "torch")
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


def foreign(target: str) -> bool:
    """Whether a target is somebody else's code, which may change while ours does not.

    >>> [foreign(t) for t in ("commeff.methods.choco", "torch.optim.SGD", "fractions.Fraction")]
    [False, False, False]
    >>> [foreign(t) for t in ("folder/mine.py:Mine", "their_package.methods.theirs")]
    [True, True]
    """
    return ":" in target or theirs(split(target)[0])


def theirs(name: str) -> bool:
    """Whether a module is neither ours nor of the standard library.

    >>> theirs("commeff.methods"), theirs("fractions"), theirs("my_helper")
    (False, False, True)
    """
    return name.partition(".")[0] not in {*OURS, *sys.stdlib_module_names}
