"""Read-only commands: list, show, sys-info."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, entries, refusals, report


def list_choices(
    group: Annotated[
        str | None, typer.Argument(help="task, method, compressor, topology, optimizer, schedule or cluster.")
    ] = None,
    long: Annotated[
        bool,
        typer.Option("--long", help="Also messages, memory, restrictions, model splits and papers of each choice."),
    ] = False,
    parameters: Annotated[
        int, typer.Option(metavar="D", min=1, help="With --long: parameters of the model for which methods are priced.")
    ] = 1_000_000,
    workers: Annotated[int, typer.Option(min=2, help="With --long: number of workers.")] = 16,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List the choices: all groups, or one group with one line per choice.

    * `commeff list`
    * `commeff list method`
    * `commeff list --long` all choices of all groups with their messages, memory and restrictions
    * `commeff list method --long --parameters 125000000 --workers 32` the same for a model of this size
    """
    with refusals():
        from commeff.experiments.catalogue.describe import catalogue, overview

        rows: Any  # a line of each choice, with --long several
        if not long:
            rows = catalogue(group, adopted(plugin)) if group else overview(adopted(plugin))
        elif group == "cluster":
            raise ValueError("--long must be left out of clusters, got both: commeff show cluster=NAME says all of one")
        else:
            from commeff.experiments.catalogue.composition import NOTE, composition

            rows = composition(group, adopted(plugin), parameters, workers)
    if long and not as_json:
        entries(rows, NOTE.format(parameters=parameters, workers=workers))
    else:
        report(rows, as_json)


def show(settings: Settings = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Show the complete configuration of a run and describe its parts, or describe single parts.

    * `commeff show method=choco compressor=qsgd` a run: all keys, then both parts
    * `commeff show compressor=top_k` one part: its keys, equation, sizes and source
    * `commeff show topology=ring`
    * `commeff show task=cifar10`
    * `commeff show cluster=h100_10g` a cluster for modelled seconds, or your YAML file

    `???` marks a required value without default.
    """
    with refusals():
        clusters = [word.partition("=")[2] for word in settings or [] if word.startswith("cluster=")]
        if clusters:
            if len(settings or []) > 1:
                raise ValueError("cluster= must stand alone, got other settings too: a run has none; show them apart")
            from commeff.experiments.catalogue.clusters import explained

            fields, facts = explained(clusters[0])
            if as_json:
                report({**fields, **facts}, as_json)
            else:
                notes = (f"# {what}: {fact}" for what, fact in facts.items())
                typer.echo(yaml.safe_dump(fields, sort_keys=False) + "\n".join(notes))
            return
        from commeff.experiments.catalogue.describe import explain, shown

        config = shown(settings or [], adopted(plugin))
    if as_json:
        report(config, as_json)
    else:
        explain(config, settings or [])


def system_information(as_json: Json = False) -> None:
    """Show the machine, versions and commit, as each run writes them to its env.json."""
    from commeff.experiments.run.system import sys_info

    report(sys_info(), as_json)
