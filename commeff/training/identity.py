"""Which run this is: its method in words, its workers, its seed and the tensors of its model."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

from torch import Tensor

from commeff.compressors import Layout
from commeff.core.state import Stateful
from commeff.core.strategy import Strategy
from commeff.topologies import Topology


def describe(part: Any) -> str:
    """A method, or a part of it, in words: what its constructors were given. Buckets do not count.

    >>> from commeff import methods, topologies
    >>> import torch
    >>> describe(methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(4)))
    'Strategy(Local(SGD(lr=0.1)), Keep(), Gossip(Periodic(4, 1, 689330)), 1)'
    """
    if isinstance(part, Topology):
        weights = hashlib.sha256(part.at(0).dense().round(9).tobytes()).hexdigest()[:6]
        return _call(type(part).__name__, str(part.n), str(part.period), weights)
    if isinstance(part, Stateful):
        essence = getattr(part, "content", part)  # what decides the results: not when, or for which pieces
        return _call(type(essence).__name__, *map(describe, _given(essence)))
    if is_dataclass(part) and not isinstance(part, type):
        return _call(type(part).__name__, *(describe(getattr(part, field.name)) for field in fields(part)))
    if isinstance(part, partial):
        named = (f"{name}={describe(value)}" for name, value in part.keywords.items())
        return _call(describe(part.func), *map(describe, part.args), *named)
    if isinstance(part, Tensor):
        return _call("Tensor", *map(str, part.shape))
    if isinstance(part, Mapping):
        return _call("", *(f"{describe(name)}={describe(value)}" for name, value in part.items()))
    if isinstance(part, (list, tuple)):
        return _call("", *map(describe, part))
    if part is None or isinstance(part, (bool, int, float, str)):
        return str(part)
    return getattr(part, "__qualname__", type(part).__name__)


def run_identity(strategy: Strategy, workers: int, seed: int, layout: Layout) -> str:
    """What makes a run the same for `train`: its method, workers, seed, and the tensors of its model."""
    tensors = hashlib.sha256(repr(layout.fields).encode()).hexdigest()[:10]
    return f"{describe(strategy)} with {workers} workers, seed {seed} and {layout.d} parameters ({tensors})"


def _given(part: Stateful) -> list[Any]:
    """What a constructor was given, as far as the object still knows it."""
    known = vars(part)
    names = [name for name in inspect.signature(type(part).__init__).parameters if name != "self"]
    names = [next((field for field in (name, f"_{name}") if field in known), "") for name in names]
    return [known[name] for name in names if name and name not in (*part.rows, *part.shared)]


def _call(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"
