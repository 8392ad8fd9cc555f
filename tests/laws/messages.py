"""Messages as a strategy would send them, for recursions that are written out."""

from __future__ import annotations

from commeff import Communicator
from commeff.compressors import Natural
from tests.laws.paths import N


def natural(v, step, path=("parameters", "up")):
    """C(v) with the randomness of a strategy's first transform."""
    communicator = Communicator(workers=N, seed=1)
    communicator.step = step
    for name in path[:-1]:
        communicator = communicator.child(name)
    return Natural().compress(v, communicator.random(path[-1])).decode()
