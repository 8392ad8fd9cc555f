"""Models by name, and how many steps each method of the worker axis is assumed to need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from commeff import require
from commeff.experiments.config.method_words import label
from commeff.experiments.planning.worker_words import method_words, read_method
from commeff.planner import Model, WorkerMethod

HERE = Path(__file__).parent


@cache
def models() -> dict[str, dict[str, Any]]:
    """The fields of `Model` of every shipped model, by name.

    >>> models()["llama2-70b"]["kv_heads"], len(models()) > 20
    (8, True)
    """
    return dict(yaml.safe_load((HERE / "models.yaml").read_text()))


def named(name: str) -> Model:
    """A shipped model.

    >>> named("gpt3-175b").layers
    96
    """
    require.one_of(sorted(models()), model=name)
    return Model(**models()[name])


@dataclass(frozen=True)
class Assumption:
    """A row of convergence.yaml.

    Parameters
    ----------
    way : the method, and the steps it is assumed to need.
    measured : the variant of a report that says how many it needed here.
    why : where the assumption comes from.
    """

    way: WorkerMethod
    measured: str | None
    why: str


def assumptions() -> list[Assumption]:
    """All rows.

    >>> [a.way.steps for a in assumptions() if a.way.is_plain]
    [1.0]
    """
    records = []
    for row in yaml.safe_load((HERE / "convergence.yaml").read_text()):
        way = WorkerMethod(read_method(row["words"].split()), steps=row["assumed"])
        records.append(Assumption(way, row["measured"], row["why"]))
    return records


def way_label(way: WorkerMethod) -> str:
    """The words of a way.

    >>> way_label(WorkerMethod("diloco", period=64)), way_label(assumptions()[-2].way)
    ('diloco, period 64', 'mem_sgd, top_k, ratio 0.01')
    """
    return label(method_words(way))
