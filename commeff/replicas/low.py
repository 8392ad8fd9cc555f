"""Whole models in 16 bits; the rows that a method sees keep theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from commeff.replicas.arrivals import Listener
from commeff.replicas.stacked import Batch, Loss, Stacked, put_into, trainable
from commeff.sharding.precision import LossScale, lower_frozen, lowered
from commeff.sharding.precision import precision as named_precision


class LowStacked(Stacked):
    """As `Stacked`, computed in 16 bits, as `ShardedWorker` does with `precision=`.

    Models compute with a copy of the rows in 16 bits, add up the gradients of a step in 16 bits, and give outputs, of
    which the loss is taken, in 32. Rows, and the gradients that a method gets, are as the model was made: they are the
    master weights. In fp16 each worker has a loss scale of its own.

    Parameters
    ----------
    model, workers, seed, groups
        As in `Stacked`.
    precision : str
        "bf16" or "fp16".

    Attributes
    ----------
    finite : (w,) bool or None
        Which workers' last gradients were; None where nobody looks.
    scales : list of LossScale
        The factors of the losses; empty in bf16.

    Examples
    --------
    >>> replicas = LowStacked(lambda: nn.Linear(2, 1), range(3), precision="bf16")
    >>> replicas.parameters.dtype, replicas.models[0].weight.dtype, replicas.models[0](torch.ones(1, 2)).dtype
    (torch.float32, torch.bfloat16, torch.float32)
    """

    def __init__(
        self,
        model: Callable[[], nn.Module],
        workers: Sequence[int],
        seed: int = 0,
        groups: Callable[[str, nn.Parameter], int] | None = None,
        *,
        precision: str,
    ) -> None:
        super().__init__(model, workers, seed, groups)
        dtype, scaled = named_precision(precision)
        if dtype is None:
            raise ValueError(f"precision must be one of 16 bits, got {precision}: give Stacked instead")
        self._computed = self.parameters.to(dtype)
        self._sums = torch.zeros_like(self._computed)
        for replica, row, sums in zip(self.models, self._computed, self._sums, strict=True):
            put_into(row, sums, trainable(replica), self.layout)
            _lower(replica, dtype)
        self.scales = [LossScale(()) for _ in workers if scaled]
        self._model = lambda: _lower(model().to(dtype), dtype)

    def _check(self, model: nn.Module) -> None:
        if any(isinstance(part, _BatchNorm) for part in model.modules()):
            raise ValueError(
                "precision must be fp32 for a model with BatchNorm, got 16 bits: its statistics are kept in 32; give "
                "precision=bf16_mixed, or take a model with other norms"
            )

    def load(self, x: Tensor) -> None:
        """Make x the parameters, and compute with them."""
        super().load(x)
        self._computed.copy_(self.parameters)

    def compute(
        self,
        loss: Loss,
        batches: Sequence[Batch],
        step: int,
        l2: float = 0.0,
        awaited: Sequence[tuple[int, int]] = (),
        ready: Listener | None = None,
    ) -> tuple[Tensor, Tensor]:
        """As `Stacked.compute`; nothing is ready before all is computed, and made one of 32 bits."""
        torch.mul(self._computed, l2, out=self._sums) if l2 else self._sums.zero_()
        _, losses = super().compute(loss, batches, step)
        self.gradients.copy_(self._sums)
        if self.scales:
            there = [True] * len(self.scales) if self.active is None else self.active.tolist()
            rows = zip(self.scales, self.gradients, there, strict=True)
            self.finite = torch.tensor([not here or scale.taken(row) for scale, row, here in rows])
        return self.gradients, losses

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        if not self.scales:
            return super()._backward(loss, batch, step, r, weight)
        factors = {model: scale.value for model, scale in zip(self.models, self.scales, strict=True)}
        scaled = super()._backward(lambda model, *parts: loss(model, *parts) * factors[model], batch, step, r, weight)
        return scaled / scaled.new_tensor([*factors.values()])

    def state_dict(self) -> dict[str, Any]:
        """Parameters, buffers and loss scales, with a leading worker axis."""
        states = [scale.state_dict() for scale in self.scales]
        scale = {name: torch.tensor([state[name] for state in states]) for name in (states[0] if states else ())}
        return super().state_dict() | ({"scale": scale} if scale else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        super().load_state_dict(state)
        self._computed.copy_(self.parameters)
        for i, scale in enumerate(self.scales):
            scale.load_state_dict({name: values[i].item() for name, values in state["scale"].items()})


def _lower(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Let a model whose parameters are in a dtype take inputs to outputs in 32 bits; frozen ones are lowered here."""
    lower_frozen([model], dtype)
    model.register_forward_pre_hook(lambda _, inputs: lowered(inputs, dtype))
    model.register_forward_hook(lambda _, inputs, outputs: outputs.float())
    return model
