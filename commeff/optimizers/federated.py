"""The servers of adaptive federated optimization: Adam and Yogi as published, without bias correction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from commeff import require
from commeff.optimizers.adaptive import UncorrectedAdam
from commeff.optimizers.rule import advance, zeros


class FedAdam(UncorrectedAdam):
    """The server of FedAdam: Adam without bias correction, whose v begins above 0.

        m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  x = x - lr m / (sqrt(v) + tau),  m = 0 and v = v0 at first

    g is what the workers moved, with the sign of a gradient.

    Memory: m and v, each as large as the parameters.

    When: as the server of `fedopt` where published results are to be repeated; torch's Adam takes larger first steps.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate.
    betas : (float, float)
        b1 and b2, in [0, 1).
    eps : float
        tau, at least 0: how adaptive it is; 0.001 is quoted as the paper's choice for most tasks.
    initial : float, optional
        v0, at least 0: tau^2 unless given, the least that the paper allows. Public implementations begin with 0.
    weight_decay : float
        Decoupled: x shrinks by lr weight_decay x.

    References
    ----------
    Reddi et al., Adaptive federated optimization, arXiv 2003.00295, Algorithm 2.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    >>> x.grad = torch.tensor([-1.0], dtype=torch.float64)
    >>> FedAdam([x], lr=1.0, initial=0.0).step()
    >>> round(x.item(), 4)
    0.9901
    """

    def __init__(
        self,
        params: Any,
        lr: float = 0.01,
        betas: Sequence[float] = (0.9, 0.99),
        eps: float = 1e-3,
        initial: float | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        self.initial = eps**2 if initial is None else initial
        require.at_least(0, initial=self.initial)
        super().__init__(params, lr, betas, eps, weight_decay)

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"step": torch.tensor(0.0), "average": zeros(x), "square": zeros(x) + self.initial}


class FedYogi(FedAdam):
    """The server of FedYogi: as `FedAdam`, but v moves by additions, so that it forgets large moves slowly.

        v = v - (1 - b2) g^2 sign(v - g^2)

    Memory: m and v, each as large as the parameters.

    When: as `FedAdam` where moves are sparse or of changing size.

    Parameters
    ----------
    params, lr, betas, eps, initial, weight_decay
        As of `FedAdam`.

    References
    ----------
    Reddi et al., Adaptive federated optimization, arXiv 2003.00295, Algorithm 2; Zaheer et al., Adaptive methods for
    nonconvex optimization, 2018 (Yogi).

    Examples
    --------
    Below v it shrinks v by a little, above it adds:

    >>> x, seen = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64)), []
    >>> yogi = FedYogi([x], initial=4.0)
    >>> for slope in (1.0, 1.0, 3.0):
    ...     x.grad = torch.tensor([slope], dtype=torch.float64)
    ...     yogi.step()
    ...     seen.append(round(yogi.state[x]["square"].item(), 4))
    >>> seen
    [3.99, 3.98, 4.07]
    """

    def moments(self, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """m and v after the step that the memory takes now."""
        advance(memory)
        first, second = options["betas"]
        average, square, squared = memory["average"], memory["square"], gradient * gradient
        average.lerp_(gradient, 1 - first)
        square.addcmul_(squared, (square - squared).sign(), value=second - 1)
        return average, square
