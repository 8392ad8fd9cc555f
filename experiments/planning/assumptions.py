"""How many steps each way of communicating is assumed to need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from commeff.experiments.config.method_words import label
from commeff.experiments.planning.question import method_words, read_method
from commeff.planner import WorkerMethod


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
    for row in yaml.safe_load(Path(__file__).with_name("convergence.yaml").read_text()):
        way = WorkerMethod(read_method(row["words"].split()), steps=row["assumed"])
        records.append(Assumption(way, row["measured"], row["why"]))
    return records


def way_label(way: WorkerMethod) -> str:
    """The words of a way.

    >>> way_label(assumptions()[-2].way)
    'mem_sgd, top_k, ratio 0.01'
    """
    return label(method_words(way))
