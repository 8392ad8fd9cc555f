"""Topologies that break a law, each in its own way."""

from dataclasses import dataclass, field

import numpy as np

from commeff.topologies import MixingMatrix, Topology, complete, from_matrices, ring


def sums_to_more(n: int) -> Topology:
    """Neither rows nor columns sum to 1."""
    return _Of(n, 1, np.eye(n) + np.roll(np.eye(n), 1, axis=1))


def sums_by_columns(n: int) -> Topology:
    """What is sent sums to 1, what is received does not."""
    weights = np.eye(n)
    weights[0] += 0.5 * (np.arange(n) > 0)
    weights -= 0.5 * np.diag(np.arange(n) > 0)
    return from_matrices([weights])


@dataclass(frozen=True, eq=False)
class _Of(Topology):
    n: int
    period: int | None
    weights: np.ndarray

    def at(self, step):
        return MixingMatrix(self.weights)


@dataclass(frozen=True, eq=False)
class _Counting(Topology):
    n: int
    period: None = None
    calls: list = field(default_factory=list)

    def at(self, step):
        self.calls.append(step)
        return (ring if len(self.calls) % 2 else complete)(self.n).at(0)


def counts_calls(n: int) -> Topology:
    """The matrix depends on how often it was asked for."""
    return _Counting(n)


@dataclass(frozen=True, eq=False)
class _Drawing(Topology):
    n: int
    period: None = None

    def at(self, step):
        keep = np.random.uniform()  # noqa: NPY002
        return MixingMatrix(keep * np.eye(self.n) + (1 - keep) / self.n)


def draws_globally(n: int) -> Topology:
    """Numpy's own generator."""
    return _Drawing(n)


@dataclass(frozen=True, eq=False)
class _Fixed(Topology):
    n: int
    period: int = 1

    def at(self, step):
        return (ring if step % 2 else complete)(self.n).at(0)


def lies_about_its_period(n: int) -> Topology:
    """Alternates, and says it is fixed."""
    return _Fixed(n)


def two_islands(n: int) -> Topology:
    """Even and odd workers never meet."""
    alike = (np.arange(n)[:, None] - np.arange(n)) % 2 == 0
    return from_matrices([alike / alike.sum(1, keepdims=True)])


def goes_round(n: int) -> Topology:
    """Everybody takes over the neighbour's vector."""
    return from_matrices([np.roll(np.eye(n), 1, axis=1)])


def another_size(n: int) -> Topology:
    """Always four workers."""
    return ring(4)


class _Symmetric(MixingMatrix):
    symmetric = True


def says_it_is_symmetric(n: int) -> Topology:
    """A directed ring that says it has no direction."""
    return from_matrices([_Symmetric((np.eye(n) + np.roll(np.eye(n), 1, axis=1)) / 2)])


class _Fast(MixingMatrix):
    rho = 0.0


def says_it_is_fast(n: int) -> Topology:
    """A ring that claims to average in one step."""
    return from_matrices([_Fast(ring(n).at(0).dense())])


class _Irregular(MixingMatrix):
    shifts = None


def hides_its_shifts(n: int) -> Topology:
    """A ring that is not known to be one."""
    return from_matrices([_Irregular(ring(n).at(0).dense())])
