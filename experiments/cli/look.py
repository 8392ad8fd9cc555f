"""Commands that read and change nothing: list, show, sys-info."""

from __future__ import annotations

from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, entries, refusals, report


def list_choices(
    group: Annotated[
        str | None, typer.Argument(help="task, method, compressor, topology, optimizer or schedule.")
    ] = None,
    long: Annotated[
        bool,
        typer.Option(
            "--long",
            help="A line on each, then what it sends, remembers and refuses, how models may be split, and papers.",
        ),
    ] = False,
    parameters: Annotated[
        int, typer.Option(metavar="D", min=1, help="With --long: of the model that methods are priced for.")
    ] = 1_000_000,
    workers: Annotated[int, typer.Option(min=2, help="With --long: how many share it.")] = 16,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List what can be chosen: all groups, or one group with a line on each choice.

    * `commeff list`
    * `commeff list method`
    * `commeff list --long` a line on each choice of all groups, and what it sends, remembers and refuses
    * `commeff list method --long --parameters 125000000 --workers 32` the same for a model of yours
    """
    with refusals():
        from commeff.experiments.catalogue.describe import catalogue, overview

        if long:
            from commeff.experiments.catalogue.composition import NOTE, composition

            details = composition(group, adopted(plugin), parameters, workers)
            note = NOTE.format(parameters=parameters, workers=workers)
        else:
            rows = catalogue(group, adopted(plugin)) if group else overview(adopted(plugin))
    if long and not as_json:
        entries(details, note)
    else:
        report(details if long else rows, as_json)


def show(settings: Settings = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Show the configuration that settings lead to, and what the parts do that they name; or such parts alone.

    * `commeff show method=choco compressor=qsgd` a whole run: its keys, then both parts
    * `commeff show compressor=top_k` a part: its keys, equation, sizes and source
    * `commeff show topology=ring`
    * `commeff show task=cifar10`

    `???` stands for what has no default and has to be given.
    """
    with refusals():
        from commeff.experiments.catalogue.describe import explain, shown

        config = shown(settings or [], adopted(plugin))
    if as_json:
        report(config, as_json)
    else:
        explain(config, settings or [])


def system_information(as_json: Json = False) -> None:
    """Show the machine, the versions and the commit: what every run writes into its env.json."""
    from commeff.experiments.run.system import sys_info

    report(sys_info(), as_json)
