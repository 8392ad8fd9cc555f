"""The command that gives a trained model away: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, adopted, refusals, report, try_folder


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has a checkpoint.", show_default=False)],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder.", show_default=False)],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Write the model of a language run as Hugging Face's transformers read it.

    * `commeff export runs/diloco-language-0f3a --to models/mine`

    The folder gets model.safetensors and config.json, which LlamaForCausalLM or GPT2LMHeadModel loads with
    `from_pretrained`. The model is the mean of the workers' parameters in the last checkpoint, the one that evaluations
    are of. In Python, `commeff.experiments.tasks.language.load(folder)` reads such a folder, theirs too. Needs the
    package safetensors: pip install 'commeff[safetensors]'. Nothing is overwritten.
    """
    with refusals():
        try_folder("--to", to)
        if to.exists():
            raise ValueError(f"--to must be a new folder, got {to}, which is there: nothing is overwritten")
        if not run.is_dir():
            raise ValueError(f"there is no run {run}: give the folder that `commeff train` has printed")
        adopted(plugin)

        from commeff.compressors import Layout
        from commeff.compressors.boxes import Whereabouts
        from commeff.experiments.config.build import part, strategy
        from commeff.experiments.report.data.records import read_record
        from commeff.experiments.run.origins import inside
        from commeff.experiments.tasks.language.families import family
        from commeff.experiments.tasks.language.huggingface import save
        from commeff.replicas.stacked import trainable, write_row
        from commeff.training.checkpoint import Checkpoints
        from commeff.training.run_state import mean_model

        record = read_record(run)
        if not record.config:
            raise ValueError(f"{run} has no configuration: train it first")
        if strategy(inside({**record.config, "task": None}, run)).evaluates_elsewhere:
            raise ValueError(
                f"{run} must end where it was trained, got a schedule-free optimizer or an asynchronous method: its "
                "checkpoint holds where gradients were taken, which is not the result; train with method=psgd, "
                "optimizer=adamw and schedule=cosine"
            )
        model = part(record.config, "task").model()
        family(model)
        layout = Layout.of([(name, tuple(p.shape)) for name, p in trainable(model).items()])
        checkpoints = Checkpoints(run / "checkpoints")
        state = checkpoints.load()
        if state is None:
            raise ValueError(f"{run} has no checkpoint: train it first")
        with checkpoints.understood():
            mean, steps = mean_model(state, Whereabouts.of(layout)), int(state["step"])
        write_row(model, mean, layout)
        to.mkdir(parents=True)
        save(model, to)
    report({"folder": str(to), "parameters": len(mean), "steps": steps}, as_json)
