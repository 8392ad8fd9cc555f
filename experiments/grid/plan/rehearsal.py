"""Building cells before they run: what does not fit is refused, and the sizes of their checkpoints are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from commeff.experiments.config.build import build
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import Cell, Faults
from commeff.training.task import Task


def rehearse(cells: Sequence[Cell]) -> tuple[list[Cell], list[str]]:
    """Build the cells that are not finished.

    Returns
    -------
    cells, faults : the cells with the bytes of their checkpoints, and a line for each reason why some cannot run.
    """
    rehearsals, faults, sized = Rehearsals(), Faults(), []
    for cell in cells:
        try:
            sized.append(cell if cell.finished else replace(cell, checkpoint=rehearsals.checkpoint(cell.config)))
        except ConfigError as error:
            faults.add(cell.number, cell.settings, error)
            sized.append(cell)
    return sized, faults.lines()


BUILT = ("method", "compressor", "topology", "schedule", "workers", "collective", "bucket_mb", "engine")
MESH = ("mesh", "micro_batches", "recompute", "zero", "sequence", "pieces")


class Rehearsals:
    """Builds each kind of cell once: seeds, steps and rates above 0 change neither what fits nor how large it is.

    Cells that follow each other with one task share its data, which are read once.

    Attributes
    ----------
    count : how many cells were built.
    """

    def __init__(self) -> None:
        self.count = 0
        self._results: dict[str, int | ConfigError] = {}
        self._task: tuple[str, Task | None] = ("", None)

    def checkpoint(self, config: Mapping[str, Any]) -> int:
        """Bytes of the checkpoint of a run, or `ConfigError`."""
        task = json.dumps({**config["task"], "seed": None}, sort_keys=True)
        built = {name: config.get(name) for name in (*BUILT, *MESH)} | {"optimizer": _of_any_rate(config["optimizer"])}
        kind = json.dumps({**built, "task": task}, sort_keys=True)
        if kind not in self._results:
            self.count += 1
            try:
                parts = build(config, self._task[1] if self._task[0] == task else None)
                self._task, self._results[kind] = (task, parts.task), parts.checkpoint
            except ConfigError as error:
                self._results[kind] = error
        result = self._results[kind]
        if isinstance(result, ConfigError):
            raise result
        return result


def _of_any_rate(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """An optimizer's settings but for its rate, if that is above 0.

    >>> _of_any_rate({"lr": 0.1, "momentum": 0.9}), _of_any_rate({"lr": -1})
    ({'lr': 'above 0', 'momentum': 0.9}, {'lr': -1})
    """
    rate = optimizer.get("lr")
    return {**optimizer, "lr": "above 0"} if isinstance(rate, (int, float)) and rate > 0 else dict(optimizer)
