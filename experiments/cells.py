"""Many runs side by side: one process a core, one thread a process."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.config import compose
from experiments.store import run_id


@dataclass(frozen=True)
class Cell:
    """One run of a table: the labels that tell it from the others, and its settings."""

    labels: Mapping[str, Any]
    settings: Sequence[str]

    @property
    def command(self) -> str:
        """What a reader types to run this cell alone."""
        return " ".join(("commeff train", *self.settings))


def run_cells(cells: Sequence[Cell], store: Path) -> Iterator[tuple[Cell, Path, dict[str, Any]]]:
    """Every cell with its folder and summary, as they finish; what cannot be composed is refused before that."""
    configs = [compose(cell.settings) for cell in cells]
    folders = [store / run_id(config) for config in configs]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["experiments.runner", "experiments.tasks"])  # torch is imported once
    with ProcessPoolExecutor(os.cpu_count(), context) as pool:
        futures = {pool.submit(_run, config, folders[i]): i for i, config in enumerate(configs)}
        for future in as_completed(futures):
            i = futures[future]
            yield cells[i], folders[i], future.result()


def _run(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    import torch

    from experiments.runner import run_one

    torch.set_num_threads(1)
    return run_one(config, folder)


def curves(cell: Cell, folder: Path) -> pd.DataFrame:
    """The measurements of a run, one row an evaluation, beside the cell's labels and command."""
    rows = pd.read_json(folder / "metrics.jsonl", lines=True)
    return rows.assign(**cell.labels, run=folder.name, command=cell.command)
