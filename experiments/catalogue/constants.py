"""Numbers that parts have by themselves: a topology's gap, a compressor's variance, a task's smoothness.

Of a topology rho, gap, lambda_min (of symmetric weights), degree and n are those of the first mixing matrix; period is
its own, and contraction the mean factor by which a step of it shrinks the workers' disagreement. Of a compressor
omega, delta and bits (a coordinate) are those for d, the number of parameters of the task's model. A task says what its
method `constants()` has, such as L and mu; d; and samples, if it has any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from commeff.require import did_you_mean

PARTS = ("task", "topology", "compressor")
NAMES = {  # of what our code knows; a task has its own
    "topology": ("rho", "gap", "lambda_min", "degree", "n", "period", "contraction"),
    "compressor": ("omega", "delta", "bits", "d"),
}


class NoConstantError(ValueError):
    """A part with such settings has no constant of that name."""


class NoPartError(NoConstantError):
    """The run has no such part."""


def constant(config: Mapping[str, Any], part: str, name: str) -> float:
    """A constant of a part of a run with this configuration.

    Raises
    ------
    NoPartError, NoConstantError
        If the run has no such part, or the part no such constant.

    Examples
    --------

    >>> config = {"topology": {"_target_": "commeff.topologies.ring", "n": 8}}
    >>> round(constant(config, "topology", "gap"), 3)
    0.195
    """
    if part not in config:
        raise NoPartError(f"the method has no {part}")
    node, task = (json.dumps({key: config.get(key)}, sort_keys=True) for key in (part, "task"))
    value = _of_task(node).get(name) if part == "task" else None
    if part == "topology" and name in NAMES[part]:
        value = _of_topology(node, name)
    elif part == "compressor" and name in NAMES[part]:
        value = _of_compressor(node, int(_of_task(task)["d"]), name)
    if value is None:
        known = NAMES[part] if part in NAMES else [*_of_task(node)]
        raise NoConstantError(
            f"{part} has no constant {name!r}{did_you_mean(name, known)}; choose from {', '.join(known)}"
        )
    return float(value)


@cache
def _of_task(config: str) -> Mapping[str, float]:
    from commeff.experiments.config import build

    task = build.part(json.loads(config), "task")
    d = float(sum(parameter.numel() for parameter in task.model().parameters()))
    constants: Callable[[], Mapping[str, float]] = getattr(task, "constants", dict)
    return {"d": d, **({"samples": float(task.size)} if task.size else {}), **constants()}


@cache
def _of_topology(config: str, name: str) -> float | None:
    from commeff.experiments.catalogue.facts import contraction
    from commeff.experiments.config import build

    topology = build.topology(json.loads(config))
    if name in ("n", "period"):
        size: float | None = getattr(topology, name)
        return size
    if name == "contraction":
        return contraction(topology)
    matrix = topology.at(0)
    if name == "lambda_min" and not matrix.symmetric:
        return None
    return float(getattr(matrix, "spectral_gap" if name == "gap" else name))


@cache
def _of_compressor(config: str, d: int, name: str) -> float | None:
    from commeff.compressors import Layout
    from commeff.experiments.catalogue.facts import bits
    from commeff.experiments.config import build

    if name == "d":
        return d
    compressor = build.part(json.loads(config), "compressor")
    if name == "bits":
        return bits(compressor, Layout.flat(d))
    value: float | None = getattr(compressor, name)(d)
    return value
