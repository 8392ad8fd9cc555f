"""A store of many runs that nobody trained: the files that runs write, with numbers by formula.

What is measured on it is reading, never training.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import yaml

from commeff.experiments.grid.command import Request, describe
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.grid.plan.expand import expand
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.run.store import stamp

RATES = 10
PRODUCTS: tuple[dict[str, object], ...] = (  # of methods: 20 variants
    {"method": ["psgd", "local_sgd", "slowmo", "diloco"]},
    {"method": ["dsgd", "sgp", "gossip_pga", "qg_dsgdm"], "topology": ["ring", "exponential", "one_peer_exponential"]},
    {"method": "mem_sgd", "compressor": ["top_k", "scaled_sign", "qsgd"]},
    {"method": "power_sgd"},
)
POINTS = 20 * RATES  # cells of a seed
EVALUATIONS = 8
ENVIRONMENT = {"host": "nowhere", "cpu": "none", "cores": "1", "threads": "1", "gpus": "none", "commit": "synthetic"}


def write_grid(folder: Path, runs: int) -> Path:
    """A grid file of so many cells, or a few more: 20 variants at 10 learning rates, with as many seeds as it takes."""
    rates = [round(0.01 * 1.5**i, 4) for i in range(RATES)]
    content = {
        "base": {"task": "digits", "workers": 4, "steps": 10 * EVALUATIONS},
        "seeds": list(range(-(-runs // POINTS))),
        "grid": [product | {"optimizer.lr": rates} for product in PRODUCTS],
        "select": {"over": "optimizer.lr", "by": "val_accuracy"},
    }
    file = folder / "many.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def make_store(store: Path, file: Path, runs: int, described: bool = True) -> list[Cell]:
    """The first cells of a grid file as finished runs.

    Parameters
    ----------
    store : the folder to write.
    file : of `write_grid`.
    runs : how many.
    described : as `commeff grid` leaves a store; otherwise as `commeff train` does, without a grid.
    """
    cells = expand(read_grid(file), store)[0][:runs]
    stamp(store)
    for cell in cells:
        _write_run(cell)
    if described:
        describe(Request(file, store=store), cells)
    return cells


def _write_run(cell: Cell) -> None:
    """The files of a run, without the care for crashes that real runs take."""
    cell.folder.mkdir()
    rows = [_row(cell, step) for step in range(10, 10 * EVALUATIONS + 1, 10)]
    status = {"state": "done", "step": rows[-1]["step"], "steps": rows[-1]["step"], "wall": 0.5}
    files = {
        "config.yaml": yaml.dump(dict(cell.config), Dumper=yaml.CSafeDumper, sort_keys=False),
        "env.json": json.dumps(ENVIRONMENT),
        "status.json": json.dumps(status | {"host": "nowhere", "pid": 1, "time": 1.7e9 + cell.number}),
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "summary.json": json.dumps({"state": "done", **rows[-1], "steps": rows[-1]["step"]}),
    }
    for name, text in files.items():
        (cell.folder / name).write_text(text, encoding="utf-8")


def _row(cell: Cell, step: int) -> dict[str, float]:
    """An evaluation: losses fall with the steps, accuracies are best at a middle rate, seeds differ a little."""
    rate = float(cell.settings["optimizer.lr"])
    loss = (1 + math.log(rate / 0.1) ** 2) / step + 0.001 * math.sin(cell.number)
    sent = step * (1000 + 100 * len(cell.folder.name))
    return {
        "step": step,
        "epoch": step / 10,
        "seconds": step / 100,
        "train_loss": loss,
        "val_loss": 1.1 * loss,
        "val_accuracy": math.exp(-loss),
        "test_accuracy": 0.99 * math.exp(-loss),
        "consensus_distance": 0.1 / step,
        "payload_bytes": sent,
        "wire_bytes": 2 * sent,
    }
