"""The demo's settings are those that the committed sweep chose, and its committed results reach the floor."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from experiments.config import compose
from experiments.demo import finals, load_grid, table
from experiments.store import run_id
from experiments.sweep import best, warnings

RESULTS = Path(__file__).parents[2] / "results"


def test_the_demo_is_eight_methods_twice() -> None:
    grid = load_grid()
    cells = list(grid.cells())
    configs = [compose(cell.settings) for cell in cells]
    assert len(grid.methods) == 8
    assert len({run_id(config) for config in configs}) == 16
    for config in configs:
        assert config["workers"] == 16
        assert config["task"]["alpha"] == 0.3
        assert config["task"]["partition"] == "dirichlet"
        assert config["task"]["model"] == "mlp"
    assert not set(grid.seeds) & set(grid.sweep["seeds"]), "the sweep must not see the demo's seeds"


def test_learning_rates_are_those_of_the_committed_sweep() -> None:
    sweep, grid = pd.read_csv(RESULTS / "demo_sweep.csv"), load_grid()
    assert set(sweep["method"]) == set(grid.methods)
    assert set(sweep["lr"]) == set(grid.sweep["lr"])
    assert set(sweep["seed"]) == set(grid.sweep["seeds"])
    assert warnings(best(sweep), grid) == []


def test_the_sweep_was_made_with_the_settings_of_the_demo() -> None:
    """Its commands are those that the grid file gives today."""
    sweep, grid = pd.read_csv(RESULTS / "demo_sweep.csv"), load_grid()
    today = {grid.cell(row.method, row.lr, row.seed).command for row in sweep.itertuples()}
    assert set(sweep["command"]) == today


def test_an_edge_or_another_rate_is_warned_of() -> None:
    grid = load_grid()
    chosen = pd.Series({name: method["lr"] for name, method in grid.methods.items()})
    assert warnings(chosen, grid) == []
    chosen["psgd"] = max(grid.sweep["lr"])
    assert [re.sub(":.*", "", line) for line in warnings(chosen, grid)] == ["psgd", "psgd"]


def test_committed_results_reach_the_floor() -> None:
    grid, measurements = load_grid(), pd.read_csv(RESULTS / "demo.csv")
    rows = finals(measurements)
    assert set(rows.index) == set(grid.methods)
    assert (rows["val_accuracy"] >= grid.floor).all()
    assert table(rows, grid).row_count == 8


def test_finals_are_means_over_seeds_of_the_last_step() -> None:
    rows = [
        {"method": "a", "seed": seed, "step": step, "val_accuracy": seed + step, "payload_bytes": 8.0 * step}
        | {"wire_bytes": 10.0 * step, "consensus_distance": float(step)}
        for seed in (0, 1)
        for step in (2, 4)
    ]
    row = finals(pd.DataFrame(rows)).loc["a"]
    assert (row["val_accuracy"], row["payload_bytes"], row["wire_bytes"], row["step"]) == (4.5, 32.0, 40.0, 4)
    assert row["consensus_distance"] == pytest.approx(3.0)
