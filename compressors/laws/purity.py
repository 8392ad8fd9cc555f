"""Laws on what a message may depend on: its row of the vectors and of the randomness, and nothing else."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from itertools import pairwise
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import LAYOUT, equal, noise, require, streams
from commeff.compressors.random import WorkerRandom

CUTS = {"coordinate": (0, 3, 10, 30, 40), "tensor": (0, 24, 40), "whole": (0, 40)}  # of LAYOUT
ORDER = (
    "it sums in another order, as a matrix product does that has other rows or columns beside it: sum each row by "
    "itself, (v * w).sum(1)"
)
PLAIN = (bool, int, float, str, list, dict, set, tuple, Tensor, np.ndarray, type(None))


def check_pure(compressor: Compressor) -> None:
    """Equal input and randomness give an equal message, whatever came before; nothing else changes."""
    bound, rows = compressor.bind(LAYOUT), noise(8, 3)
    before, drawn = rows.clone(), global_generators()
    attributes, around = _attributes(bound), _around(type(bound))
    first = bound.compress(rows, streams(3))
    moved = [name for name, state in global_generators().items() if state != drawn[name]]
    require(
        not moved,
        f"{compressor}: compress draws from the global generator of {', '.join(moved)}, which is another in every "
        "process: draw from the WorkerRandom that it is given",
    )
    require(torch.equal(rows, before), f"{compressor}: compress writes into its input: work on a copy")
    decoded = first.decode().clone()
    require(torch.equal(decoded, first.decode()), f"{compressor}: decoding twice gives two results")
    again = bound.compress(rows.clone(), streams(3))
    bound.compress(_others(), WorkerRandom(0, range(7), step=5))
    later = bound.compress(rows.clone(), streams(3))
    changed = _changed(attributes, _attributes(bound))
    require(not changed, f"{compressor}: compress changes the compressor: {changed}; a compressor keeps nothing")
    where = _changed(around, _around(type(bound)))
    require(
        equal(first, again) and equal(first, later),
        f"{compressor}: compressing the same vectors twice gives two messages: "
        + (f"{where}; keep nothing between calls" if where else "it draws or remembers outside `random`"),
    )


def check_history(compressor: Compressor, twin: Compressor) -> None:
    """What was compressed before, in this run or ever, does not show; `twin` is an equal one in a fresh module."""
    bound, rows = compressor.bind(LAYOUT), noise(14, 3)
    bound.compress(_others(), WorkerRandom(0, range(7), step=5))
    later, first = bound.compress(rows, streams(3)), twin.bind(LAYOUT).compress(rows, streams(3))
    require(
        equal(later, first),
        f"{compressor}: the message depends on what was compressed before: something outlives the call, such as a "
        "variable of the module or the class; compute it anew from the vectors",
    )


def check_rows_independent(compressor: Compressor) -> None:
    """Rows hosted by another process, in any order and company, give the same bits."""
    bound, workers = compressor.bind(LAYOUT), [0, 1, 2, 5, 17]
    rows = torch.cat([noise(1, 3), torch.zeros(1, LAYOUT.d), 1e30 * noise(2)]).double()
    joint = bound.compress(rows, WorkerRandom(0, workers))
    for some in ([0], [3], [4], [2, 0], [4, 1, 3]):
        separate = bound.compress(rows[some], WorkerRandom(0, [workers[row] for row in some]))
        moved = (joint.select(some).decode() - separate.decode()).abs()
        rounding = bool((moved <= 1e-12 * rows[some].abs().amax(1, keepdim=True)).all())
        require(
            equal(joint.select(some), separate),
            f"{compressor}: the message of rows {some} depends on the rows beside them (decoded, it moves by "
            f"{float(moved.max()):.2g}): "
            + (ORDER if rounding else "reduce over dim=1 with keepdim=True, never over dim 0 or the whole tensor"),
        )


def check_own_randomness(compressor: Compressor) -> None:
    """A compressor that draws at random draws anew every step, and for each worker unless its messages are summable."""
    bound, rows = compressor.bind(LAYOUT), noise(3).expand(8, -1)
    now, later = (bound.compress(rows, WorkerRandom(0, range(8), step)).decode() for step in (0, 1))
    drawn = not torch.equal(now, later)
    alike = torch.allclose(now, now[:1], rtol=1e-12, atol=0, equal_nan=True)
    require(
        drawn or alike,
        f"{compressor}: workers draw different numbers, but the same ones every step: draw from `random`",
    )
    require(
        not drawn or not alike or bound.summable,
        f"{compressor}: all workers draw the same numbers, so averaging is in vain, yet messages are not summable: "
        "draw without shared=True, or send only what is kept and say summable",
    )


def check_scope(compressor: Compressor) -> None:
    """Blocks that the scope allows, compressed one by one, give what the whole vector gives."""
    scope = compressor.bind(LAYOUT).scope
    cut = next(_cut(compressor, CUTS[scope]), None)
    if cut is not None:
        wider = [name for name in CUTS if len(CUTS[name]) < len(CUTS[scope])]
        holds = next((name for name in wider if next(_cut(compressor, CUTS[name]), None) is None), "whole")
        start, stop, off = cut
        raise AssertionError(
            f"{compressor}: columns {start} to {stop} compressed alone differ by {off:.2g}, though the scope is "
            f"{scope!r}: {ORDER if off <= 1e-12 else f'it needs more of the vector, say scope = {holds!r}'}"
        )


def _cut(compressor: Compressor, cuts: tuple[int, ...]) -> Iterator[tuple[int, int, float]]:
    """The blocks that differ when they are compressed alone, and by how much."""
    rows = noise(12, 3)
    whole = compressor.bind(LAYOUT).compress(rows, streams(3)).decode()
    for start, stop in pairwise(cuts):
        bound = compressor.bind(LAYOUT.slice(start, stop))
        block = bound.compress(rows[:, start:stop], streams(3).shifted(start)).decode()
        if not torch.equal(block, whole[:, start:stop]):
            yield start, stop, float((block - whole[:, start:stop]).abs().max())


def global_generators() -> Mapping[str, str]:
    """The state of every generator that a whole process shares."""
    return {
        "torch": str(torch.get_rng_state().tolist()),
        "numpy": str(np.random.get_state()),  # noqa: NPY002 - it is watched, not used
        "random": str(random.getstate()),
    }


def _others() -> Tensor:
    """Rows unlike those that are compared: more of them, another scale."""
    return 3 + 10 * noise(13, 7)


def _attributes(value: Compressor, prefix: str = "") -> dict[str, str]:
    """The attributes of a compressor and those inside it, but for what `cached_property` fills in."""
    attributes: dict[str, str] = {}
    values = {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]
    for name, content in (getattr(value, "__dict__", {}) | values).items():
        if isinstance(content, Compressor):
            attributes |= _attributes(content, f"{prefix}{name}.")
        elif isinstance(content, PLAIN) and not isinstance(getattr(type(value), name, None), cached_property):
            attributes[prefix + name] = _written(content)
    return attributes


def _around(kind: type) -> dict[str, str]:
    """The plain variables of a class and of its module."""
    places = {f"{kind.__name__}.": vars(kind), "the module's ": vars(sys.modules[kind.__module__])}
    return {
        prefix + name: _written(value)
        for prefix, names in places.items()
        for name, value in names.items()
        if isinstance(value, PLAIN) and not name.startswith("__")
    }


def _written(value: Any) -> str:
    """All of a plain value as text, so that what is changed in place shows."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"{value.dtype} {value.tolist()}"
    if isinstance(value, dict):
        return str({repr(key): _written(content) for key, content in value.items()})
    if isinstance(value, (list, tuple)):
        return str([_written(content) for content in value])
    return repr(value)


def _changed(before: dict[str, str], after: dict[str, str]) -> str:
    """The names that are new or whose values are others, in words."""
    return ", ".join(
        f"{name} was {shorten(before.get(name, 'not there'), 30)}, is {shorten(now, 30)}"
        for name, now in after.items()
        if before.get(name) != now
    )
