"""Commands that test, measure and export: check, doctor, bench, export."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, adopted, deaths, refusals, report, table, try_file, try_folder

if TYPE_CHECKING:
    from commeff.experiments.measure.comm import Measurements

MOST = 256  # processes of `bench comm`

bench = typer.Typer(
    no_args_is_help=True,
    help="Measure this machine, and the library against its limits; the exit code is 3 if a ratio is outside its "
    "tolerance. All but `comm` need a checkout of the repository.",
)


def check(
    target: Annotated[str, typer.Argument(metavar="FILE[:NAME]", show_default=False)],
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Run the laws on your plug-in: every compressor, method, topology and task in FILE, or only NAME; the exit code
    is 1 if a law is broken.

    Each setting is tested at its default and at another value of its type; a value refused with a ValueError is
    skipped. A method is tested with two of each of its parts, and a compressor with `samples()` on these. If settings
    are given, only those are tested; they may name a part of another file, given with --plugin.

    * `commeff check mine.py`
    * `commeff check mine.py:SignOfMean compressor.keep=48`
    * `commeff check mine.py:my_method method.period=3 topology=torus optimizer=adamw`
    * `commeff check method.py compressor=sign_of_mean --plugin mine.py`
    """
    with refusals():
        from commeff.experiments.config.plugins import choices, file_and_name

        file, _ = file_and_name(target)
        if file.endswith(".py") and not Path(file).is_file():
            raise ValueError(f"no plug-in file {file}")
        choices(file)
        others = adopted(plugin)

        from commeff.experiments.config.check import check_plugin

        verdicts = check_plugin(target, settings or [], others)
    if as_json:
        typer.echo(json.dumps([asdict(verdict) for verdict in verdicts], indent=2))
    else:
        for name in dict.fromkeys(verdict.name for verdict in verdicts):
            of_part = [verdict for verdict in verdicts if verdict.name == name]
            for verdict in of_part:
                if verdict.state == "broken":
                    typer.echo(f"{name}: BROKEN {verdict.law}: {verdict.sentence}")
                if verdict.state == "noted":
                    typer.echo(f"{name}: note, {verdict.law}: {verdict.sentence}")
            count = sum(verdict.state != "noted" for verdict in of_part)
            for state, words in (("holds", "hold"), ("waits", "cannot be judged until those hold")):
                laws = [verdict.law for verdict in of_part if verdict.state == state]
                if laws:
                    typer.echo(f"{name}: {len(laws)} of {count} laws {words}: {', '.join(laws)}")
    raise typer.Exit(1 if any(verdict.state == "broken" for verdict in verdicts) else 0)


def doctor(
    nproc: Annotated[
        int | None, typer.Option(help="Processes to start: one per GPU, or 4 on the CPU, by default; not in a job.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; cuda by default where there is a GPU.")] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Compare with this cluster, by default with the measured profile.")
    ] = None,
    profile: Annotated[Path | None, typer.Option(help="Write a cluster file, for use with --cluster.")] = None,
    as_json: Json = False,
) -> None:
    """Examine this machine, or a job of torchrun or srun, in about three minutes; the exit code is 1 if a law is
    broken. The output is one text, to paste into an issue.

    It has the processes and their devices, the links between these, the bandwidth of collectives beside that of a
    cluster's description, ten steps of every method against float64 on the host, and ten losses of a model that the
    processes share in each way.

    * `commeff doctor --profile mine.yaml`
    * `torchrun --nproc-per-node 8 -m commeff doctor --cluster h100_400g`
    """
    with refusals(), deaths():
        if nproc is not None and not 1 <= nproc <= MOST:
            raise ValueError(f"--nproc must be at least 1 and at most {MOST}, got {nproc}")
        try_file("--profile", profile)

        import torch

        from commeff.cluster.places import read_place
        from commeff.experiments.measure import doctor as examination
        from commeff.experiments.measure.profile import write

        expected = read_place({"cluster": cluster}).cluster if cluster else None
        result = examination.run(nproc, device or ("cuda" if torch.cuda.device_count() else "cpu"))
        if result is None:
            return
        measured = result.cluster(profile.stem if profile else "the fit")
        typer.echo(json.dumps(asdict(result), indent=2) if as_json else "\n".join(result.lines(expected or measured)))
        if profile is not None:
            if measured is None:
                raise ValueError(
                    "--profile needs at least 2 processes, equally many on each host, with consecutive ranks, got "
                    f"{[place['host'] for place in result.places]}: nothing was written"
                )
            write(measured, profile, [f"Measured by `commeff doctor` on {len(result.places)} processes; SI units."])
    raise typer.Exit(1 if any(not verdict.holds for verdict in result.verdicts) else 0)


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a checkpoint.", show_default=False)],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder.", show_default=False)],
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Export the model of a language run to Hugging Face's transformers.

    * `commeff export runs/diloco-language-0f3a --to models/mine`

    The folder gets model.safetensors and config.json, which LlamaForCausalLM or GPT2LMHeadModel loads with
    `from_pretrained`. The model is the mean of the workers' parameters in the last checkpoint, as in evaluations. In
    Python, `commeff.experiments.tasks.language.load(folder)` reads such folders, also from other sources. A model that
    training went on from (model=FOLDER) keeps its tokenizer. This needs the package safetensors: pip install
    'commeff[safetensors]'. Existing files are never overwritten.
    """
    with refusals():
        try_folder("--to", to)
        if to.exists():
            raise ValueError(f"--to must be a new folder, got {to}, which is there: nothing is overwritten")
        if not run.is_dir():
            raise ValueError(f"there is no run {run}: give the folder that `commeff train` has printed")
        adopted(plugin)

        from commeff.boxes import ColumnMap
        from commeff.compressors import Layout
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
        task = part(record.config, "task")
        model = task.model()
        family(model)
        layout = Layout.of([(name, tuple(p.shape)) for name, p in trainable(model).items()])
        checkpoints = Checkpoints(run / "checkpoints")
        state = checkpoints.load()
        if state is None:
            raise ValueError(f"{run} has no checkpoint: train it first")
        with checkpoints.understood():
            mean, steps = mean_model(state, ColumnMap.of(layout)), int(state["step"])
        write_row(model, mean, layout)
        to.mkdir(parents=True)
        save(model, to, getattr(task, "origin", None))
    report({"folder": str(to), "parameters": len(mean), "steps": steps}, as_json)


@bench.command()
def comm(
    nproc: Annotated[int | None, typer.Option(help="Processes to start, 4 by default; not under torchrun.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write all numbers, hardware and commit to this file.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Write a cluster file, for use with --cluster.")] = None,
    as_json: Json = False,
) -> None:
    """Measure links between processes, collectives, and compressors, on CPU tensors over gloo.

    The output has latency and bandwidth of each pair by ping-pong, algbw and busbw as defined by nccl-tests, and
    compressors on one thread beside a copy. In a job: `torchrun ... -m commeff bench comm --profile cluster.yaml`.
    """
    with refusals(), deaths():
        if nproc is not None and not 2 <= nproc <= MOST:
            raise ValueError(f"--nproc must be at least 2 and at most {MOST}, got {nproc}: a link has two ends")
        try_file("--csv", csv)
        try_file("--profile", profile)

        from commeff.experiments.measure import comm as links
        from commeff.experiments.measure.profile import write, write_rows
        from commeff.experiments.run.system import cpu_name, git_commit

        measured = links.run(nproc)
        if measured is None:
            return
        rows = links.rows(measured)
        count = len(measured.between.hosts)
        machines = len(set(measured.between.hosts))
        command = "commeff bench comm" + (f" --nproc {nproc}" if nproc else "")
        where = f"made by `{command}` on {cpu_name()}, {count} processes, {machines} host(s)"
        if csv is not None:
            write_rows(rows, csv, command)
        if profile is not None:
            cluster = measured.cluster(profile.stem)
            notes = [
                f"Measured, {where}, at commit {git_commit()}; SI units; links while all processes exchange at once."
            ]
            if machines == 1:
                notes.append("One host: the link between nodes (inter) is that inside it and was not measured.")
            write(cluster, profile, notes)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    tables(measured)
    if profile is not None:
        for timing, modelled in links.agreement(measured.between, cluster):
            typer.echo(
                f"{timing.operation} of {write_size(timing.size)}: measured {1e3 * timing.seconds:.4g} ms, modelled on "
                f"the profile {1e3 * modelled:.4g} ms ({modelled / timing.seconds:.2f})"
            )


def tables(measured: Measurements) -> None:
    """Print the measurements as tables."""
    pairs = measured.between.pairs
    spread = {
        "latency (us)": [1e6 * pair.link.latency for pair in pairs],
        "bandwidth (GB/s)": [pair.link.bandwidth / 1e9 for pair in pairs],
    }
    table(
        ["link", *(f"{pair.first}-{pair.second}" for pair in pairs), "min", "median", "max"],
        [
            [name, *(f"{value:.3g}" for value in (*values, min(values), median(values), max(values)))]
            for name, values in spread.items()
        ],
    )
    table(
        ["operation", "size", "time (us)", "algbw (GB/s)", "busbw (GB/s)"],
        [
            [t.operation, write_size(t.size), *(f"{v:.3g}" for v in (1e6 * t.seconds, t.algbw / 1e9, t.busbw / 1e9))]
            for t in sorted(measured.between.timings, key=lambda timing: timing.operation)
        ],
    )
    table(
        ["compressor", "encode (GB/s)", "decode (GB/s)", "encode / copy", "decode / copy", "vector / message"],
        [
            [
                speed.name,
                *(f"{rate / 1e9:.3g}" for rate in (speed.encode, speed.decode)),
                *(f"{share:.3f}" for share in (speed.encode_share, speed.decode_share)),
                f"{speed.expansion:.3g}",
            ]
            for speed in measured.speeds
        ],
    )
    peaks = ", ".join(f"{name} {peak / 1e9:.3g} GFLOP/s" for name, peak in measured.gpu.peak_flops.items())
    typer.echo(f"copy {measured.copy / 1e9:.3g} GB/s of input; matrix products on one thread: {peaks}")


def write_size(size: int) -> str:
    """A size in binary units.

    >>> write_size(4), write_size(2048), write_size(2**26)
    ('4 B', '2 KiB', '64 MiB')
    """
    for unit, power in (("MiB", 20), ("KiB", 10)):
        if size >= 2**power:
            return f"{size / 2**power:g} {unit}"
    return f"{size} B"
