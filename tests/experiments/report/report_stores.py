"""Stores forged for the report's tests: what runs write, with numbers that are known beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.compose import compose

STEPS = (10, 20, 30, 40)
ENVIRONMENT = {
    "host": "here",
    "cpu": "abacus",
    "cores": "2",
    "threads": "1",
    "gpus": "none",
    "torch": "2.0",
    "commit": "c",
}
WIRE = {"psgd": 4000, "dsgd": 1000, "choco": 100}  # bytes a step
TOPOLOGY = {
    "dsgd": {"_target_": "commeff.topologies.ring", "n": 4},
    "choco": {"_target_": "commeff.topologies.one_peer_exponential", "n": 4},
}


@dataclass(frozen=True)
class Forged:
    """A run: what labels it, how it stands, and the accuracies it ends with."""

    method: str
    seed: int = 0
    lr: str = "0.1"
    state: str = "done"
    accuracy: float = 0.9
    test: float = 0.9
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # of a real configuration, composed from them
    workers: int = 4

    @property
    def name(self) -> str:
        if self.settings:
            return f"{self.method}-digits-{self.lr}-{self.workers}-{self.seed}"
        return f"{self.method}-digits-{self.lr}-{self.seed}"

    @property
    def config(self) -> dict[str, Any]:
        if self.settings:
            numbers = [f"workers={self.workers}", f"seed={self.seed}", f"steps={STEPS[-1]}"]
            return compose([f"method={self.method}", *self.settings, *numbers])
        topology = {"topology": TOPOLOGY[self.method]} if self.method in TOPOLOGY else {}
        return {
            "task": {
                "_target_": "commeff.experiments.tasks.Digits",
                "model": "mlp",
                "dtype": "float32",
                "seed": self.seed,
            },
            "method": {"_target_": f"commeff.methods.{self.method}"},
            **topology,
            "optimizer": {"_target_": "torch.optim.SGD", "lr": float(self.lr)},
            "workers": 4,
            "nproc": 1,
            "steps": STEPS[-1],
            "seed": self.seed,
        }

    @property
    def curve(self) -> list[dict[str, float]]:
        """Accuracy rises evenly from a quarter of its end; half the evaluations if the run did not get to its end."""
        done = STEPS if self.state == "done" else STEPS[: len(STEPS) // 2]
        return [
            {
                "step": step,
                "epoch": step / 10,
                "seconds": step / 100,
                "train_loss": 2.0 / step,
                "val_loss": 3.0 / step,
                "val_accuracy": self.accuracy * step / STEPS[-1],
                "consensus_distance": 0.0 if self.method == "psgd" else 1.0 / step,
                "payload_bytes": step * 1000,
                "wire_bytes": step * WIRE.get(self.method, 1000),
                "samples": step * 32 * self.workers,
            }
            for step in done
        ]

    def write(self, store: Path) -> None:
        """Make its folder; one that is queued has none."""
        if self.state == "queued":
            return
        folder = store / self.name
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(yaml.safe_dump(self.config, sort_keys=False))
        (folder / "env.json").write_text(json.dumps(ENVIRONMENT | dict(self.environment)))
        status = {"state": self.state, "step": self.curve[-1]["step"], "steps": STEPS[-1], "time": 1e9 + self.seed}
        status |= {"host": "elsewhere", "time": 4e9} if self.state == "running" else {}  # it lives, for 70 years
        (folder / "status.json").write_text(json.dumps(status))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in self.curve))
        if self.state in ("done", "diverged"):
            final = {"state": self.state, "steps": self.curve[-1]["step"], **self.curve[-1], "test_accuracy": self.test}
            (folder / "summary.json").write_text(json.dumps(final))
        if self.state == "failed":
            (folder / "error.txt").write_text('Traceback:\n  File "f.py", line 1, in f\nValueError: no such <graph>\n')


def forge(store: Path, runs: Sequence[Forged], **head: Any) -> Path:
    """A store with these runs, and the grid file that planned them."""
    store.mkdir(parents=True, exist_ok=True)
    for run in runs:
        run.write(store)
    cells = [
        {
            "run": run.name,
            "seed": run.seed,
            "labels": {"method": run.method, "topology": "", "optimizer.lr": run.lr}
            | ({"workers": run.workers} if len({each.workers for each in runs}) > 1 else {}),
            "settings": [f"method={run.method}", f"optimizer.lr={run.lr}", f"seed={run.seed}"],
        }
        for run in runs
    ]
    select = {"over": ["optimizer.lr"], "by": "val_accuracy"}
    grid = {"version": 1, "name": "forged", "title": "Forged", "command": "commeff grid forged.yaml", "select": select}
    (store / "grids").mkdir(exist_ok=True)
    (store / "grids" / "forged.json").write_text(json.dumps(grid | {"cells": cells} | head))
    return store


def half_finished() -> list[Forged]:
    """Three methods, two rates, three seeds, at every stage there is."""
    runs = [
        Forged(method, seed, lr, accuracy=level + bonus + seed / 100, test=level)
        for method, level in (("psgd", 0.9), ("dsgd", 0.88), ("choco", 0.8))
        for lr, bonus in (("0.1", 0.0), ("0.2", 0.02))
        for seed in range(3)
    ]
    states = {7: "failed", 8: "diverged", 12: "running", 13: "killed", 14: "timeout", 16: "oom", 17: "queued"}
    return [
        Forged(run.method, run.seed, run.lr, states.get(i, "done"), run.accuracy, run.test)
        for i, run in enumerate(runs)
    ]
