"""One cell of a grid in the lab: a fork of the cell's process on each node. All ends with that process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from multiprocessing.connection import Connection

from commeff.experiments.grid.local.cell import run_cell
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.local import Forks
from commeff.experiments.studies.lab.network import INTERFACE, LAUNCHER, Node


def run_in_lab(nodes: Sequence[Node], cell: Cell, plugins: Sequence[str], line: Connection) -> None:
    """Run a cell, its processes on the nodes.

    A message over `line` asks it to stop with a checkpoint. When `line` closes the network is gone with the runner, and
    the cell ends at once.
    """
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE  # of every node
    run_cell(
        cell.config, cell.folder, line, Forks(LAUNCHER, lambda rank: nodes[rank].enter()), orphaned=0.0, plugins=plugins
    )
