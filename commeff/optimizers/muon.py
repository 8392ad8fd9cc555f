"""Muon on matrices, AdamW on what is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import AdamW, Optimizer


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
