"""Commands that read and change nothing: list, show, sys-info."""

from __future__ import annotations

from typing import Annotated

import typer

from commeff.experiments.cli.common import Json, Plugins, Settings, adopted, refusals, report


def list_choices(
    group: Annotated[
        str | None, typer.Argument(help="task, method, compressor, topology, optimizer or schedule.")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="A line on each; also under which of them a model may be split.")
    ] = False,
    plugin: Plugins = None,
    as_json: Json = False,
) -> None:
    """List what can be chosen: all groups, or one group with a line on each choice.

    * `commeff list`
    * `commeff list method`
    * `commeff list --long` a line on each choice of all groups, and which of them a model may be split under
    """
    with refusals():
        from commeff.experiments.config.describe import catalogue, overview

        if long:
            from commeff.experiments.config.composition import composition

            rows = composition(group, adopted(plugin))
        else:
            rows = catalogue(group, adopted(plugin)) if group else overview(adopted(plugin))
    report(rows, as_json)


def show(settings: Settings = None, plugin: Plugins = None, as_json: Json = False) -> None:
    """Show the configuration that settings lead to, and what the parts do that they name; or such parts alone.

    * `commeff show method=choco compressor=qsgd` a whole run: its keys, then both parts
    * `commeff show compressor=top_k` a part: its keys, equation, sizes and source
    * `commeff show topology=ring`
    * `commeff show task=cifar10`

    `???` stands for what has no default and has to be given.
    """
    with refusals():
        from commeff.experiments.config.describe import explain, shown

        config = shown(settings or [], adopted(plugin))
    if as_json:
        report(config, as_json)
    else:
        explain(config, settings or [])


def system_information(as_json: Json = False) -> None:
    """Show the machine, the versions and the commit: what every run writes into its env.json."""
    from commeff.experiments.run.system import sys_info

    report(sys_info(), as_json)
