"""What a run shows while it is under way: its rates are quotients of what its rows count."""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from commeff import Communicator, methods
from commeff.experiments.grid.local.scheduler import Running
from commeff.experiments.grid.local.view import Watch
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run import progress
from commeff.experiments.run.progress import RowWords, reporter
from commeff.experiments.tasks.quadratic import Quadratic
from commeff.training.settings import RunSettings
from commeff.training.trainer import train

ROWS = [
    {"step": 10, "samples": 1000, "seconds": 5.0, "exposed_seconds": 4.0, "train_loss": 2.0},
    {"step": 20, "samples": 4000, "seconds": 6.0, "exposed_seconds": 4.1, "train_loss": 1.0, "gradient_norm": 0.125},
]
SHOWN = ["train loss 2, 200 samples/s, 80% exposed", "train loss 1, gradient norm 0.125, 3,000 samples/s, 10% exposed"]


def test_rates_are_those_since_the_row_before_for_as_long_as_a_row_is_the_last() -> None:
    words = RowWords({})
    assert words({}) == ""
    assert [words(dict(row)) for row in ROWS for _ in range(2)] == [line for line in SHOWN for _ in range(2)]
    assert RowWords({})(ROWS[1]) == "train loss 1, gradient norm 0.125, 667 samples/s, 68% exposed", "after a resume"


def test_no_rate_is_shown_where_no_time_has_passed() -> None:
    assert RowWords({})({"step": 1, "samples": 8, "seconds": 0.0, "exposed_seconds": 0.0}) == ""


def test_a_run_counts_what_all_workers_draw_in_the_seconds_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of 3 workers takes 0.25 s on this clock, whatever it takes."""
    now, words, shown = [0.0], RowWords({}), dict[int, str]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Ticking(Quadratic):
        def batch(self, step: int, workers: Any) -> Any:
            now[0] += 0.25
            return super().batch(step, workers)

    def show(step: int, row: dict[str, Any]) -> None:
        now[0] += 100.0
        shown[step] = words(row)

    method = methods.psgd(partial(torch.optim.SGD, lr=0.1))
    task = Ticking(workers=3)
    train(task, method, Communicator(workers=3), RunSettings(steps=6, evaluate_every=2), progress=show)
    drawn = len(task.batch(0, [0, 1, 2])[0][0])
    assert [shown[step].split(", ")[-1] for step in (2, 4, 6)] == [f"{3 * drawn / 0.25:.2f} samples/s"] * 3


def test_a_line_that_is_written_over_covers_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(progress.sys.modules, "ipykernel", progress)
    with reporter({"steps": 20}, tmp_path / "{mine}") as show:
        for row in (*ROWS, {}):
            show(row.get("step", 20), row)
    lines = capsys.readouterr().err.rstrip("\n").split("\r")[1:]
    assert lines[-1].startswith("{mine}: step 20/20 ")
    assert len({len(line) for line in lines}) == 1


def test_the_live_table_shows_the_rates_of_each_cell(tmp_path: Path) -> None:
    cells = [
        Cell(i, {}, None, {}, {"seed": 0, "steps": 20, "task": {"context": 64}}, tmp_path / str(i)) for i in range(2)
    ]
    watch, process = Watch(cells, (), None), multiprocessing.current_process()
    ours, _ = multiprocessing.Pipe()
    running = [Running(cell, process, ours, (), RowWords(cell.config)) for cell in cells]
    console = Console(width=200)
    for row in ROWS:
        running[0].step, running[0].row = int(row["step"]), row
        with console.capture() as shown:
            console.print(watch._table(running, 0, 0))
    first, second = shown.get().splitlines()[:2]
    assert "20/20" in first
    assert "192,000 tokens/s, 10% exposed" in first
    assert "tokens" not in second
