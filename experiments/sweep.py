"""`make sweep`: the learning rates of the demo, every rate of the grid on seeds of its own; the best mean is chosen."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd

from experiments.cells import run_cells
from experiments.demo import Grid, load_grid

RESOLUTION = 1 / 360  # one of the validation images of digits


def best(sweep: pd.DataFrame) -> pd.Series:
    """The rate of each method with the best mean validation accuracy; of rates that nothing tells apart the smallest.

    >>> rows = {"method": ["a"] * 4, "lr": [0.1, 0.3, 1.0, 3.0], "val_accuracy": [0.8, 0.9, 0.902, None]}
    >>> best(pd.DataFrame(rows)).to_dict()
    {'a': 0.3}
    """
    means = sweep.fillna({"val_accuracy": 0.0}).groupby(["method", "lr"])["val_accuracy"].mean().unstack()
    good = means.ge(means.max(axis=1) - RESOLUTION, axis=0)
    return good.idxmax(axis=1)


def warnings(chosen: pd.Series, grid: Grid) -> list[str]:
    """What a reader should know: a best rate at the edge of the grid, or one that is not the demo's."""
    edges = {min(grid.sweep["lr"]), max(grid.sweep["lr"])}
    at_edge = [
        f"{name}: best rate {lr} is at the edge of the grid; widen it" for name, lr in chosen.items() if lr in edges
    ]
    other = [
        f"{name}: best rate {lr}, but experiments/grids/demo.yaml has {grid.methods[str(name)]['lr']}"
        for name, lr in chosen.items()
        if lr != grid.methods[str(name)]["lr"]
    ]
    return at_edge + other


def main(results: Path = Path("results"), store: Path = Path("runs/sweep")) -> int:
    """Run the sweep, write results/demo_sweep.csv, and print the chosen rates; exit code 3 if demo.yaml has others."""
    grid = load_grid()
    shutil.rmtree(store, ignore_errors=True)
    cells = [
        grid.cell(method, lr, seed)
        for method in grid.methods
        for lr in grid.sweep["lr"]
        for seed in grid.sweep["seeds"]
    ]
    rows = []
    for cell, folder, summary in run_cells(cells, store):
        quality = {name: summary.get(name) for name in ("state", "val_accuracy", "train_loss")}
        rows.append({**cell.labels, **quality, "run": folder.name, "command": cell.command})
        print(f"[{len(rows)}/{len(cells)}] {cell.labels} {quality}", flush=True)
    sweep = pd.DataFrame(rows).sort_values(["method", "lr", "seed"])
    results.mkdir(exist_ok=True)
    sweep.to_csv(results / "demo_sweep.csv", index=False)
    print(sweep.pivot_table(index="method", columns="lr", values="val_accuracy", dropna=False).round(4).to_string())
    found = warnings(best(sweep), grid)
    print("\n".join(found) or "experiments/grids/demo.yaml has the best rate of every method")
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
