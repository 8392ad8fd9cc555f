"""The cells of a grid that run at the same time are dealt over the GPUs of the machine, which here are only names."""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.grid.local.scheduler import Limits, Scheduler, _run_cell
from commeff.experiments.grid.local.server import ForkServer
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run import system
from commeff.experiments.run.store import RunFolder
from tests import owned

SMALL = ["task=quadratic", "workers=4", "steps=2"]


class Sleepers:
    """Starts processes that sleep in place of cells, and notes on which GPUs they would compute."""

    def __init__(self, together: int) -> None:
        self._together, self._all_there = together, multiprocessing.get_context("fork").Event()
        self.gpus: dict[str, tuple[str, ...]] = {}
        self.most = 0
        self._alive: list[BaseProcess] = []

    def start(self, target: Any, config: dict[str, Any], folder: Path, gpus: tuple[str, ...], plugins: object) -> Any:
        ours, _ = multiprocessing.Pipe()
        process = owned.process(self._sleep)
        process.start()
        self.gpus[folder.name] = gpus
        self._alive = [other for other in self._alive if other.is_alive()] + [process]
        self.most = max(self.most, len(self._alive))
        if self.most == self._together:
            self._all_there.set()
        return process, ours

    def _sleep(self) -> None:
        """Until as many as should be are alive at the same time."""
        self._all_there.wait(owned.PATIENCE)


class Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def cells(tmp_path: Path, count: int, *tokens: str) -> list[Cell]:
    made = [compose([*SMALL, *tokens, f"seed={seed}"]) for seed in range(count)]
    return [Cell(i, {}, None, {}, config, tmp_path / f"run{i}") for i, config in enumerate(made)]


def deal(cells: list[Cell], jobs: int, monkeypatch: pytest.MonkeyPatch) -> Sleepers:
    monkeypatch.setenv(system.VISIBLE, "4,5")
    server: Any = Sleepers(min(jobs, len(cells)))
    Scheduler(Limits(jobs), server).run(cells, Silent())
    return server


def test_cells_of_one_process_are_dealt_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = deal(cells(tmp_path, 4, "device=cuda"), 4, monkeypatch)
    assert server.gpus == {"run0": ("4",), "run1": ("5",), "run2": ("4",), "run3": ("5",)}
    assert server.most == 4  # two a GPU: as many as -j says


def test_a_gpu_that_is_free_again_is_taken_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = deal(cells(tmp_path, 5, "device=cuda"), 1, monkeypatch)
    assert set(server.gpus.values()) == {("4",)}  # one at a time: each finds all GPUs free


def test_a_cell_of_several_processes_takes_a_gpu_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert deal(cells(tmp_path, 1, "device=cuda", "nproc=2"), 2, monkeypatch).gpus == {"run0": ("4", "5")}


def test_cells_on_the_processor_take_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(deal(cells(tmp_path, 2), 2, monkeypatch).gpus.values()) == {()}


def test_gpus_are_counted_where_nothing_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "gpu_names", lambda: ["NVIDIA H200"] * 3)
    assert system.visible_gpus({}) == ["0", "1", "2"]


def test_the_gpus_of_a_run_are_in_its_env_json(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1)
    process: BaseProcess
    connection: Connection
    process, connection = ForkServer().start(_run_cell, dict(cell.config), cell.folder, ("4",), ())
    process.join()
    assert connection.poll()
    assert RunFolder(cell.folder).state == "done"
    assert json.loads((cell.folder / "env.json").read_text())["variables"]["CUDA_VISIBLE_DEVICES"] == "4"
