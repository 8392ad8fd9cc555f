"""Learning-rate schedules that torch lacks, as `torch.optim.lr_scheduler.LRScheduler`s."""

from __future__ import annotations

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from commeff import require

__all__ = ["InverseTime"]


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
