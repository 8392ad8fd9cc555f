"""Commands on data: data prepare, data verify, data partition, data tokenize."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from commeff.experiments.cli.common import (
    Json,
    Plugins,
    Settings,
    adopted,
    format_value,
    refusals,
    report,
    table,
    try_file,
    try_folder,
)

app = typer.Typer(
    no_args_is_help=True,
    help="""Install and verify data sets, and show their partition over workers.

    The data folder is `data_dir=`, or by default the folder in the environment variable COMMEFF_DATA.
    """,
)

Name = Annotated[str, typer.Argument(help="A data set; `commeff data verify` lists them.")]
Source = Annotated[Path | None, typer.Option("--from", metavar="PATH", help="Your archive, folder or file.")]
DataFolder = Annotated[Path | None, typer.Option(metavar="FOLDER", help="The data folder.  [default: COMMEFF_DATA]")]


def prepare(
    name: Name,
    source: Source = None,
    to: DataFolder = None,
    download: Annotated[bool, typer.Option("--download", help="Download the official files.")] = False,
) -> None:
    """Install a data set in the data folder from your files, and verify their MD5 sums.

    * `commeff data prepare cifar10 --from cifar-10-python.tar.gz --to data`
    * `commeff data prepare cifar10_jpeg --from cifar10-jpeg.tar.xz` unpacks the images into the cache
    * `commeff data prepare fashion_mnist --download --to data`
    """
    with refusals():
        from commeff.experiments.data.prepare import prepare as put

        installed = put(name, source, to, download)
    typer.echo(str(installed.folder))
    for file in installed.unverified:
        typer.echo(f"{file} has another MD5 sum than the known copy; good copies differ, so it may be right", err=True)


def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    data_dir: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Show the data sets in the data folder, and whether their MD5 sums are right.

    * `commeff data verify --data-dir DATA`
    * `commeff data verify cifar10 fashion_mnist`

    The exit code is 1 if a file is corrupt, or if a named data set cannot be used.
    """
    with refusals():
        from commeff.experiments.data.folder import data_folder
        from commeff.experiments.data.verify import CORRUPT
        from commeff.experiments.data.verify import verify as look

        folder = data_folder(str(data_dir) if data_dir else None, "data sets", "or give --data-dir")
        if not folder.is_dir():
            raise ValueError(f"no folder {folder}: correct --data-dir or COMMEFF_DATA")
        findings = look(folder, names or [])
    if as_json:
        typer.echo(json.dumps([asdict(finding) | {"usable": finding.usable} for finding in findings], indent=2))
    else:
        heads = ["name", "data set", "state", "checksums", "folder"]
        table(heads, [[f.name, f.title, f.state, f.checksums, f.folder] for f in findings], texts=range(len(heads)))
    bad = [f for f in findings if f.checksums == CORRUPT or (names and not f.usable)]
    raise typer.Exit(1 if bad else 0)


def partition(
    settings: Settings = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it: .png, .pdf or .svg.")] = None,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """Show the number of samples of each class on each worker, and the heterogeneity.

    * `commeff data partition task=cifar10 workers=8 task.alpha=0.3`
    * `commeff data partition task=digits task.partition=shards --figure shards.pdf`

    Heterogeneity is the total variation distance of a worker's class distribution to that of all samples, averaged over
    workers: 0 if all have the same distribution, 1 - 1/n if each of n workers has its own class.
    """
    with refusals():
        from commeff.experiments.config.compose import compose

        try_file("--figure", figure, figure=True)
        config = compose(settings or [], adopted(plugin))

        from commeff.experiments.config.build import build
        from commeff.experiments.data.skew import class_counts, draw, heterogeneity
        from commeff.experiments.tasks import Supervised
        from commeff.experiments.tasks.partition import require_classes

        task = build(config).task
        if not isinstance(task, Supervised):
            raise ValueError(f"{type(task).__name__} has no labelled samples; choose task=digits, cifar10, ...")
        require_classes(task.train.targets.numpy(), "data partition")
        counts = class_counts(task.train.targets.numpy(), task.partition.indices)
        names, skew = task.class_names(), heterogeneity(counts)
        title = f"{task.label}, {config['workers']} workers, heterogeneity {skew:.3f}"
        if figure is not None:
            draw(counts, names, title, figure)
    if as_json:
        workers = [{"samples": int(row.sum()), "counts": row.tolist()} for row in counts]
        typer.echo(
            json.dumps({"data": task.label, "classes": names, "workers": workers, "heterogeneity": skew}, indent=2)
        )
        return
    typer.echo(title)
    rows = [[str(worker), format_value(int(row.sum())), *map(str, row)] for worker, row in enumerate(counts)]
    table(["worker", "samples", *names], rows, texts=())


def tokenize(
    text: Annotated[str, typer.Argument(help="tinyshakespeare, wikitext-2, or a text file.")],
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the tokens.", show_default=False)],
    vocabulary: Annotated[int, typer.Option(metavar="N", help="Number of tokens; 256 means bytes.")] = 256,
    documents: Annotated[
        str, typer.Option(metavar="REGEX", help="A document begins at each matching line.", show_default=False)
    ] = "",
    tokenizer: Annotated[Path | None, typer.Option(metavar="PATH", help="A tokenizer.json, or its folder.")] = None,
    separator: Annotated[
        str, typer.Option(metavar="TOKEN", help="Its token that begins a document.", show_default=False)
    ] = "",
    data_dir: DataFolder = None,
    as_json: Json = False,
) -> None:
    """Tokenize a text once for all runs.

    * `commeff data tokenize tinyshakespeare --vocabulary 1024 --to tokens/shakespeare`
    * `commeff data tokenize wikitext-2 --vocabulary 4096 --documents '^ = [^=]+ = $' --to tokens/wikitext`
    * `commeff train task=language task.data=tokens/shakespeare` trains on them

    * `commeff data tokenize mine.txt --tokenizer models/gpt2 --to tokens/mine` takes the tokens of a model that is
      trained further: `task.model=models/gpt2`

    A vocabulary above 256 is learned on the training text by byte-level BPE, as in GPT-2. This needs the package
    tokenizers: pip install 'commeff[tokenizers]'. A short text may have fewer tokens.

    The folder gets train.bin, val.bin and test.bin in nanoGPT's layout (uint16, or uint32 beyond 65,536 tokens;
    memory-mapped, so they may be larger than memory), tokenizer.json, and tokens.json, whose digest is part of a run's
    name. With --documents each document begins with a separator token, and task.documents=true restricts attention to
    documents. Existing files are never overwritten.
    """
    with refusals():
        try_folder("--to", to)

        from commeff.experiments.data.texts import text_files

        folder = str(data_dir) if data_dir else None
        text_files(text, folder)

        from commeff.experiments.tasks.language.tokenise import tokenise

        made = tokenise(text, folder, to, vocabulary, documents, tokenizer, separator)
    facts = {
        "folder": str(made.folder),
        "vocabulary": made.vocabulary,
        "separator": "none" if made.separator is None and not as_json else made.separator,
        **{f"{split} tokens": count for split, count in made.tokens.items()},
        "bytes per token": made.bytes_per_token,
    }
    report(facts, as_json)


for command in (prepare, verify, partition, tokenize):
    app.command(command.__name__)(command)
