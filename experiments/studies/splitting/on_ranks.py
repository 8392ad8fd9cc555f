"""`python -m commeff.experiments.studies.splitting.on_ranks [--out results/llm/ranks]`: split runs beside whole ones.

The cells of llm_ranks.yaml on 4 processes and the same of whole workers in one process: the first 20 steps, loss by
loss, and where both came to in `make llm`. A minute on two cores, when the two grids have run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from commeff.experiments.config.compose import compose
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.expand import expand
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder

COMMAND = "python -m commeff.experiments.studies.splitting.on_ranks"
STEPS, SPLIT = 20, ("mesh.", "pieces", "nproc")
PAGE = """# Split runs beside whole ones

Written by `{command}` at commit {commit} on {cpu}: the runs of `experiments/grids/llm_ranks.yaml`, two workers of two
tensor ranks each over gloo, beside two whole workers in one process, in float32.

`first 20 steps` is the largest difference of a minibatch's loss over those steps, of runs that end there and have the
rates of the long ones; the whole workers there have `nproc=1` beside the keys of the mesh, and so select within the
same pieces. `{steps} steps` are the validation losses of the grids' runs, and `apart` how far these are from each
other: rounding differs between the two, and grows; and there top-k selects within what a process holds on the mesh, and
within the whole vector otherwise, which is another method, strictly.

{beside_whole}
"""


def whole(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a run on a mesh, for whole workers in one process.

    >>> whole({"mesh.worker": "2", "mesh.tensor": "2", "pieces": "own", "steps": "10"})
    {'steps': '10'}
    """
    return {key: value for key, value in settings.items() if not key.startswith(SPLIT)}


def losses(settings: Mapping[str, str], store: Path) -> list[float]:
    """The loss of each of the first steps, whatever the run is to have."""
    short = {**settings, "steps": STEPS, "evaluate_every": 1, "schedule.T_max": settings["steps"]}
    config = compose([f"{key}={value}" for key, value in short.items()])
    folder = store / run_id(config)
    run_one(config, folder)
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["minibatch_loss"] for line in lines]


def final(settings: Mapping[str, str], store: Path) -> float:
    """The validation loss of a run that has ended."""
    run = RunFolder(store / run_id(compose([f"{key}={value}" for key, value in settings.items()])))
    if run.state != "done":
        raise SystemExit(f"{run.path} must have ended, got {run.state}: run `make llm` first")
    loss: float = run.read("summary.json")["val_loss"]
    return loss


def row(cell: Cell, ranks: Path, stacked: Path, short: Path) -> dict[str, Any]:
    """A line of the table."""
    alone = whole(cell.settings)
    pairs = zip(losses(cell.settings, short), losses({**cell.settings, "nproc": "1"}, short), strict=True)
    split, one = final(cell.settings, ranks), final(alone, stacked)
    return {
        "run": cell.name or " ".join(f"{key}={value}" for key, value in cell.labels.items() if value),
        f"first {STEPS} steps": max(abs(ours - theirs) for ours, theirs in pairs),
        "on 4 processes": split,
        "whole": one,
        "apart": abs(split / one - 1),
    }


def write(out: Path, ranks: Path, stacked: Path, short: Path, data: Sequence[str]) -> None:
    """beside_whole.md and the table as CSV."""
    file = resources.files("commeff.experiments") / "grids" / "llm_ranks.yaml"
    with resources.as_file(file) as path:
        cells, faults = expand(read_grid(path, data), ranks)
    assert not faults, faults
    rows = [row(cell, ranks, stacked, short) for cell in cells]
    forms = {f"first {STEPS} steps": ".1e", "apart": ".1e", "on 4 processes": ".4f", "whole": ".4f"}
    words = {"command": COMMAND, "steps": cells[0].config["steps"]}
    Page("beside_whole", PAGE, [Table.of(rows, name="beside_whole", forms=forms)], words=words).write(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/llm/ranks"), help="the folder of the page")
    parser.add_argument("--ranks", type=Path, default=Path("runs/llm_ranks"), help="the store of llm_ranks.yaml")
    parser.add_argument("--stacked", type=Path, default=Path("runs/llm"), help="the store of llm.yaml")
    parser.add_argument("--short", type=Path, default=Path("runs/llm_short"), help="a store for the first steps")
    parser.add_argument("--data", type=Path, help="where tinyshakespeare is; unless given, COMMEFF_DATA")
    given = parser.parse_args()
    data = [f"data_dir={given.data}"] if given.data else []
    write(given.out, given.ranks, given.stacked, given.short, data)
