"""Schedule-free rules: gradients are taken at one point, and another is the result."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from commeff import require
from commeff.optimizers.adaptive import adam_options
from commeff.optimizers.rule import Rule, advance, zeros


class ScheduleFree(Rule):
    """A rule whose parameters y are where gradients are taken, and whose result is x = (y - (1 - b) z) / b."""

    @abstractmethod
    def interpolation(self, options: dict[str, Any]) -> float:
        """b, the share of x in y."""

    def averaged(self, y: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> Tensor:
        """x, what is to be evaluated."""
        b = self.interpolation(options)
        return (y - (1 - b) * memory["z"]) / b

    def interpolate(self, y: Tensor, direction: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        """z = z - lr direction, x = (1 - c) x + c z, y = (1 - b) z + b x, where c is the share of lr^2 in their sum."""
        lr, b, z = options["lr"], self.interpolation(options), memory["z"]
        memory["weights"] += lr**2
        share = lr**2 / float(memory["weights"]) if lr else 0.0
        y.lerp_(z, share).sub_(direction, alpha=lr * (1 - b + b * share))
        z.sub_(direction, alpha=lr)


class ScheduleFreeSGD(ScheduleFree):
    """Schedule-free SGD: constant learning rates end where a decaying schedule would, at an average.

        z = z - lr g(y);  x = (1 - c) x + c z;  y = (1 - b) z + b x,  c = lr^2 / (sum of lr^2 so far)

    Workers hold y, which is what methods average and mix; runs evaluate x. A schedule may warm up, and need not decay.

    Memory: z, as large as the parameters.

    When: the number of steps is not known beforehand.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate; larger than of SGD with momentum.
    momentum : float
        b, in (0, 1).
    weight_decay : float
        L2 at y: weight_decay y is added to the gradient.

    References
    ----------
    Defazio et al., The road less scheduled, arXiv 2405.15682, equations 3 to 5.

    Examples
    --------
    >>> y = torch.nn.Parameter(torch.zeros(1))
    >>> optimizer = ScheduleFreeSGD([y], lr=1.0, momentum=0.5)
    >>> for _ in range(2):                                      # z: 1, 2;  x: 1, 1.5
    ...     y.grad = -torch.ones(1)
    ...     optimizer.step()
    >>> y.item(), optimizer.averaged(y.data, optimizer.state[y], optimizer.param_groups[0]).item()
    (1.75, 1.5)
    """

    def __init__(self, params: Any, lr: float = 1.0, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        require.within("(0, 1)", "gradients are taken between z and x", momentum=momentum)
        require.at_least(0, weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def interpolation(self, options: dict[str, Any]) -> float:
        return float(options["momentum"])

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"z": zeros(x).copy_(x), "weights": torch.tensor(0.0, dtype=torch.float64)}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        self.interpolate(x, gradient.add(x, alpha=options["weight_decay"]), memory, options)


class ScheduleFreeAdamW(ScheduleFree):
    """Schedule-free AdamW: Adam's second moment scales the steps of z; the momentum is the distance of y from z.

        v = b2 v + (1 - b2) g^2;  z = z - lr (g / (sqrt(v / (1 - b2^t)) + eps) + weight_decay y)
        x = (1 - c) x + c z;  y = (1 - b1) z + b1 x,  c = lr^2 / (sum of lr^2 so far)

    Workers hold y, which is what methods average and mix; runs evaluate x. A schedule may warm up, and need not decay.

    The bias of v is corrected in v, as in the authors' later code. The printed Algorithm 1 multiplies lr by
    sqrt(1 - b2^t) instead, so that its first steps count less in c, and decay weights less. That code's
    c is of the largest lr so far, here it is of the step's.

    Memory: z and v, each as large as the parameters.

    When: instead of AdamW with a schedule, where the number of steps is not known beforehand.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate; larger than AdamW's, by one to ten times.
    betas : (float, float)
        b1, in (0, 1), and b2, in [0, 1).
    eps : float
        Is added to the root.
    weight_decay : float
        Decoupled, at y.

    References
    ----------
    Defazio et al., The road less scheduled, arXiv 2405.15682, Algorithm 1, corrected as in the authors' later code.

    Examples
    --------
    >>> y = torch.nn.Parameter(torch.zeros(1))
    >>> y.grad = torch.tensor([-7.0])
    >>> ScheduleFreeAdamW([y], lr=0.5).step()
    >>> round(y.item(), 6)
    0.5
    """

    def __init__(
        self,
        params: Any,
        lr: float = 2.5e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        require.within("(0, 1)", "gradients are taken between z and x", betas=betas[0])
        super().__init__(params, adam_options(lr, betas, eps, weight_decay))

    def interpolation(self, options: dict[str, Any]) -> float:
        return float(options["betas"][0])

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        counts = {"step": torch.tensor(0.0), "weights": torch.tensor(0.0, dtype=torch.float64)}
        return {"z": zeros(x).copy_(x), "square": zeros(x), **counts}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        t, second = advance(memory), options["betas"][1]
        square = memory["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        direction = gradient / (square / (1 - second**t)).sqrt_().add_(options["eps"])
        self.interpolate(x, direction.add_(x, alpha=options["weight_decay"]), memory, options)
