"""The runs of the landscape: which there are, what cannot be run and why, and running what is not finished.

A task has two grids in the store, its rates with the tuning seed, then the chosen rates with the others. Runs are named
by what decides their result, so the same command goes on where it stopped, and runs what new methods add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.rehearsal import Rehearsals
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.landscape.spec import RATE, Landscape, LandscapeTask
from commeff.experiments.python.grids import grid
from commeff.experiments.report.data.records import Record, read_record
from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import FINISHED


@dataclass(frozen=True, eq=False)
class TriedRun:
    """A run of a method, and what became of it."""

    rate: float
    seed: int
    config: Mapping[str, Any]
    record: Record


class TaskRuns:
    """The runs of a task in a store.

    Parameters
    ----------
    field : the landscape.
    task : one of its tasks.
    store : the folder of runs.
    data : where tasks that read files look for them.
    """

    def __init__(self, field: Landscape, task: LandscapeTask, store: Path, data: str | None = None) -> None:
        self.field, self.task, self.store, self.data = field, task, store, data
        self._rehearsals = Rehearsals()

    @cached_property
    def refused(self) -> dict[str, str]:
        """The methods that this task and setting cannot take, and the reason."""
        found = {}
        for method in self.task.competitors:
            try:
                config = self.config(method, self.field.rates(self.task, method)[0], self.field.tuning_seed)
                self._rehearsals.checkpoint(config)
            except ConfigError as error:
                found[method] = error.faults[0]
        return found

    @property
    def methods(self) -> list[str]:
        """Those that can be run."""
        return [name for name in self.task.competitors if name not in self.refused]

    def config(self, method: str, rate: float, seed: int) -> dict[str, Any]:
        """The resolved configuration of a run."""
        settings = {**self.field.words(self.task, method), RATE: rate, "seed": seed, "data_dir": self.data}
        return compose([f"{key}={text(value)}" for key, value in settings.items()])

    def tried(self, method: str) -> list[TriedRun]:
        """The runs of the rates, smallest first."""
        rates = sorted(self.field.rates(self.task, method))
        return [self._read(method, rate, self.field.tuning_seed) for rate in rates]

    def chosen(self, method: str) -> float | None:
        """The rate with the best validation, the smaller of equals; None while runs are missing or if none is done."""
        runs = self.tried(method)
        if any(run.record.state not in FINISHED for run in runs):
            return None
        sign = -1.0 if higher_is_better(self.task.by) else 1.0
        found = [(sign * value, run.rate) for run in runs if math.isfinite(value := run.record.final(self.task.by))]
        return min(found)[1] if found else None

    def finals(self, method: str) -> list[TriedRun]:
        """The runs of the chosen rate; [] while none is chosen."""
        rate = self.chosen(method)
        return [] if rate is None else [self._read(method, rate, seed) for seed in self.field.seeds]

    def run(self, jobs: int) -> None:
        """Run what is not finished: first the rates, then what they choose."""
        each = [{**self._own(name), RATE: self.field.rates(self.task, name)} for name in self.methods]
        self._grid("rates", [self.field.tuning_seed], each, jobs)
        rates = {name: self.chosen(name) for name in self.methods}
        each = [{**self._own(name), RATE: rate} for name, rate in rates.items() if rate is not None]
        if each:
            self._grid("chosen", list(self.field.seeds), each, jobs)

    def _grid(self, stage: str, seeds: list[int], each: list[dict[str, Any]], jobs: int) -> None:
        content = {"title": f"{self.task.title}: {stage}", "base": dict(self.task.base), "seeds": seeds, "grid": each}
        settings = {} if self.data is None else {"data_dir": self.data}
        grid(content, settings, name=f"{self.task.name}_{stage}", store=self.store, jobs=jobs)

    def _own(self, method: str) -> dict[str, Any]:
        return {"method": method, **self.field.setting(method).words}

    def _read(self, method: str, rate: float, seed: int) -> TriedRun:
        config = self.config(method, rate, seed)
        return TriedRun(rate, seed, config, read_record(self.store / run_id(config)))
