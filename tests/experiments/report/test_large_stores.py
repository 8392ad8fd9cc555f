"""Thousands of runs: what is done once for all of them, and what once for each, counted on small stores."""

from __future__ import annotations

import builtins
import io
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config import selection
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.expand import Rehearsals, expand
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.grid.status import status
from commeff.experiments.report.data import commands
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.commands import settings_of
from commeff.experiments.report.data.records import read_store
from commeff.experiments.studies.bench.synthetic_store import make_store, write_grid

GRID = """
base: {task: digits, workers: 4, steps: 3}
seeds: [0, 1, 2]
grid:
  - {method: [psgd, slowmo], optimizer.lr: [0.1, 0.2, 0.4]}
  - {method: dsgd, topology: [ring, exponential], optimizer.lr: [0.1, 0.2, 0.4]}
"""


def test_parts_are_composed_and_rehearsed_once_for_all_rates_and_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rates.yaml").write_text(GRID)
    composed: list[Any] = []
    inner = selection.Selection
    monkeypatch.setattr(selection, "Selection", lambda *a: composed.append(a) or inner(*a))
    selection.select.cache_clear()
    cells, faults = expand(read_grid(tmp_path / "rates.yaml"), tmp_path)
    assert (len(cells), faults) == (36, [])
    assert len(composed) == 4
    rehearsals = Rehearsals()
    sizes = {cell.settings["method"]: rehearsals.checkpoint(cell.config) for cell in cells}
    assert len(rehearsals._results) == 4
    assert sizes["slowmo"] > sizes["psgd"]


def test_a_rate_that_an_optimizer_refuses_is_refused_beside_others() -> None:
    rehearsals = Rehearsals()
    rehearsals.checkpoint(compose(["optimizer.lr=0.1", "workers=2"]))
    with pytest.raises(ConfigError, match="learning rate"):
        rehearsals.checkpoint(compose(["optimizer.lr=-0.1", "workers=2"]))


def test_cells_share_no_values() -> None:
    """What one cell's configuration is changed in, another's is not."""
    one, other = (compose(["schedule=multi_step", f"seed={seed}"]) for seed in (1, 1))
    one["schedule"]["milestones"].append(7)
    one["optimizer"]["lr"] = 9
    assert other == compose(["schedule=multi_step", "seed=1"])


def test_values_that_others_refer_to_reach_them() -> None:
    """After the same parts were composed for other values."""
    for workers in (8, 12):
        config = compose(["method=dsgd", "topology=torus", "schedule=cosine", f"workers={workers}", "steps=7"])
        assert config["topology"]["rows"] * config["topology"]["cols"] == config["task"]["workers"] == workers
        assert config["schedule"]["T_max"] == 7
    assert compose(["method=mem_sgd", "compressor=top_k", "compressor.k=3"])["compressor"]["ratio"] is None


@pytest.mark.parametrize("described", [True, False])
def test_each_file_of_a_run_is_opened_once(tmp_path: Path, described: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    make_store(store, write_grid(tmp_path, 40), 40, described)
    opened: Counter[str] = Counter()
    for place, name in ((os, "open"), (builtins, "open"), (io, "open")):
        inner = getattr(place, name)

        def counting(path: Any, *a: Any, inner: Any = inner, **k: Any) -> Any:
            once = not isinstance(path, int) and "opener" not in k  # an opener calls os.open
            if once and Path(path).parent.parent == store and Path(path).parent.name != "grids":
                opened[Path(path).name] += 1
            return inner(path, *a, **k)

        monkeypatch.setattr(place, name, counting)
    assert len(read_store(store)) == 40
    files = ("config.yaml", "env.json", "metrics.jsonl", "status.json", "summary.json")
    assert {name: opened[name] for name in files} == dict.fromkeys(files, 40)
    opened.clear()
    assert sum(sum(grid["states"].values()) for grid in status(store).values()) == 40
    assert opened.keys() <= {"status.json", "summary.json", "lock"}


def test_runs_that_differ_in_their_seed_share_the_search_for_their_command(tmp_path: Path) -> None:
    """Also where a topology follows the seed; and a seed of its own is kept."""
    commands._settings_of.cache_clear()
    words = ["method=dsgd", "topology=random_matching", "workers=8"]
    found = [settings_of(compose([*words, f"seed={seed}"])) for seed in range(4)]
    assert commands._settings_of.cache_info().misses == 1
    assert [settings and settings[-1] for settings in found] == [f"seed={seed}" for seed in range(4)]
    assert all(compose(settings or []) == compose([*words, f"seed={seed}"]) for seed, settings in enumerate(found))
    own = compose([*words, "seed=3", "topology.seed=0"])
    assert compose(settings_of(own) or []) == own


def test_a_store_of_a_grid_and_one_of_its_runs_say_the_same(tmp_path: Path) -> None:
    file = write_grid(tmp_path, 40)
    make_store(tmp_path / "grid", file, 40)
    make_store(tmp_path / "train", file, 40, described=False)
    ours, theirs = analyse(tmp_path / "grid"), analyse(tmp_path / "train")
    finals = [{str(row.finals["val_accuracy"].mean) for row in each.rows} for each in (ours, theirs)]
    assert finals[0] == finals[1]
    assert ours.states == theirs.states == {"done": 40}


def test_a_grid_of_too_many_cells_is_refused_before_they_are_made(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(1, 101)))
    text = f"grid: [{{method: psgd, steps: [{values}], task.batch: [{values}], task.hidden: [{values}]}}]"
    (tmp_path / "many.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"at most 10,000 cells, excluded ones counted, got 1,000,000"):
        read_grid(tmp_path / "many.yaml")
    (tmp_path / "few.yaml").write_text(GRID)
    assert len(read_grid(tmp_path / "few.yaml", max_cells=36).points) == 12
    with pytest.raises(ConfigError, match="--max-cells"):
        read_grid(tmp_path / "few.yaml", max_cells=35)
