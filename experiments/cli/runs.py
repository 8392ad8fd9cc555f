"""Commands that make runs: train."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import typer

from commeff.experiments.cli.common import (
    Json,
    Plugins,
    Settings,
    Store,
    adopted,
    complain,
    refusals,
    report,
    try_folder,
)


def train(
    settings: Settings = None, store: Store = Path("runs"), plugin: Plugins = None, as_json: Json = False
) -> None:
    """Train one method on one task.

    * `commeff train method=mem_sgd compressor=top_k compressor.ratio=0.01 optimizer.lr=0.1`
    * `commeff train method=dsgd topology=ring workers=32 task.alpha=0.1 model=cnn`
    * `commeff train --plugin mine.py method=mine method.period=3`

    A finished run is not repeated. Ctrl-C stops with a checkpoint, and the same command resumes to the same result.

    Under `torchrun` or `srun` all processes make one run:

    * `torchrun --nproc-per-node 8 -m commeff train method=dsgd topology=ring workers=64`
    * `srun --ntasks 16 commeff train method=dsgd topology=ring workers=64`
    """
    with refusals():
        from commeff.experiments.run.launch.membership import membership

        member = membership(os.environ)

        def composed() -> dict[str, Any]:
            from commeff.experiments.config.compose import compose

            return compose(settings or [], adopted(plugin))

        tell = partial(_report_end, as_json)
        if member:
            from commeff.experiments.run.member import take_part

            take_part(member, composed, store, tell)
        try_folder("--store", store)
        raise typer.Exit(_train_locally(composed(), store, tell))


def _train_locally(config: Mapping[str, Any], store: Path, tell: Callable[[Path, Mapping[str, Any]], int]) -> int:
    """A run in this process, or on processes that it starts."""
    from commeff.experiments.run.naming import run_id
    from commeff.experiments.run.store import RunFolder, check_version

    check_version(store)
    folder = store / run_id(config)
    if (finished := RunFolder(folder).result(config)) is not None:
        typer.echo(f"{folder} is finished already; its summary:", err=True)
        return tell(folder, finished)
    from commeff.experiments.run.progress import reporter
    from commeff.experiments.run.runner import RunFailed, run_one  # with torch

    try:
        with reporter(config, folder) as progress:
            summary = run_one(config, folder, progress)
    except RunFailed as error:
        complain(str(error))
        return 1
    return tell(folder, summary)


def _report_end(as_json: bool, folder: Path, summary: Mapping[str, Any]) -> int:
    """Print a summary and return the exit code."""
    from commeff.experiments.run.store import finite

    report({"run": str(folder), **{name: finite(value) for name, value in summary.items()}}, as_json)
    if summary["state"] != "killed":
        return 0
    typer.echo(
        f"interrupted at step {summary['steps']} with a checkpoint; the same command goes on from there", err=True
    )
    return 130
