"""The models that `commeff plan` knows by name, and GPTs of any size."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from commeff import require
from commeff.planner import Model


@cache
def models() -> dict[str, dict[str, Any]]:
    """The fields of `Model` of every shipped model, by name.

    >>> models()["llama2-70b"]["kv_heads"], len(models()) > 20
    (8, True)
    """
    return dict(yaml.safe_load((Path(__file__).with_name("models.yaml")).read_text()))


def named(name: str) -> Model:
    """A shipped model.

    >>> named("gpt3-175b").layers
    96
    """
    require.one_of(sorted(models()), model=name)
    return Model(**models()[name])


def sized(parameters: float) -> Model:
    """A GPT of about so many parameters: heads of 128, one to two layers a head, the sequences and words of GPT-3.

    >>> [round(sized(size).parameters / size, 2) for size in (125e6, 7e9, 175e9)]
    [1.0, 1.0, 1.0]
    """
    if not (type(parameters) in (int, float) and 5e7 <= parameters <= 1e13):
        raise ValueError(f"parameters must be 5e7 to 1e13, such as parameters=7e9, got {parameters!r}")
    heads, layers = np.meshgrid([*range(2, 12), *range(12, 400, 4)], np.arange(2, 800, 2), indexing="ij")
    hidden = 128.0 * heads
    counted = 12 * layers * hidden**2 + (50257 + 2048) * hidden
    off = np.where((heads <= layers) & (layers <= 2 * heads), abs(counted - parameters), np.inf)
    best = np.unravel_index(off.argmin(), off.shape)
    return Model(int(layers[best]), int(hidden[best]), int(heads[best]), 2048, 50257)
