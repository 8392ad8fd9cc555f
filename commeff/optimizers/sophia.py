"""Sophia: momentum divided by the curvature of each coordinate, and clipped."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from torch import Tensor

from commeff import require
from commeff.optimizers.rule import Rule, zeros


class Sophia(Rule):
    """A rule that learns the Hessian's diagonal from estimates that somebody gives it, every `interval` steps."""

    kind: ClassVar[Literal["gauss_newton", "hessian"]]

    def __init__(
        self,
        params: Any,
        lr: float = 3e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.04,
        weight_decay: float = 0.1,
        interval: int = 10,
    ) -> None:
        for beta in betas:
            require.within("[0, 1)", betas=beta)
        require.within("(0, inf]", rho=rho)
        require.at_least(0, weight_decay=weight_decay)
        require.at_least(1, interval=interval)
        options = {"lr": lr, "betas": tuple(betas), "rho": rho, "weight_decay": weight_decay, "interval": interval}
        super().__init__(params, options)

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"average": zeros(x), "hessian": zeros(x)}

    def learn(self, estimate: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        """h = b2 h + (1 - b2) estimate."""
        memory["hessian"].lerp_(estimate, 1 - options["betas"][1])

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        average = memory["average"].lerp_(gradient, 1 - options["betas"][0])
        scale = memory["hessian"].clamp(min=0).mul_(options["rho"]).add_(1e-15)
        x.mul_(1 - options["lr"] * options["weight_decay"])
        x.sub_((average / scale).clamp_(-1, 1), alpha=options["lr"])


class SophiaG(Sophia):
    """Sophia-G: momentum over an average of Gauss-Newton estimates of the curvature, each coordinate clipped.

        m = b1 m + (1 - b1) g;  every `interval` steps h = b2 h + (1 - b2) b s^2
        x = x - lr clip(m / (rho max(h, 0) + 1e-15), 1),  m = h = 0 at first

    where s is the gradient of a batch of b labels that the model draws itself: an estimate costs a gradient more, and
    the task must offer such labels (digits, images, language). Where a method averages or mixes gradients, the
    estimates are averaged over all workers, dense; else each worker has its own.

    Memory: m and h, each as large as the parameters.

    When: language models, instead of AdamW.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate: how far a coordinate moves at the most.
    betas : (float, float)
        b1 and b2, in [0, 1).
    rho : float
        The smaller, the more coordinates are clipped.
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.
    interval : int
        Steps between two estimates.

    References
    ----------
    Liu et al., Sophia: a scalable stochastic second-order optimizer for language model pre-training, arXiv 2305.14342,
    Algorithms 2 and 3.

    Examples
    --------
    >>> import torch
    >>> x = torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = SophiaG([x], lr=0.5, betas=(0.0, 0.0), rho=1.0, weight_decay=0.0)
    >>> optimizer.state[x].update(optimizer.remember(x))
    >>> optimizer.learn(torch.tensor([4.0, 4.0]), optimizer.state[x], optimizer.param_groups[0])
    >>> x.grad = torch.tensor([1.0, -8.0])
    >>> optimizer.step()
    >>> x.tolist()                                              # a quarter of lr; clipped
    [-0.125, 0.5]
    """

    kind = "gauss_newton"


class SophiaH(Sophia):
    """Sophia-H: momentum over an average of Hutchinson's estimates of the curvature, each coordinate clipped.

        m = b1 m + (1 - b1) g;  every `interval` steps h = b2 h + (1 - b2) u * (H u)
        x = x - lr clip(m / (rho max(h, 0) + 1e-15), 1),  m = h = 0 at first

    where u are random signs and H u a product with the Hessian of the batch's loss: an estimate costs about two
    gradients more. On a diagonal Hessian it is exact. Where a method averages or mixes gradients, the estimates are
    averaged over all workers, dense; else each worker has its own.

    Memory: m and h, each as large as the parameters.

    When: as `SophiaG`, where labels cannot be drawn from the model.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate: how far a coordinate moves at the most.
    betas : (float, float)
        b1 and b2, in [0, 1).
    rho : float
        The smaller, the more coordinates are clipped.
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.
    interval : int
        Steps between two estimates.

    References
    ----------
    Liu et al., Sophia: a scalable stochastic second-order optimizer for language model pre-training, arXiv 2305.14342,
    Algorithms 1 and 3.

    Examples
    --------
    >>> import torch
    >>> SophiaH([torch.nn.Parameter(torch.zeros(2))], rho=0.0)
    Traceback (most recent call last):
    ValueError: rho must lie in (0, inf], got 0.0
    """

    kind = "hessian"

    def __init__(
        self,
        params: Any,
        lr: float = 3e-4,
        betas: tuple[float, float] = (0.965, 0.99),
        rho: float = 0.01,
        weight_decay: float = 0.1,
        interval: int = 10,
    ) -> None:
        super().__init__(params, lr, betas, rho, weight_decay, interval)
