"""Adam whose momentum is sent and not its gradients: 1-bit Adam, and 0/1 Adam with local steps.

Both give directions: the local step is plain SGD, whose rate is Adam's. The rest of Adam is here, since what is sent is
in the middle of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.properties import require_one_rate, require_plain_sgd
from commeff.core.strategy import LocalStep, Stages, Timetable, Traits, Transform, stages_of
from commeff.transforms.averaging import Average


class OneBitAdam(Transform):
    """m <- beta1 m + (1 - beta1) M(g);  v <- beta2 v + (1 - beta2) M(g)^2;  -> m / (sqrt(v) + eps), until step
    `warmup`; then v stays and m <- T(beta1 m + (1 - beta1) g_i), T a compressed average   (arXiv 2102.02888,
    Algorithm 1).

    Memory: momentum = m and variance = v, equal at all workers. Sends what M sends, then what T does.

    Parameters
    ----------
    compressed : Transform
        T, with error feedback.
    warmup : int
        The steps of Adam, from which v is known.
    betas : (float, float)
        beta1 and beta2, each in [0, 1).
    eps : float
        What keeps directions finite, above 0.
    """

    rows = ("momentum", "variance")
    traits = Traits(agrees=True, common=("momentum", "variance"))

    def __init__(self, compressed: Transform, warmup: int, betas: tuple[float, float], eps: float) -> None:
        require.count(warmup=warmup)
        check_adam(betas, eps)
        self.average, self.compressed, self.warmup, self.betas, self.eps = Average(), compressed, warmup, betas, eps

    def timetable(self) -> Timetable:
        return super().timetable().join(Timetable(changes=frozenset({self.warmup})))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.momentum, self.variance = torch.zeros_like(v), torch.zeros_like(v)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        beta1, beta2 = self.betas
        if communicator.step < self.warmup:
            mean = yield from stages_of(self.average, vectors, communicator.child("average"))
            self.momentum = torch.lerp(mean, self.momentum, beta1)
            self.variance = torch.lerp(mean.square(), self.variance, beta2)
        else:
            momentum = torch.lerp(vectors, self.momentum, beta1)
            self.momentum = (yield from stages_of(self.compressed, momentum, communicator.child("compressed"))).clone()
        return directions(self.momentum, self.variance, self.eps)


@dataclass(frozen=True)
class Thinning:
    """Steps before `freeze` that come ever more rarely: kappa + 1 in a row, then kappa of every 2nd step, of every 4th,
    and so on.

    Parameters
    ----------
    freeze, kappa : int
        At least 1.

    Examples
    --------
    >>> [step for step in range(20) if Thinning(freeze=15, kappa=2).due(step)]
    [0, 1, 2, 4, 6, 10, 14]
    """

    freeze: int = 400
    kappa: int = 16

    def __post_init__(self) -> None:
        require.count(freeze=self.freeze, kappa=self.kappa)

    def _gap(self, step: int) -> tuple[int, int]:
        """The steps from one to the next, and where these gaps begin."""
        doublings = (step // self.kappa + 1).bit_length() - 1
        return 2**doublings, self.kappa * (2**doublings - 1)

    def due(self, step: int) -> bool:
        """Whether it is one of them."""
        gap, begin = self._gap(step)
        return step < self.freeze and (step - begin) % gap == 0

    def timetable(self) -> Timetable:
        """When they begin to come at other distances."""
        begins = {self.kappa * (2**i - 1) for i in range(self.freeze.bit_length())}
        changes = frozenset({self.freeze, *(begin for begin in begins if begin < self.freeze)})
        return Timetable(self._gap(self.freeze - 1)[0], changes=changes)


@dataclass(frozen=True)
class Doubling:
    """Every step before `begin`, from then on every H-th, H doubling from 1 every `doubling` steps up to `longest`.

    Parameters
    ----------
    doubling, longest : int
        At least 1.

    Examples
    --------
    >>> [step for step in range(20) if Doubling(doubling=4, longest=4).due(step, begin=3)]
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 14, 18]
    """

    doubling: int = 400
    longest: int = 16

    def __post_init__(self) -> None:
        require.count(doubling=self.doubling, longest=self.longest)

    def due(self, step: int, begin: int) -> bool:
        """Whether it is one of them."""
        doublings = max(0, step - begin) // self.doubling
        period = min(self.longest, 2 ** min(doublings, self.longest.bit_length()))
        return step < begin or (step - begin + 1) % period == 0

    def timetable(self, begin: int) -> Timetable:
        """When H changes."""
        changes = {begin + i * self.doubling for i in range(self.longest.bit_length() + 1)}
        return Timetable(self.longest, changes=frozenset(changes))


class ZeroOneAdam(Transform):
    """m_i <- beta1 m_i + (1 - beta1) g_i;  u_i <- u_i + gamma m_i;  -> m_i / (sqrt(v) + eps), a step of each worker's
    own, and at some steps u <- T(u_i), m_i <- u / (sum of gamma), x_i <- x - u / (sqrt(v) + eps), x being where all
    were at the last of these; u_i <- 0   (arXiv 2202.06009, Algorithm 1).

    v is updated at some steps, which average the gradient and send nothing else; T averages u at some of the others.
    Memory: momentum = m_i; variance = v, equal at all workers; moved = u_i; rates, the sum of gamma. Sends a gradient
    for v, what T sends for u.

    Parameters
    ----------
    local : LocalStep
        The step whose learning rate is gamma.
    compressed : Transform
        T, with error feedback.
    updates : Thinning
        When v is updated.
    meetings : Doubling
        When u is averaged: from the step on after which v stays.
    betas : (float, float)
        beta1 and beta2, each in [0, 1).
    eps : float
        What keeps directions finite, above 0.
    """

    rows = ("momentum", "variance", "moved")
    shared = ("rates",)
    traits = Traits(
        needs_everyone="a worker that misses an average never learns where the others went; give participation=1"
    )

    def __init__(
        self,
        local: LocalStep,
        compressed: Transform,
        updates: Thinning,
        meetings: Doubling,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        check_adam(betas, eps)
        require.instance(Thinning, updates=updates)
        require.instance(Doubling, meetings=meetings)
        self._local, self.average, self.compressed = local, Average(), compressed
        self.updates, self.meetings, self.betas, self.eps = updates, meetings, betas, eps

    def timetable(self) -> Timetable:
        return super().timetable().join(self.updates.timetable(), self.meetings.timetable(self.updates.freeze))

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        require_one_rate(self._local)
        require_plain_sgd(
            self._local, "workers meet again by undoing what it has moved, which must be lr times the direction"
        )
        self.momentum, self.variance, self.moved = (torch.zeros_like(v) for _ in range(3))
        self.rates = 0.0

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        beta1, beta2 = self.betas
        gamma = self._local.lr
        updates = self.updates.due(communicator.step)
        if updates:
            vectors = yield from stages_of(self.average, vectors, communicator.child("average"))
            self.variance = torch.lerp(vectors.square(), self.variance, beta2)
        self.momentum = torch.lerp(vectors, self.momentum, beta1)
        if updates or not gamma:
            return directions(self.momentum, self.variance, self.eps)
        before = self.moved
        self.moved, self.rates = torch.add(before, self.momentum, alpha=gamma), self.rates + gamma
        if not self.meetings.due(communicator.step, self.updates.freeze):
            return directions(self.momentum, self.variance, self.eps)
        mean = yield from stages_of(self.compressed, self.moved, communicator.child("compressed"))
        self.momentum = mean / self.rates
        self.moved, self.rates = torch.zeros_like(before), 0.0
        return directions((mean - before) / gamma, self.variance, self.eps)


def directions(moments: Tensor, variance: Tensor, eps: float) -> Tensor:
    """m / (sqrt(v) + eps), and 0 where v is 0: what never had a gradient must not move by a message's error."""
    return torch.where(variance > 0, moments / (variance.sqrt() + eps), 0.0)


def check_adam(betas: tuple[float, float], eps: float) -> None:
    """Refuse constants that Adam cannot have."""
    require.within("[0, 1)", **{f"beta{i}": beta for i, beta in enumerate(betas, 1)})
    require.positive("it keeps directions finite where gradients are 0", eps=eps)
