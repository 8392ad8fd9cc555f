"""Topologies: pure functions of the step, how new ones are made out of old ones, and what arguments must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import gcd, lcm
from operator import index

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import diags_array, eye_array, kron

from commeff.topologies.files import read_matrices
from commeff.topologies.matrix import MixingMatrix


class Topology(ABC):
    """Who mixes with whom at every step: a pure function of the step, equal on every worker.

    Attributes
    ----------
    n : int
        Number of workers.
    period : int or None
        After how many steps the matrices repeat: 1 for a fixed graph, None if they never do.
    """

    n: int
    period: int | None

    @abstractmethod
    def at(self, step: int) -> MixingMatrix:
        """The mixing matrix of `step`. The same step gives the same matrix, whoever asks and in whatever order."""


@dataclass(frozen=True, eq=False)
class Periodic(Topology):
    """The given matrices in turn, for ever: step k mixes with ``matrices[k % period]``, always the same object."""

    n: int
    period: int
    matrices: tuple[MixingMatrix, ...] = field(repr=False)

    def at(self, step: int) -> MixingMatrix:
        return self.matrices[step % self.period]


@dataclass(frozen=True, eq=False)
class Redrawn(Topology):
    """A matrix of its own for every step: ``draw(step)``, a pure function.

    The latest matrix is kept, since the blocks of a step all ask for the same one.
    """

    n: int
    draw: Callable[[int], MixingMatrix] = field(repr=False)
    period: None = field(default=None, init=False)
    _latest: dict[int, MixingMatrix] = field(default_factory=dict, init=False, repr=False)

    def at(self, step: int) -> MixingMatrix:
        matrix = self._latest.get(step)
        if matrix is None:
            matrix = self.draw(step)
            self._latest.clear()
            self._latest[step] = matrix
        return matrix


def from_matrices(matrices: Iterable[MixingMatrix | ArrayLike] | str) -> Topology:
    """The topology that goes round the given mixing matrices, one a step; a single one is a fixed topology.

    When: weights of your own. A run's name knows a file by its path: give one that has changed another name.

    Parameters
    ----------
    matrices : iterable of MixingMatrix, array or scipy sparse, each (n, n), or str
        ``W[i, j]`` weighs what i receives from j; see `MixingMatrix` for what is refused. Or the path of a .npy file,
        (n, n) or (period, n, n).

    Raises
    ------
    ValueError
        If there is no matrix, or if they are over different numbers of workers.

    Examples
    --------
    >>> swap, rest = [[0.5, 0.5], [0.5, 0.5]], [[1, 0], [0, 1]]
    >>> topology = from_matrices([swap, rest])
    >>> topology.period, topology.at(4).received(0), topology.at(5).received(0)
    (2, {0: 0.5, 1: 0.5}, {0: 1.0})
    """
    sources = read_matrices(matrices) if isinstance(matrices, str) else matrices
    sequence = tuple(m if isinstance(m, MixingMatrix) else MixingMatrix(m) for m in sources)
    sizes = sorted({m.n for m in sequence})
    if len(sizes) != 1:
        raise ValueError(f"from_matrices: there must be at least one matrix, all of one size, got sizes {sizes}")
    return Periodic(n=sizes[0], period=len(sequence), matrices=sequence)


def lazy(topology: Topology) -> Topology:
    r"""Every worker keeps half of its own: :math:`(I + W) / 2`.

    Moves the eigenvalues of a symmetric W from [-1, 1] to [0, 1], which is what D2 asks of even rings, whose
    smallest eigenvalue is exactly the forbidden -1/3.

    When: a symmetric graph whose smallest eigenvalue a method does not bear (`d2`).

    Parameters
    ----------
    topology : Topology
        What is made lazy, fixed or changing.

    Examples
    --------
    >>> from commeff.topologies import ring
    >>> round(ring(8).at(0).lambda_min, 12), round(lazy(ring(8)).at(0).lambda_min, 12)
    (-0.333333333333, 0.333333333333)
    """
    return combined(_halfway, topology)


def hierarchical(groups: int, inner: Topology, outer: Topology) -> Topology:
    r"""Groups of workers: `inner` mixes the members of each group, then `outer` the members of equal place.

    Both in one step: :math:`W = W_{outer} \otimes W_{inner} = (W_{outer} \otimes I)(I \otimes W_{inner})`. Worker
    ``g * inner.n + m`` is member m of group g. Degrees multiply: (1 + d_inner)(1 + d_outer) - 1. If both are doubly
    stochastic so is W, with :math:`\rho = \max(\rho_{inner}, \rho_{outer})` if neither exceeds 1.

    When: machines of several workers: one graph inside, another between them.

    Parameters
    ----------
    groups : int
        Number of groups (nodes, data centres); must be `outer.n`.
    inner, outer : Topology
        Over the members of one group, and over the groups.

    Examples
    --------
    >>> from commeff.topologies import complete, ring
    >>> nodes = hierarchical(4, inner=complete(2), outer=ring(4))
    >>> nodes.n, round(nodes.at(0).rho, 12)
    (8, 0.333333333333)
    """
    if integer("hierarchical: groups", groups, 1) != outer.n:
        raise ValueError(f"hierarchical: groups must be outer.n = {outer.n}, got {groups}: outer mixes the groups")
    return combined(_kronecker, outer, inner)


def inner_outer(groups: int, inner: Topology, outer: Topology, inner_steps: int = 1) -> Topology:
    r"""Groups of workers that mix inside, `inner_steps` steps long, and then one step with those of other groups.

    :math:`I \otimes W_{inner}` at `inner_steps` steps, :math:`W_{outer} \otimes I` at the next, and again. Worker
    ``g * inner.n + m`` is member m of group g; `outer` mixes the members of equal place. Topologies that change go on
    where they were. What `hierarchical` does in one step, with its degree, is here taken apart.

    When: machines of several workers whose links outside are slow: they are used every `inner_steps` + 1 steps.

    Parameters
    ----------
    groups : int
        Number of groups (nodes, data centres); must be `outer.n`.
    inner, outer : Topology
        Over the members of one group, and over the groups.
    inner_steps : int
        Steps inside the groups between two outside, from 1.

    Examples
    --------
    >>> from commeff.topologies import complete, ring
    >>> nodes = inner_outer(4, inner=complete(2), outer=ring(4))
    >>> nodes.period, list(nodes.at(0).received(2)), list(nodes.at(1).received(2))
    (2, [2, 3], [0, 2, 4])
    """
    if integer("inner_outer: groups", groups, 1) != outer.n:
        raise ValueError(f"inner_outer: groups must be outer.n = {outer.n}, got {groups}: outer mixes the groups")
    draw = partial(_inside_or_outside, inner, outer, integer("inner_outer: inner_steps", inner_steps, 1))
    if inner.period is None or outer.period is None:
        return Redrawn(n=inner.n * outer.n, draw=draw)
    rounds = lcm(outer.period, inner.period // gcd(inner.period, inner_steps))
    return from_matrices(map(draw, range(rounds * (inner_steps + 1))))


def _inside_or_outside(inner: Topology, outer: Topology, inner_steps: int, step: int) -> MixingMatrix:
    turn, place = divmod(step, inner_steps + 1)
    if place == inner_steps:
        return MixingMatrix(kron(outer.at(turn).sparse(), eye_array(inner.n)))
    return MixingMatrix(kron(eye_array(outer.n), inner.at(turn * inner_steps + place).sparse()))


def combined(combine: Callable[..., MixingMatrix], *parts: Topology) -> Topology:
    """The topology whose matrix at every step is `combine` of those of the parts."""
    draw = partial(_combined_at, combine, parts)
    periods = [part.period for part in parts if part.period is not None]
    if len(periods) < len(parts):
        return Redrawn(n=draw(0).n, draw=draw)
    return from_matrices(map(draw, range(lcm(*periods))))


def _combined_at(combine: Callable[..., MixingMatrix], parts: tuple[Topology, ...], step: int) -> MixingMatrix:
    return combine(*(part.at(step) for part in parts))


def _halfway(matrix: MixingMatrix) -> MixingMatrix:
    return MixingMatrix((diags_array(np.ones(matrix.n)) + matrix.sparse()) / 2)


def _kronecker(outer: MixingMatrix, inner: MixingMatrix) -> MixingMatrix:
    return MixingMatrix(kron(outer.sparse(), inner.sparse()))


def integer(name: str, value: int, least: int) -> int:
    """`value` as an int of at least `least`.

    >>> integer("ring: n", 8, 1)
    8
    >>> integer("ring: n", 0, 1)
    Traceback (most recent call last):
    ValueError: ring: n must be at least 1, got 0
    """
    try:
        whole = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer of at least {least}, got {value!r}") from None
    if whole < least:
        raise ValueError(f"{name} must be at least {least}, got {whole}")
    return whole


def fraction(name: str, value: float) -> float:
    """`value` as a float in (0, 1].

    >>> fraction("od_equidyn: eta", 0.5)
    0.5
    """
    if not 0 < value <= 1:
        raise ValueError(f"{name} must lie in (0, 1], got {value}")
    return float(value)
