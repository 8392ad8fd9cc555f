"""First-moment rules: the lectures' momentum, and Lion."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from commeff import require
from commeff.optimizers.rule import Rule, zeros


class EMAMomentum(Rule):
    """SGD with the lectures' momentum, a moving average of gradients.

        m = b m + (1 - b) g;  x = x - lr m,  m = 0 at first

    It is torch's momentum at (1 - b) times the learning rate: SGD(lr=lr (1 - b), momentum=b). SGD(lr, momentum=b,
    dampening=b) is another method, whose first step is not damped.

    Memory: m, as large as the parameters.

    When: settings that were found with a momentum that averages; the learning rate then does not depend on b.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate.
    momentum : float
        b, in [0, 1).
    weight_decay : float
        L2: weight_decay x is added to the gradient.

    Examples
    --------
    >>> import torch
    >>> x = torch.nn.Parameter(torch.zeros(1))
    >>> optimizer = EMAMomentum([x], lr=1.0, momentum=0.5)
    >>> for _ in range(2):
    ...     x.grad = -torch.ones(1)
    ...     optimizer.step()
    >>> x.item()                                        # 0.5 and 0.75
    1.25
    """

    def __init__(self, params: Any, lr: float = 0.1, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        require.within("[0, 1)", momentum=momentum)
        require.at_least(0, weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"momentum": zeros(x)}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        if options["weight_decay"]:
            gradient = gradient.add(x, alpha=options["weight_decay"])
        memory["momentum"].lerp_(gradient, 1 - options["momentum"])
        x.sub_(memory["momentum"], alpha=options["lr"])


class Lion(Rule):
    """Lion: every coordinate moves by the learning rate, in the direction of an interpolated momentum.

        u = sign(b1 m + (1 - b1) g);  x = x - lr (u + weight_decay x);  m = b2 m + (1 - b2) g,  m = 0 at first

    Memory: m, as large as the parameters: half of Adam's.

    When: instead of AdamW, at a learning rate three to ten times smaller and a decay that much larger.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate: how far a coordinate moves in a step.
    betas : (float, float)
        b1, of the direction, and b2, of the memory, in [0, 1).
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.

    References
    ----------
    Chen et al., Symbolic discovery of optimization algorithms, arXiv 2302.06675, Algorithm 2.

    Examples
    --------
    >>> import torch
    >>> x = torch.nn.Parameter(torch.zeros(3))
    >>> x.grad = torch.tensor([5.0, -0.1, 0.0])
    >>> Lion([x], lr=0.25).step()
    >>> x.tolist()
    [-0.25, 0.25, 0.0]
    """

    def __init__(
        self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0
    ) -> None:
        for beta in betas:
            require.within("[0, 1)", betas=beta)
        require.at_least(0, weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "weight_decay": weight_decay})

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"momentum": zeros(x)}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        first, second = options["betas"]
        direction = memory["momentum"].lerp(gradient, 1 - first).sign_()
        x.mul_(1 - options["lr"] * options["weight_decay"]).sub_(direction, alpha=options["lr"])
        memory["momentum"].lerp_(gradient, 1 - second)
