"""The communicator of a part of the vectors, or of some of the workers."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from commeff.communicator.communicator import Communicator
from commeff.compressors.places import Places

C = TypeVar("C", bound=Communicator)


def view(
    communicator: C, columns: int | Places | None = 0, *, home: int | None = None, among: Tensor | None = None
) -> C:
    """The communicator for what works on some columns, with a server elsewhere, or for some workers alone.

    Parameters
    ----------
    communicator : Communicator
        Which stays as it is.
    columns : int or Places, optional
        The vectors are the columns from this one on; with places, those that lie there in the whole row; with None,
        vectors of their own, whose columns are counted from 0. It decides which random numbers a column gets.
    home : int, optional
        The worker with the server's row: one shard of a sharded server.
    among : (n,) bool tensor, optional
        The workers that remain, of all: a run of fewer workers with the same ids. Averages are theirs, the weight of a
        neighbour that is left out goes to the diagonal, and nobody else is billed. The server remains in any case.

    Examples
    --------
    >>> some = view(Communicator(workers=4), among=torch.tensor([True, False, True, True]))
    >>> some.n, some.workers
    (3, [0, 2, 3])
    """
    if not isinstance(columns, int):
        communicator = communicator._view(("places", columns), _start=0, _foreign=True, _places=columns)
    elif columns:
        communicator = communicator._view(columns, _start=communicator._start + columns)
    if home is not None:
        communicator = communicator._view(("home", home), _home=home)
    if among is None:
        return communicator
    remaining = among if communicator._among is None else among & communicator._among
    counts = torch.cat([torch.zeros(1, dtype=torch.long), remaining.cumsum(0)])
    bounds = counts[communicator._hosts].tolist()
    if bounds[-1] == communicator.n:
        return communicator
    workers = [worker for worker in communicator.workers if remaining[worker]]
    return communicator._copy(n=bounds[-1], workers=workers, _among=remaining, _bounds=bounds)
