"""What stands for an average where some workers lie: rules on all n vectors that a few of them cannot move far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import DenseMessage, Layout
from commeff.compressors.base import wide
from commeff.core.strategy import Stages, Stateful, Traits, Transform


def middle(rows: Tensor) -> Tensor:
    """(1, d): the median of each coordinate."""
    ordered, n = rows.sort(0).values, len(rows)
    return (ordered[(n - 1) // 2] + ordered[n // 2])[None] / 2


class RobustRule(Stateful, ABC):
    """(n, d) -> (1, d): one vector for all, of finite numbers in 32 bits or more."""

    def start(self, v: Tensor, n: int) -> None:
        """Allocate memory for n rows like those of v, (w, d), and refuse what n cannot withstand."""

    @abstractmethod
    def __call__(self, rows: Tensor) -> Tensor:
        """A vector that stands for their mean."""


class Median(RobustRule):
    """The median of each coordinate, of an even number the mean of the middle two (arXiv 1803.01498).

    >>> Median()(torch.tensor([[1.0, 5.0], [2.0, 1e9], [4.0, 6.0], [-1e9, 7.0]])).tolist()
    [[1.5, 6.5]]
    """

    def __call__(self, rows: Tensor) -> Tensor:
        return middle(rows)


class Outvoting(RobustRule):
    """A rule that withstands f liars among enough others.

    Parameters
    ----------
    f : int, optional
        How many may lie; as many as the rule withstands unless given.
    """

    def __init__(self, f: int | None = None) -> None:
        if f is not None:
            require.at_least(0, f=f)
        self.f = f

    def start(self, v: Tensor, n: int) -> None:
        most = self.most(n)
        if (self.f or 0) > most:
            raise ValueError(
                f"f must be at most {most} for a {type(self).__name__} of {n} vectors, got {self.f}: liars could "
                "outvote the others; take more workers, a smaller f or smaller buckets"
            )
        self._liars = most if self.f is None else self.f

    @abstractmethod
    def most(self, n: int) -> int:
        """The most liars among n that it withstands."""


class TrimmedMean(Outvoting):
    """The mean of each coordinate without its f largest and f smallest values, n > 2 f (arXiv 1803.01498).

    Parameters
    ----------
    f : int, optional
        How many may lie; as many as the rule withstands unless given. 0: the mean.
    """

    def most(self, n: int) -> int:
        return max(0, (n - 1) // 2)

    def __call__(self, rows: Tensor) -> Tensor:
        return rows.sort(0).values[self._liars : len(rows) - self._liars].mean(0, keepdim=True)


class Krum(Outvoting):
    """The mean of the m vectors with the least sum of squared distances to their n - f - 2 nearest others, n >= 2 f + 3
    (arXiv 1703.02757; m = 1 is Krum, m = n - f - 2 multi-Krum).

    Parameters
    ----------
    f : int, optional
        How many may lie; as many as the rule withstands unless given.
    multiple : bool
        Whether m is n - f - 2 and not 1.
    """

    traits = Traits(scope="whole")

    def __init__(self, f: int | None = None, multiple: bool = False) -> None:
        super().__init__(f)
        self.multiple = multiple

    def most(self, n: int) -> int:
        return max(0, (n - 3) // 2)

    def __call__(self, rows: Tensor) -> Tensor:
        near = max(1, len(rows) - self._liars - 2)  # of two vectors, the first: none is nearer to the other
        distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
        scores = distances.sort(1).values[:, 1 : near + 1].sum(1)
        return rows[scores.argsort(stable=True)[: near if self.multiple else 1]].mean(0, keepdim=True)


class GeometricMedian(RobustRule):
    """argmin_z sum_j |z - v_j| by `iterations` smoothed Weiszfeld steps from the coordinates' medians:
    z <- sum_j b_j v_j / sum_j b_j, b_j = 1 / max(smoothing, |z - v_j|) (arXiv 1912.13445).

    From the mean, as published, a few steps would be as far away as the farthest lie.

    Parameters
    ----------
    iterations : int
        The steps.
    smoothing : float
        The least distance that is divided by.
    """

    traits = Traits(scope="whole")

    def __init__(self, iterations: int = 8, smoothing: float = 1e-6) -> None:
        require.positive(smoothing=smoothing)
        require.at_least(1, iterations=iterations)
        self.iterations, self.smoothing = iterations, smoothing

    def __call__(self, rows: Tensor) -> Tensor:
        estimate = middle(rows)
        for _ in range(self.iterations):
            near = 1 / (rows - estimate).norm(dim=1, keepdim=True).clamp(min=self.smoothing)
            estimate = (near * rows).sum(0, keepdim=True) / near.sum()
        return estimate


class CentredClipping(RobustRule):
    """z <- z + (1/n) sum_j (v_j - z) min(1, tau / |v_j - z|), `iterations` times, from the last step's z, 0 at first
    (arXiv 2012.10333).

    Memory: centre = z, one row.

    Parameters
    ----------
    tau : float
        How far one vector may pull, times n.
    iterations : int
        The steps.
    """

    traits = Traits(scope="whole")
    shared: ClassVar[tuple[str, ...]] = ("centre",)

    def __init__(self, tau: float = 1.0, iterations: int = 3) -> None:
        require.positive(tau=tau)
        require.at_least(1, iterations=iterations)
        self.tau, self.iterations = tau, iterations

    def start(self, v: Tensor, n: int) -> None:
        self.centre = v.new_zeros(1, v.shape[1])

    def __call__(self, rows: Tensor) -> Tensor:
        centre = self.centre
        for _ in range(self.iterations):
            offsets = rows - centre
            pull = (self.tau / offsets.norm(dim=1, keepdim=True).clamp(min=1e-30)).clamp(max=1)
            centre = centre + (pull * offsets).mean(0, keepdim=True)
        self.centre = centre
        return centre.clone()


class Robust(Transform):
    """v_i -> R(v_1, ..., v_n), at every worker: a rule in the place of the mean.

    With buckets of s, R sees the means of s vectors each, n/s of them, dealt anew at every step: what honest workers
    have differs less then, while as many buckets as liars are spoilt (arXiv 2006.09365).
    A number that is not finite counts as 0, so that no lie is past all rules. Rules compute in 32 bits or more.
    Memory: the rule's. Sends: v_i, one message a call, which everybody gathers: (n - 1) times on the wire.

    Parameters
    ----------
    rule : RobustRule
        R.
    bucketing : int
        s; 1: none.
    """

    traits = Traits(
        agrees=True,
        needs_everyone="a robust rule counts on n workers, of which f lie; give participation=1, or another method",
    )

    def __init__(self, rule: RobustRule, bucketing: int = 1) -> None:
        require.count(bucketing=bucketing)
        self.rule, self.bucketing = rule, bucketing

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        buckets, rest = divmod(communicator.n, self.bucketing)
        if rest:
            raise ValueError(
                f"bucketing must divide the {communicator.n} workers, got {self.bucketing}: buckets are equally large"
            )
        self._single = communicator.n == 1
        if not self._single:
            self.rule.start(v[:0].to(wide(v.dtype)), buckets)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        message = yield communicator.post_gather(DenseMessage.of(vectors))
        rows = message.decode().to(wide(message.dtype))
        if self.bucketing > 1:
            order = communicator.random("buckets").uniform(len(rows), shared=True, dtype=torch.float64)[0].argsort()
            rows = rows[order.to(rows.device)].unflatten(0, (-1, self.bucketing)).mean(1)
        result = rows if self._single else self.rule(rows.nan_to_num(0.0, 0.0, 0.0))
        return result.to(vectors.dtype).expand_as(vectors)
