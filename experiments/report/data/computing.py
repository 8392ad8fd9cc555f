"""What a worker of a run computes in a step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from commeff.compressors import Layout
from commeff.experiments.config import build
from commeff.experiments.tasks.work import MULTIPLIED, Work

SIDE = 4096  # at most, of the square matrices that a model of so many parameters is taken to consist of


def square_matrices(parameters: float) -> Layout:
    """The layout of a model that has so many parameters, about: square matrices, of which nothing else is known.

    >>> square_matrices(25.5e6).d
    25504082
    """
    count = math.ceil(parameters / SIDE**2)
    side = round(math.sqrt(parameters / count))
    return Layout.of([(f"matrix {i}", (side, side)) for i in range(count)])


def work(config: Mapping[str, Any]) -> Work:
    """What a run of this configuration trains; counted once for each task, whatever its seed.

    >>> task = {"_target_": "commeff.experiments.tasks.Digits", "workers": 2, "batch": 8, "hidden": 16}
    >>> work({"task": task}).flops == 2 * (2 * 8 * 64 * 16 + 3 * 8 * 16 * 10)     # no gradient of the input images
    True
    """
    counted = _counted(json.dumps({k: v for k, v in config["task"].items() if k != "seed"}, sort_keys=True))
    return replace(counted, precision=MULTIPLIED.get(config.get("precision", "fp32"), counted.precision))


@cache
def _counted(task_config: str) -> Work:
    return Work.of(build.part({"task": json.loads(task_config) | {"seed": 0}}, "task"))
