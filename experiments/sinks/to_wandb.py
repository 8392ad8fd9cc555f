"""Weights & Biases: project WANDB_PROJECT (commeff unless set), a run a run. WANDB_MODE=offline needs no network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.sinks.rows import Sink, flat


class _WandbRun:
    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        import wandb

        quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "commeff"),
            id=folder.name,
            name=folder.name,
            resume="allow",
            dir=str(folder),
            config=flat(config),
            settings=quiet,
        )

    def write(self, step: int, row: Mapping[str, float]) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


def open_sink(folder: Path, config: Mapping[str, Any], step: int) -> Sink:
    """The run of the same name, which goes on where there is one; steps that it has are kept as they are."""
    return _WandbRun(folder, config)
