"""The grid files that are committed compose, and the demo is what its sweep chose and reaches its target."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.grid.command import Request, prepare
from commeff.experiments.grid.plan.spec import read_grid

ROOT = Path(__file__).parents[2]
GRIDS = ROOT / "experiments" / "grids"
DEMO, SWEEP = (read_grid(GRIDS / f"{name}.yaml") for name in ("demo", "demo_sweep"))
RATE = "optimizer.lr"


def without(settings: dict[str, str], *keys: str) -> frozenset[tuple[str, str]]:
    return frozenset((key, value) for key, value in settings.items() if key not in keys)


@pytest.mark.parametrize("path", sorted(GRIDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_committed_grid_composes(path: Path, tmp_path: Path) -> None:
    cells, _ = prepare(Request(path, store=tmp_path), rehearsed=False)
    assert len(cells) == len({cell.folder for cell in cells}) > 1
    assert all(compose([f"{k}={v}" for k, v in cell.settings.items()]) == cell.config for cell in cells[:1])


def test_the_sweep_tries_the_demo_s_variants_on_other_seeds() -> None:
    assert {without(p.settings, RATE, "evaluate_every") for p in DEMO.points} == {
        without(p.settings, RATE, "evaluate_every") for p in SWEEP.points
    }
    assert not set(DEMO.seeds) & set(SWEEP.seeds), "the sweep must not see the demo's seeds"


def test_the_demo_s_learning_rates_are_those_that_the_sweep_chose() -> None:
    """And none of them is the smallest or the largest that was tried."""
    table = pd.read_csv(ROOT / "results" / "demo_sweep" / "figures" / "main.csv").dropna(subset="method")
    chosen = dict(zip(table["method"], table[RATE], strict=True))
    assert chosen == {point.settings["method"]: float(point.settings[RATE]) for point in DEMO.points}
    for method, rate in chosen.items():
        tried = [float(point.settings[RATE]) for point in SWEEP.points if point.settings["method"] == method]
        assert min(tried) < rate < max(tried), f"{method}: {rate} is at the edge of {sorted(tried)}"


def test_every_method_of_the_demo_reaches_its_target() -> None:
    assert DEMO.target
    ((metric, level),) = DEMO.target.items()
    table = pd.read_csv(ROOT / "results" / "demo" / "figures" / "main.csv").dropna(subset="method")
    assert len(table) == len(DEMO.points) >= 12
    assert (table[f"{metric}_n"] == len(DEMO.seeds)).all()
    assert (table[metric] >= level).all()
