"""`make batch-norm`: which model is evaluated matters when layers keep statistics. Settings: grids/batch_norm.yaml.

Parameters are averaged, BatchNorm statistics are not: each worker's belong to its own data. The average model gets
statistics re-estimated on training data; a local model has its own, of the few classes that its worker has seen.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pandas as pd

from experiments.cells import run_cells
from experiments.demo import load_grid
from experiments.system import cpu_name, git_commit

GRID = Path(__file__).parent / "grids" / "batch_norm.yaml"


def main(results: Path = Path("results"), store: Path = Path("runs/batch_norm")) -> int:
    """Run the grid and write results/batch_norm.csv; exit code 3 if an average model misses the floor."""
    grid = load_grid(GRID)
    shutil.rmtree(store, ignore_errors=True)
    rows = []
    for cell, folder, summary in run_cells(list(grid.cells()), store):
        quality = {name: summary[name] for name in ("val_accuracy", "local_val_accuracy", "consensus_distance")}
        origin = {"run": folder.name, "command": cell.command, "hardware": cpu_name(), "commit": git_commit()}
        rows.append({**cell.labels, **quality, "workers": "simulated", **origin})
    table = pd.DataFrame(rows).sort_values(["method", "seed"])
    results.mkdir(exist_ok=True)
    table.to_csv(results / "batch_norm.csv", index=False)
    print(table.groupby("method")[["val_accuracy", "local_val_accuracy", "consensus_distance"]].mean().round(4))
    return 3 if (table.groupby("method")["val_accuracy"].mean() < grid.floor).any() else 0


if __name__ == "__main__":
    sys.exit(main())
