"""Commands that make runs: train."""

from __future__ import annotations

from pathlib import Path

import typer

from experiments.cli.common import Json, Plugins, Settings, Store, adopted, refusals, report


def train(
    settings: Settings = None, store: Store = Path("runs"), plugin: Plugins = None, as_json: Json = False
) -> None:
    """Train one method on one task.

    * `commeff train method=mem_sgd compressor=top_k compressor.ratio=0.01 optimizer.lr=0.1`
    * `commeff train method=dsgd topology=ring workers=32 task.alpha=0.1 model=cnn`
    * `commeff train --plugin mine.py method=mine method.period=3`

    A finished run is not repeated, and Ctrl-C stops with a checkpoint: the same command goes on, to the same end.
    """
    with refusals():
        from experiments.config import compose

        config = compose(settings or [], adopted(plugin))

        from experiments.progress import reporter
        from experiments.runner import RunFailed, run_one
        from experiments.store import FINISHED, RunFolder, check_version, finite, run_id

        check_version(store)
        folder = store / run_id(config)
        if RunFolder(folder).state in FINISHED:
            typer.echo(f"{folder} is finished already; its summary:", err=True)
        try:
            with reporter(config["steps"], folder) as progress:
                summary = run_one(config, folder, progress)
        except RunFailed as error:
            typer.echo(f"commeff: {error}", err=True)
            raise typer.Exit(1) from None
    report({"run": str(folder), **{name: finite(value) for name, value in summary.items()}}, as_json)
    if summary["state"] == "killed":
        typer.echo(
            f"interrupted at step {summary['steps']} with a checkpoint; the same command goes on from there", err=True
        )
        raise typer.Exit(130)
