"""Runs as their folders describe them: settings, numbers and curves as pandas DataFrames, and figures of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from commeff.experiments.report.data.formula import Formula
from commeff.experiments.report.data.grids import choose, derive
from commeff.experiments.report.data.points import FigureRun, points, tuned
from commeff.experiments.report.data.records import MARKS, Record, read_record, read_store
from commeff.experiments.report.data.rows import FINALS
from commeff.experiments.report.data.variants import is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTED = ("step", "samples", "epoch", "lr", "minibatch_loss")  # columns of curves that say nothing of a run's end
SHOWN = ("val_accuracy", "val_loss", "wire_bytes", "seconds")  # when a run is printed


class TrainedRun:
    """One run: what was asked for, how it ended, and what was measured on the way.

    Attributes
    ----------
    path : Path
        Its folder.
    state : str
        "done", "diverged", or how it stands.
    config : Mapping
        Everything that decides its result; {} for a run that was made of objects.
    summary : Mapping
        The numbers at the end, as `commeff train` prints them.
    metrics : DataFrame
        A row an evaluation: step, losses, accuracies, consensus_distance, bytes, seconds.
    """

    def __init__(self, record: Record) -> None:
        self._record, self.path, self.state = record, record.folder, record.state
        self.config, self.summary, self.metrics = record.config, record.summary, record.curve

    def plot(self, metric: str | None = None, against: str = "step", ax: Axes | None = None) -> Axes:
        """A curve of this run.

        Parameters
        ----------
        metric : str, optional
            A column of `metrics`, or a formula as `commeff figure --help` has it; the validation accuracy, or else a
            loss.
        against : str
            What is along the horizontal axis, such as "step", "wire_bytes" or "seconds".
        ax : Axes, optional
            Where to draw; a figure of its own unless given.
        """
        return _drawn([FigureRun(self._record)], metric, against, [], ax)

    def __repr__(self) -> str:
        numbers = [f"{name} {self.summary[name]:.6g}" for name in SHOWN if self.summary.get(name) is not None]
        return f"<{', '.join([f'{self.path.name}: {self.state}', *numbers])}>"


class Runs:
    """The runs of a store, or of one grid in it.

    Parameters
    ----------
    store : str or Path
        The folder that holds one folder a run.
    name : str, optional
        Of a grid in the store. Without one: the only grid, or all runs, labelled by what they differ in.

    Attributes
    ----------
    cells : DataFrame
        A row a run: what tells it from the others, seed, state, the numbers at the end, and its folder's name.
    metrics : DataFrame
        A row an evaluation of each run, with the same labels. Labels that are numbers are numbers in both.
    """

    def __init__(self, store: str | Path, name: str | None = None) -> None:
        self.path = Path(store)
        records = read_store(self.path)
        chosen = name is not None or len([*self.path.glob("grids/*.json")]) == 1
        self._grid = choose(self.path, name, records) if chosen else derive(self.path, records)
        by_id = {record.id: record for record in records}
        self._records = {
            cell.run: by_id.get(cell.run) or Record(cell.run, self.path / cell.run) for cell in self._grid.cells
        }

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, run: str) -> TrainedRun:
        """One run by the name of its folder, or by how that begins or ends."""
        fitting = [name for name in self._records if run in (name, name[: len(run)], name[-len(run) :])]
        if len(fitting) != 1:
            raise KeyError(f"{run!r} must name one run of {self.path}, got {len(fitting)}; the column `run` has them")
        return TrainedRun(self._records[fitting[0]])

    @cached_property
    def cells(self) -> pd.DataFrame:
        """One row per run."""
        measured = dict.fromkeys(name for record in self._records.values() for name in record.curve)
        finals = dict.fromkeys((*FINALS, *(name for name in measured if name not in COUNTED)))
        rows = [
            dict(cell.labels)
            | {"seed": cell.seed, "state": record.state, "run": cell.run}
            | {metric: record.final(metric) for metric in finals}
            for cell, record in zip(self._grid.cells, self._records.values(), strict=True)
        ]
        columns = [*self._labels, "seed", "state", *finals, "run"]
        return self._in_numbers(pd.DataFrame(rows, columns=columns).dropna(axis="columns", how="all"))

    def _in_numbers(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Turn labels whose values are all numbers into numbers, like the measurements."""
        texts = [key for key in self._labels if key in frame and frame[key].dropna().map(is_number).all()]
        return frame.assign(**{key: pd.to_numeric(frame[key]) for key in texts})

    @property
    def _labels(self) -> list[str]:
        return [*dict.fromkeys(key for cell in self._grid.cells for key in cell.labels)]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per evaluation of each run."""
        curves = [
            record.curve.assign(**{**cell.labels, "seed": cell.seed, "run": cell.run})
            for cell, record in zip(self._grid.cells, self._records.values(), strict=True)
            if len(record.curve)
        ]
        return self._in_numbers(pd.concat(curves, ignore_index=True)) if curves else pd.DataFrame()

    def plot(
        self,
        metric: str | None = None,
        against: str = "step",
        by: str | Sequence[str] | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """A line for each value of some labels, seeds averaged, with 95 % intervals: what `commeff figure` draws.

        Runs are those that the grid's `select` chooses, unless what it tunes is named.

        Parameters
        ----------
        metric, against, ax : as of `TrainedRun.plot`; a setting such as "workers" may be `against`, too.
        by : str or sequence of str, optional
            The labels that tell lines apart; all that runs differ in.
        """
        labels = [key for key in self._labels if key != against] if by is None else [by] if isinstance(by, str) else by
        runs = tuned(self._grid, self._records, [against, *labels])
        return _drawn(runs, metric, against, labels, ax)

    def __repr__(self) -> str:
        counts = self.cells["state"].value_counts() if len(self) else {}
        return f"<{self._grid.title}: {', '.join(f'{n} {state}' for state, n in counts.items()) or 'no run'}>"

    def _repr_html_(self) -> str:
        html: str = self.cells.to_html(max_rows=60)
        return html


def load(path: str | Path) -> Runs | TrainedRun:
    """A store, or one run folder of it, as it stands.

    Parameters
    ----------
    path : str or Path
        `runs/demo`, or `runs/demo/psgd-digits-0123456789`.

    Raises
    ------
    ValueError
        There is neither.
    """
    folder = Path(path)
    if any((folder / mark).is_file() for mark in MARKS):
        return TrainedRun(read_record(folder))
    return Runs(folder)


def _drawn(runs: list[FigureRun], metric: str | None, against: str, by: Sequence[str], ax: Axes | None) -> Axes:
    """Lines with intervals, and a legend."""
    from matplotlib import pyplot

    from commeff.experiments.report.draw.lines import draw_line
    from commeff.experiments.report.draw.points import drawing

    measured = dict.fromkeys(name for run in runs for name in run.record.curve)
    if not measured:
        raise ValueError("there must be an evaluation to draw, got none yet: let the run go on")
    x = Formula.read("against", against)
    y = Formula.read("metric", metric or next(name for name in (*FINALS, *measured) if name in measured))
    drawn = drawing(points(runs, x, y, by, log=""), x, y)
    axes: Axes = ax or pyplot.subplots()[1]
    for line in drawn.panels[0].lines:
        draw_line(axes, line, drawn, -math.inf)
    axes.set(xlabel=drawn.x_title, ylabel=drawn.y_title)
    if by:
        axes.legend()
    return axes
