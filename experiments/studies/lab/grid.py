"""`commeff lab run`: the cells of a grid one after another in the lab, on one network after another.

Each network has a store of its own, ROOT/NETWORK, like any grid's: finished cells are skipped and others go on. Beside
its runs lies cluster.yaml, the description of the network for the model, with the latency that was measured on it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from commeff.cluster import Cluster
from commeff.experiments.grid.command import Outcome, Request, run
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.studies.lab.network import INTERFACE, LAUNCHER, NETWORKS, LinkShape, Node, lab
from commeff.files import appearing
from commeff.require import did_you_mean

CLUSTER = "cluster.yaml"


def shapes(names: str) -> list[LinkShape]:
    """The networks of a list of names.

    >>> [shape.name for shape in shapes("1gbit,slow_link")]
    ['1gbit', 'slow_link']
    >>> shapes("2gbit")
    Traceback (most recent call last):
    ValueError: --networks must be of 100mbit, 200mbit, 1gbit, slow_link, got '2gbit'; did you mean 1gbit?
    """
    unknown = [name for name in names.split(",") if name not in NETWORKS]
    if unknown:
        near = did_you_mean(unknown[0], NETWORKS)
        raise ValueError(f"--networks must be of {', '.join(NETWORKS)}, got {unknown[0]!r}{near}")
    return [NETWORKS[name] for name in names.split(",")]


def nodes_of(request: Request) -> int:
    """The number of nodes that all cells of a grid run on."""
    grid = request.grid
    counts = sorted({point.settings.get("nproc", "1") for point in grid.points})
    if len(counts) != 1 or not counts[0].isdecimal() or int(counts[0]) < 2:
        raise ValueError(
            f"nproc of all cells of {request.file.name} must be one number of at least 2, got {', '.join(counts)}: "
            "a lab runs one process on each node; write nproc: 8, say, into the base of the grid"
        )
    return int(counts[0])


def run_on(request: Request, shape: LinkShape, root: Path) -> Outcome:
    """Run the cells that are not finished on one network."""
    from commeff.experiments.studies.lab.bench import latency

    count, store = nodes_of(request), root / shape.name
    with lab(shape, count) as nodes:
        place = store / CLUSTER
        if not place.exists():
            store.mkdir(parents=True, exist_ok=True)
            with appearing(place) as draft:
                shape.cluster(count, latency(nodes)).save(draft)
        check_same(place, shape, count)
        on_lab = replace(request, store=store, limits=Limits(jobs=1), launch=partial(run_in_lab, nodes))
        return run(on_lab)


def check_same(place: Path, shape: LinkShape, nodes: int) -> None:
    """Refuse a store whose runs were made on another network."""
    stored, described = Cluster.load(place), shape.cluster(nodes)
    if (stored.gpus, stored.inter.bandwidth) != (described.gpus, described.inter.bandwidth):
        raise ValueError(
            f"{place.parent} must hold runs of this network, got another one in {place.name}; choose another --store"
        )


def run_in_lab(nodes: Sequence[Node], cell: Cell, plugins: Sequence[str], line: Connection) -> None:
    """Run a cell, a fork of its process on each node.

    A message over `line` asks it to stop with a checkpoint. When `line` closes the network is gone with the runner, and
    the cell ends at once.
    """
    from commeff.experiments.grid.local.cell import run_cell  # with torch, which only the cell needs
    from commeff.experiments.run.local import Forks

    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE  # of every node
    run_cell(
        cell.config, cell.folder, line, Forks(LAUNCHER, lambda rank: nodes[rank].enter()), orphaned=0.0, plugins=plugins
    )
