"""The grid files that are committed compose, and rates are what sweeps over other seeds chose."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.grid.command import Request, prepare
from commeff.experiments.grid.plan.spec import STEPS_TO_TARGET, Point, read_grid

ROOT = Path(__file__).parents[3]
GRIDS = ROOT / "experiments" / "grids"
LAB = ROOT / "experiments" / "studies" / "lab"
RATE = "optimizer.lr"
SWEPT = {"demo": "demo_sweep", "stragglers": "stragglers/rates"}  # a grid, and where its rates were chosen


def table(folder: str, name: str = "main") -> pd.DataFrame:
    return pd.read_csv(ROOT / "results" / folder / "figures" / f"{name}.csv").dropna(subset="method")


def tuned(point: Point) -> frozenset[tuple[str, str]]:
    """What a rate was chosen for: a straggler came later."""
    return frozenset((key, value) for key, value in point.settings.items() if key not in (RATE, "straggler"))


@pytest.mark.parametrize("path", sorted([*GRIDS.rglob("*.yaml"), *LAB.glob("*.yaml")]), ids=lambda path: path.stem)
def test_every_committed_grid_composes(path: Path, tmp_path: Path) -> None:
    cells, _ = prepare(Request(path, store=tmp_path), rehearsed=False)
    assert len(cells) == len({cell.folder for cell in cells}) > 1
    assert all(compose([f"{k}={v}" for k, v in cell.settings.items()]) == cell.config for cell in cells[:1])


@pytest.mark.parametrize("name", SWEPT)
def test_rates_are_those_that_a_sweep_over_other_seeds_chose_by_the_steps_to_the_same_target(name: str) -> None:
    """And none of them is the smallest or the largest that was tried."""
    grid, sweep = (read_grid(GRIDS / f"{each}.yaml") for each in (name, f"{name}_sweep"))
    assert {*map(tuned, grid.points)} == {*map(tuned, sweep.points)}
    assert not {*grid.seeds} & {*sweep.seeds}, "the sweep must not see the reported seeds"
    assert (sweep.select, sweep.target) == ({"over": [RATE], "by": STEPS_TO_TARGET}, grid.target)
    names = {tuned(point): point.name for point in sweep.points}
    rates = table(SWEPT[name]).set_index("variant")[RATE]
    for point in grid.points:
        variant, rate = names[tuned(point)], float(point.settings[RATE])
        assert rate == rates[variant], variant
        tried = [float(each.settings[RATE]) for each in sweep.points if each.name == variant]
        assert min(tried) < rate < max(tried), f"{variant}: {rate} is at the edge of {sorted(tried)}"


def test_the_demo_reaches_its_target_with_every_seed_and_tells_most_methods_apart() -> None:
    """Two thirds of the intervals exclude 1 or are narrower than a factor of 1.3."""
    demo, target = read_grid(GRIDS / "demo.yaml"), pd.read_csv(ROOT / "results" / "demo" / "figures" / "target.csv")
    assert len(target) == len(demo.points) <= 8
    assert (target["reached"] == len(demo.seeds)).all()
    drawn = pd.read_csv(ROOT / "results" / "demo" / "figures" / "speed_up.csv")
    told = (drawn["low"] > 1) | (drawn["high"] < 1) | (drawn["high"] < 1.3 * drawn["low"])
    assert told.mean() >= 2 / 3
