"""Who waits for whom: finishing times of workers that compute at different speeds.

With c_i the compute time of worker i in a step, s the communication time and N_i those it hears from (itself included),

    t_i  <-  max over j in N_i of (t_j + c_j)  +  s,

a matrix product in max-plus algebra (Baccelli et al., "Synchronization and Linearity", 1992). An average over all makes
everybody wait for the slowest in every step; gossip passes a delay on by one neighbourhood a step; local steps wait for
nobody until they average.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from commeff import require
from commeff.topologies import MixingMatrix

Heard = MixingMatrix | bool  # whom workers hear from in a step: the senders of a matrix; True is all, False nobody
Times = NDArray[np.float64]


def finish_times(compute: ArrayLike, heard: Sequence[Heard], communication: ArrayLike = 0.0) -> Times:
    """(steps, n) when each worker has ended each step, all having started at 0.

    Parameters
    ----------
    compute : (steps, n) seconds.
    heard : for each step whom the workers hear from.
    communication : seconds, one for all steps, (steps,), or (steps, n).

    >>> compute = [[1.0, 3.0], [3.0, 1.0]]
    >>> [float(finish_times(compute, [all, all]).max()) for all in (True, False)]         # sum of max, max of sum
    [6.0, 4.0]
    """
    durations = np.asarray(compute, dtype=np.float64)
    if durations.ndim != 2 or len(heard) != len(durations):
        raise ValueError(
            f"compute must be (steps, workers) seconds for {len(heard)} steps, got shape {durations.shape}"
        )
    added = np.asarray(communication, dtype=np.float64)
    added = np.broadcast_to(added[:, None] if added.ndim == 1 else added, durations.shape)
    ends, now = np.empty_like(durations), np.zeros(durations.shape[1])
    for step, whom in enumerate(heard):
        now = waited(now + durations[step], whom) + added[step]
        ends[step] = now
    return ends


def waited(ready: Times, heard: Heard) -> Times:
    """(n,) when each worker has heard from everyone it hears from, itself included.

    >>> from commeff import topologies
    >>> waited(np.array([5.0, 1.0, 2.0, 3.0]), topologies.ring(4).at(0)).tolist()
    [5.0, 5.0, 3.0, 5.0]
    """
    if not isinstance(heard, MixingMatrix):
        return np.full_like(ready, ready.max()) if heard else ready
    if heard.n != ready.size:
        raise ValueError(f"the mixing matrix must have the {ready.size} workers of the run, got {heard.n}")
    messages, latest = heard.off_diagonal.tocoo(), ready.copy()
    np.maximum.at(latest, messages.row, ready[messages.col])
    return latest


def drawn(mean: float, spread: float, steps: int, workers: int, seed: int | Sequence[int] = 0) -> Times:
    """(steps, workers) log-normal compute times with the given mean; spread is the standard deviation over the mean.

    >>> times = drawn(mean=0.1, spread=0.2, steps=1000, workers=50)
    >>> round(float(times.mean()), 3), round(float(times.std() / times.mean()), 2)
    (0.1, 0.2)
    """
    require.at_least(0, mean=mean, spread=spread)
    variance = np.log1p(spread**2)
    noise = np.random.default_rng(seed).standard_normal((steps, workers))
    return np.asarray(mean * np.exp(np.sqrt(variance) * noise - variance / 2))
