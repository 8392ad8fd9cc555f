"""The GPUs of this machine, dealt to the cells that run at the same time. Nothing here imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.system import gpu_names

VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The names by which CUDA knows the GPUs that this process may use: indices, or the UUIDs that SLURM gives.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2,GPU-8f"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (['2', 'GPU-8f'], [])
    """
    if VISIBLE in environment:
        return [name.strip() for name in environment[VISIBLE].split(",") if name.strip()]
    return [str(index) for index in range(len(gpu_names()))]


class Gpus:
    """How many cells compute on each GPU; a new cell takes those with the fewest.

    With `-j 8` on four GPUs every GPU has two cells of one process each.

    Parameters
    ----------
    names : of the GPUs, as CUDA_VISIBLE_DEVICES has them.

    Examples
    --------
    >>> from pathlib import Path
    >>> cells = [Cell(i, {}, None, {}, {"device": "cuda", "nproc": 1}, Path(f"run{i}")) for i in range(3)]
    >>> gpus = Gpus(["0", "1"])
    >>> [gpus.take(cell) for cell in cells]
    [('0',), ('1',), ('0',)]
    >>> gpus.release(cells[1])
    >>> gpus.take(cells[1])
    ('1',)
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._cells = Counter(dict.fromkeys(names, 0))
        self._devices_of: dict[Cell, tuple[str, ...]] = {}

    def take(self, cell: Cell) -> tuple[str, ...]:
        """The GPUs of a cell, one for each of its processes."""
        fewest = sorted(self._cells, key=self._cells.__getitem__)  # stable: the first of equally loaded ones
        self._devices_of[cell] = tuple(fewest[: cell.processes])
        self._cells.update(self._devices_of[cell])
        return self._devices_of[cell]

    def release(self, cell: Cell) -> None:
        """Free the GPUs of a cell that has ended."""
        self._cells.subtract(self._devices_of.pop(cell, ()))
