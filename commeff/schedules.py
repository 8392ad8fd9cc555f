"""Learning-rate schedules that torch lacks, as `torch.optim.lr_scheduler.LRScheduler`s."""

from __future__ import annotations

import math

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from commeff import require

__all__ = ["InverseTime", "WarmupStableDecay"]


class InverseTime(LRScheduler):
    """The rate falls as one over time: lr_k = lr / (1 + k / delay), k = 0, 1, ...

    With lr = theta / (mu delay) it is theta / (mu (k + delay)), under which SGD goes on to the optimum of a strongly
    convex function at the rate 1 / k in spite of noise (arXiv 1906.02702, section 3).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Whose rates are moved.
    delay : float
        Steps after which the rate is half of what it was, more than 0.
    last_epoch : int
        Steps that were taken, less one, where a run goes on.

    Examples
    --------
    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    >>> schedule, rates = InverseTime(optimizer, delay=2), []
    >>> for _ in range(3):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step()
    ...     schedule.step()
    >>> [round(rate, 3) for rate in rates]
    [1.0, 0.667, 0.5]
    """

    def __init__(self, optimizer: Optimizer, delay: float = 10.0, last_epoch: int = -1) -> None:
        require.positive(delay=delay)
        self.delay = delay
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The rates of this step."""
        return [rate / (1 + self.last_epoch / self.delay) for rate in self.base_lrs]


class WarmupStableDecay(LRScheduler):
    """The rate rises over W steps, stays, and falls to 0 over the last D of T steps: WSD.

    lr_k / lr = (k + 1) / W before step W, 1 - sqrt((k - (T - D)) / D) after step T - D, and 1 between. A run can be
    continued from any checkpoint of the flat part, whatever T was (arXiv 2404.06395; the square root is that of
    arXiv 2405.18392, section 3).

    Parameters
    ----------
    optimizer : torch.optim.Optimizer
        Whose rates are moved.
    total_steps : int
        T, the steps of the run.
    warmup : float
        W / T, a share of the steps.
    decay : float
        D / T, a share of the steps; with the warm-up at most 1.
    last_epoch : int
        Steps that were taken, less one, where a run goes on.

    Examples
    --------
    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    >>> schedule, rates = WarmupStableDecay(optimizer, 10, warmup=0.2, decay=0.4), []
    >>> for _ in range(10):
    ...     rates += schedule.get_last_lr()
    ...     optimizer.step()
    ...     schedule.step()
    >>> [round(rate, 2) for rate in rates]
    [0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.29, 0.13]
    """

    def __init__(
        self, optimizer: Optimizer, total_steps: int, warmup: float = 0.05, decay: float = 0.2, last_epoch: int = -1
    ) -> None:
        require.count(total_steps=total_steps)
        require.within("[0, 1]", warmup=warmup, decay=decay)
        require.within("[0, 1]", "they are shares of the same steps", **{"warmup + decay": warmup + decay})
        self.total_steps = total_steps
        self.warmup = warmup
        self.decay = decay
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float | Tensor]:
        """The rates of this step."""
        rising, falling = self.warmup * self.total_steps, self.decay * self.total_steps
        late = self.last_epoch - (self.total_steps - falling)
        share = min(1.0, (self.last_epoch + 1) / rising) if rising else 1.0
        if late > 0:
            share = 1 - math.sqrt(min(1.0, late / falling))
        return [rate * share for rate in self.base_lrs]
