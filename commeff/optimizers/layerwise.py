"""Rules on whole tensors: LARS and LAMB, whose step is as long as the tensor that it moves, and Muon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from commeff import require
from commeff.optimizers.adaptive import Adaptive
from commeff.optimizers.rule import Rule, zeros


def _ratio(length: Tensor, step: Tensor) -> Tensor:
    """length / step, and 1 where either is 0."""
    return torch.where((length > 0) & (step > 0), length / step, torch.ones_like(length))


class LARS(Rule):
    """LARS: momentum SGD whose step on a tensor is in proportion to the tensor's norm.

        r = trust |x| / (|g| + weight_decay |x|);  m = b m + lr r (g + weight_decay x);  x = x - m,  m = 0 at first

    r is 1 where x or what it is divided by is zero. Norms are those of a whole tensor, so a row is not one vector: the
    method must know the model's tensors.

    Memory: m, as large as the parameters.

    When: convolutional networks at very large batches, with a warm-up.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate; it may be well above 1, as trust is small.
    momentum : float
        b, in [0, 1).
    weight_decay : float
        L2, inside the ratio.
    trust : float
        How much of a tensor's norm a step at lr = 1 is.

    References
    ----------
    You, Gitman, Ginsburg, Large batch training of convolutional networks, arXiv 1708.03888, Algorithm 1.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> x.grad = torch.tensor([0.0, 1e-3])
    >>> LARS([x], lr=1.0, trust=0.2, momentum=0.0).step()       # by 0.2 |x| = 1
    >>> x.tolist()
    [3.0, 3.0]
    """

    elementwise = False

    def __init__(
        self,
        params: Any,
        lr: float = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = 0.001,
    ) -> None:
        require.within("[0, 1)", momentum=momentum)
        require.at_least(0, weight_decay=weight_decay, trust=trust)
        options = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, options)

    def remember(self, x: Tensor) -> dict[str, Tensor]:
        return {"momentum": zeros(x)}

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        length, decay = torch.linalg.vector_norm(x), options["weight_decay"]
        ratio = _ratio(options["trust"] * length, torch.linalg.vector_norm(gradient) + decay * length)
        step = gradient.add(x, alpha=decay).mul_(ratio * options["lr"])
        x.sub_(memory["momentum"].mul_(options["momentum"]).add_(step))


class LAMB(Adaptive):
    """LAMB: Adam whose step on a tensor is as long as the tensor.

        u = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay x;  x = x - lr |x| / |u| u

    |x| / |u| is 1 where either is zero. Norms are those of a whole tensor, so the method must know the model's tensors.

    Memory: m and v, each as large as the parameters.

    When: transformers at very large batches, with a warm-up.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate: how much of a tensor's norm a step is.
    betas : (float, float)
        b1 and b2, in [0, 1).
    eps : float
        Is added to the root.
    weight_decay : float
        Inside the norm of u.

    References
    ----------
    You et al., Large batch optimization for deep learning: training BERT in 76 minutes, arXiv 1904.00962, Algorithm 2.

    Examples
    --------
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> x.grad = torch.tensor([0.0, 7.0])
    >>> LAMB([x], lr=0.2).step()                                # by 0.2 |x| = 1
    >>> x.data.round(decimals=4).tolist()
    [3.0, 3.0]
    """

    elementwise = False

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def update(self, x: Tensor, gradient: Tensor, memory: dict[str, Any], options: dict[str, Any]) -> None:
        average, square = self.moments(gradient, memory, options)
        step = average.div_(square.sqrt_().add_(options["eps"])).add_(x, alpha=options["weight_decay"])
        x.sub_(step.mul_(_ratio(torch.linalg.vector_norm(x), torch.linalg.vector_norm(step)) * options["lr"]))


class MuonWithAdamW(Optimizer):
    """torch's Muon on tensors of two dimensions, torch's AdamW on all others, at one learning rate.

    Muon's step is that of a momentum whose singular values have all been made about 1, times 0.2 sqrt(max(shape)): as
    long as AdamW's usual one, whose learning rate and weight decay therefore serve both. It orthogonalises in bfloat16,
    whatever the parameters have: engines that add in another order agree to three digits, not to twelve. Convolutions
    count as others.

    Memory: one average a matrix, two of other tensors.

    When: instead of AdamW for the matrices of a transformer. Embeddings and the last layer are better left to AdamW.

    Parameters
    ----------
    params : iterable
        Parameters, or parameter groups.
    lr : float
        The learning rate of both.
    momentum : float
        Muon's, in [0, 1), with Nesterov's look ahead.
    betas : (float, float)
        AdamW's.
    weight_decay : float
        Decoupled, of both.

    References
    ----------
    Jordan et al., Muon, kellerjordan.github.io/posts/muon; Liu et al., Muon is scalable for LLM training, arXiv
    2502.16982, equation 4 (the scale).

    Examples
    --------
    >>> matrix, vector = torch.nn.Parameter(torch.zeros(4, 2)), torch.nn.Parameter(torch.zeros(2))
    >>> optimizer = MuonWithAdamW([matrix, vector], lr=0.1)
    >>> for parameter in (matrix, vector):
    ...     parameter.grad = torch.ones_like(parameter)
    >>> optimizer.step()
    >>> [sorted(optimizer.state[parameter]) for parameter in (matrix, vector)]
    [['momentum_buffer'], ['exp_avg', 'exp_avg_sq', 'step']]
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.1,
    ) -> None:
        options = {"lr": lr, "momentum": momentum, "betas": tuple(betas), "weight_decay": weight_decay}
        super().__init__(params, options)
        self._inner: list[tuple[dict[str, Any], Optimizer]] = []
        for group in self.param_groups:
            matrices = [p for p in group["params"] if p.ndim == 2]
            others = [p for p in group["params"] if p.ndim != 2]
            decay, nesterov = group["weight_decay"], True
            if matrices:
                muon = torch.optim.Muon(matrices, lr, decay, momentum, nesterov, adjust_lr_fn="match_rms_adamw")
                self._inner.append((group, muon))
            if others:
                self._inner.append((group, AdamW(others, lr, betas=betas, weight_decay=decay)))
        for _, optimizer in self._inner:
            optimizer.state = self.state  # one memory for all, in one place

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("MuonWithAdamW takes one gradient a step, got a closure: call backward yourself")
        for group, optimizer in self._inner:
            inner = optimizer.param_groups[0]
            inner.update({name: group[name] for name in ("lr", "momentum", "betas", "weight_decay") if name in inner})
            optimizer.step()
