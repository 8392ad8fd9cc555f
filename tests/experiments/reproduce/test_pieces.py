"""`--minutes`: what time is over for stops with a checkpoint, and a table run in pieces has the page of one run."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.grid import command as grids
from commeff.experiments.grid.command import Request, prepare, standing
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.grid.plan.cells import rates, seconds_of
from commeff.experiments.run.progress import Heartbeat
from commeff.experiments.run.store import RunFolder
from tests import owned
from tests.experiments.reproduce.test_reproduce import commeff, run_here
from tests.experiments.reproduce.test_tuning import page, written

ROWS = 30  # of measurements, after which a piece is over
CHANGES: dict[str, Any] = {
    "base": {"task": "quadratic", "workers": 4, "steps": 24, "evaluate_every": 1, "checkpoint_every": 5},
    "grid": [
        {"name": "a", "method": "psgd", "optimizer.lr": [0.1, 0.5]},
        {"name": "b", "method": "dsgd", "optimizer.lr": [0.1, 0.5]},
    ],
    "tune": {"over": "optimizer.lr", "by": "val_loss", "seeds": [100]},
    "claims": ["within(loss(r.a), loss(r.b), 1)"],
}


class Forking:
    """A fork server that needs none: this process has imported torch."""

    def start(self, target: Callable[..., object], *arguments: object) -> Any:
        ours, theirs = multiprocessing.Pipe()
        process = owned.process(self._call, (target, *arguments, theirs))
        process.start()
        theirs.close()
        return process, ours

    @staticmethod
    def _call(target: Callable[..., object], *arguments: object) -> None:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # not those of CliRunner, which are no files
        target(*arguments)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        return function(*arguments)


def rows(store: Path) -> int:
    return sum(path.read_text().count("\n") for path in store.glob("*-*/metrics.jsonl"))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps take so long that no run is over before it is told to stop."""
    called = Heartbeat.__call__

    def sleeping(self: Heartbeat, step: int, row: dict[str, Any]) -> None:
        time.sleep(0.04)
        called(self, step, row)

    monkeypatch.setattr(Heartbeat, "__call__", sleeping)


@pytest.mark.usefixtures("slow")
def test_a_table_in_pieces_has_the_page_of_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, store, quiet = written(tmp_path, **CHANGES), tmp_path / "store", tmp_path / "quiet"
    monkeypatch.setattr(grids, "ForkServer", Forking)
    pieces = list[str]()
    while not (store / "pages" / "full" / "report.md").exists():
        start = rows(store)
        with monkeypatch.context() as patch:
            patch.setattr(Limits, "over", property(lambda limits, start=start: rows(store) >= start + ROWS))
            code, told = commeff(file, "-j", "2", "--store", str(store), "--minutes", "1000")
        assert code == 0, told
        pieces.append(next((line for line in told.splitlines() if "of 10 runs done" in line), ""))
        assert len(pieces) < 60
    assert all("left (" in line and line.endswith("the same command goes on") for line in pieces[:-1])
    counts = [int(line.split()[0]) for line in pieces[:-1]]
    assert counts == sorted(counts)
    assert len(counts) > 3
    assert any("about " in line for line in pieces), "seconds of what is left"
    restarts = [json.loads(file.read_text()).get("restarts", 0) for file in store.glob("*-*/status.json")]
    assert max(restarts) > 0
    monkeypatch.setattr(grids, "run", run_here)
    assert commeff(file, "--store", str(quiet))[0] == 0
    for name in ("report.md", "values.csv"):
        assert page(store, name) == page(quiet, name)


@pytest.mark.parametrize("words", [["reproduce", "bias_floors"], ["grid", "experiments/grids/demo.yaml"]])
def test_minutes_must_be_some(words: list[str]) -> None:
    from typer.testing import CliRunner

    from commeff.experiments.cli import app

    result = CliRunner().invoke(app, [*words, "--minutes", "0"])
    assert (result.exit_code, "--minutes must be more than 0" in result.output) == (2, True)


def test_what_is_left_is_judged_by_what_has_begun(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "base: {task: quadratic, steps: 40}\nseeds: [0, 1, 2]\ngrid: [{method: psgd}]\n"
    )
    cells, _ = prepare(Request(tmp_path / "grid.yaml", store=tmp_path / "store"), rehearsed=False)
    first, second, third = cells
    first.folder.mkdir(parents=True)
    RunFolder(first.folder).mark("killed", step=30, steps=40, wall=60.0)
    assert [seconds_of(cell, rates(cells)) for cell in cells] == [20.0, 80.0, 80.0]
    assert standing(cells, 2) == (
        "0 of 3 runs done, 3 left (1 of them begun), about 1:30 min with -j 2; the same command goes on"
    )
    assert third.seed == 2
    assert not second.finished


def test_steps_of_more_minibatches_are_judged_by_their_like(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(
        "base: {task: quadratic, steps: 40}\ngrid: [{method: psgd, accumulate: [null, 4], optimizer.lr: [0.1, 0.2]}]\n"
    )
    cells, _ = prepare(Request(tmp_path / "grid.yaml", store=tmp_path / "store"), rehearsed=False)
    seconds = {None: 40.0, 4: 160.0}
    for cell in cells:
        if cell.config["optimizer"]["lr"] == 0.1:
            cell.folder.mkdir(parents=True)
            RunFolder(cell.folder).mark("done", step=40, steps=40, wall=seconds[cell.config["accumulate"]])
    left = [cell for cell in cells if cell.config["optimizer"]["lr"] == 0.2]
    assert [seconds_of(cell, rates(cells)) for cell in left] == [seconds[cell.config["accumulate"]] for cell in left]
