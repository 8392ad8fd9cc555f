"""One cell of a grid in the lab: a process on each node, and this process attends to them.

The members are forks, so that nothing is imported again, and do what `commeff train` does in a process that a launcher
has started. They write the run's folder, and end with this process.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from commeff.experiments.grid.local.cell import GRACE, leave, to_log
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.measure.lab.network import Node
from commeff.experiments.run.launch.member import take_part
from commeff.experiments.run.launch.membership import Membership
from commeff.experiments.run.store import RunFolder

PORT = 29_500  # of rank 0's meeting place; every cell has the network for itself


def run_in_lab(nodes: Sequence[Node], cell: Cell, plugins: Sequence[str], line: Connection) -> None:
    """Run a cell on the nodes; whatever comes over the line means: stop with a checkpoint, its end: stop at once."""
    to_log(cell.folder)
    context, members = multiprocessing.get_context("fork"), list[BaseProcess]()
    for rank in range(cell.processes):
        process: BaseProcess = context.Process(target=_member, args=(nodes, rank, cell))
        process.start()
        members.append(process)
    threading.Thread(target=_listen, args=(line, members), daemon=True).start()
    for process in members:
        process.join()
    told = RunFolder(cell.folder).state not in ("queued", "running")  # how it ended, by the run itself
    leave(cell.folder, 0 if told else 1)


def _member(nodes: Sequence[Node], rank: int, cell: Cell) -> None:
    """What a fork does."""
    nodes[rank].enter()
    member = Membership(rank, cell.processes, 0, nodes[0].address, PORT, launcher="lab")
    take_part(member, lambda: dict(cell.config), cell.folder.parent, _told)


def _told(folder: Path, summary: Mapping[str, Any]) -> int:
    """Nobody reads a summary here; it is in the folder."""
    return 0


def _listen(line: Connection, members: Sequence[BaseProcess]) -> None:
    with suppress(EOFError, OSError):  # the runner is gone, and the network with it
        line.recv()
        for process in members:
            process.terminate()
        time.sleep(GRACE)
    for process in members:
        process.kill()
