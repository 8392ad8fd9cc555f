"""`make demo`: eight methods on real data, in accuracy and in bytes. Settings: experiments/grids/demo.yaml."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from experiments.cells import Cell, curves, run_cells
from experiments.figures import accuracy_figure
from experiments.system import cpu_name, git_commit

GRID = Path(__file__).parent / "grids" / "demo.yaml"
MEGABYTE = 1e6


@dataclass(frozen=True)
class Grid:
    """A grid file: common settings, seeds, the floor, and each method's learning rate and settings."""

    common: list[str]
    seeds: list[int]
    floor: float
    sweep: Mapping[str, list[Any]]
    methods: Mapping[str, Mapping[str, Any]]

    def cell(self, method: str, lr: float, seed: int) -> Cell:
        """One run of a method."""
        settings = [f"method={method}", *self.methods[method]["settings"], *self.common]
        return Cell({"method": method, "lr": lr, "seed": seed}, [*settings, f"optimizer.lr={lr}", f"seed={seed}"])

    def cells(self) -> Iterator[Cell]:
        """The runs of the demo."""
        return (self.cell(name, method["lr"], seed) for name, method in self.methods.items() for seed in self.seeds)


def load_grid(path: Path = GRID) -> Grid:
    """The demo's grid file.

    >>> len(load_grid().methods)
    8
    """
    return Grid(**yaml.safe_load(path.read_text(encoding="utf-8")))


def finals(measurements: pd.DataFrame) -> pd.DataFrame:
    """One row a method: means over seeds, of the last evaluation (the consensus distance: of all evaluations)."""
    last = measurements.sort_values("step").groupby(["method", "seed"], sort=False).last()
    means = last.groupby("method")[["val_accuracy", "payload_bytes", "wire_bytes", "step"]].mean()
    return means.assign(consensus_distance=measurements.groupby("method")["consensus_distance"].mean())


def short(setting: str) -> str:
    """A setting without the part it belongs to.

    >>> short("compressor=qsgd"), short("method.rank=2")
    ('qsgd', 'rank=2')
    """
    key, _, value = setting.partition("=")
    return value if "." not in key else f"{key.split('.')[-1]}={value}"


def table(rows: pd.DataFrame, grid: Grid) -> Table:
    """Accuracy and bytes of every method, in the order of the grid."""
    title = f"digits, MLP, {len(grid.seeds)} seeds, simulated workers; MB per worker over the run"
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("method", "with"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("lr", "accuracy", "payload", "wire", "saving", "consensus", "steps"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, method in grid.methods.items():
        row = rows.loc[name]
        shown.add_row(
            name,
            " ".join(map(short, method["settings"])),
            f"{method['lr']}",
            f"{row.val_accuracy:.4f}",
            f"{row.payload_bytes / MEGABYTE:.3f}",
            f"{row.wire_bytes / MEGABYTE:.3f}",
            f"{rows.loc['psgd'].wire_bytes / row.wire_bytes:.1f}x",
            f"{row.consensus_distance:.2g}",
            f"{row.step:.0f}",
        )
    return shown


def main(results: Path = Path("results"), store: Path = Path("runs/demo")) -> int:
    """Run the grid; exit code 3 if a method misses the floor."""
    grid, begun = load_grid(), time.monotonic()
    console = Console(width=None if sys.stdout.isatty() else 110)
    shutil.rmtree(store, ignore_errors=True)
    cells = list(grid.cells())
    frames = []
    for i, (cell, folder, summary) in enumerate(run_cells(cells, store), 1):
        frames.append(curves(cell, folder))
        done = f"[{i}/{len(cells)}] {cell.labels['method']} seed {cell.labels['seed']}"
        console.print(f"{done}: val accuracy {summary['val_accuracy']:.4f}", highlight=False, markup=False)
    measurements = pd.concat(frames).sort_values(["method", "seed", "step"])
    rows = finals(measurements)

    results.mkdir(exist_ok=True)
    measurements.to_csv(results / "demo.csv", index=False)
    caption = (
        f"scikit-learn digits; {' '.join(grid.common)}; simulated workers, bytes counted from messages; mean and range "
        f"of {len(grid.seeds)} seeds. Hardware: {cpu_name()}. Commit {git_commit()}. Command: make demo"
    )
    accuracy_figure(pd.read_csv(results / "demo.csv"), list(grid.methods), caption, results / "demo")

    console.print(table(rows, grid))
    console.print(
        f"{len(cells)} runs in {time.monotonic() - begun:.0f} s; {results}/demo.csv, demo.png, demo.pdf",
        highlight=False,
    )
    missed = rows.index[~(rows["val_accuracy"] >= grid.floor)]
    for name in missed:
        console.print(f"{name} misses the floor of {grid.floor}: {rows.loc[name].val_accuracy:.4f}", highlight=False)
    return 3 if len(missed) else 0


if __name__ == "__main__":
    sys.exit(main())
