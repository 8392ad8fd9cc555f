"""Engines of whole models beside the loop in 32 bits: in 16 bits, under autocast, and as one batched graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from commeff import require
from commeff.replicas.arrivals import Listener
from commeff.replicas.stacked import ENGINES, MIXED, Batch, Loss, Stacked, put_into, trainable
from commeff.sharding import LossLinear
from commeff.sharding.precision import LossScale, lower_frozen, lowered, named_precision
from commeff.sharding.row import complement


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
        dtype, scaled, sums = named_precision(precision)
        if dtype is None or sums is not None:
            raise ValueError(
                f"precision of whole models must be bf16 or fp16, got {precision}: "
                + ("no ranks share their batch; give bf16" if sums else "give Stacked instead")
            )
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
        """As `Stacked.compute`; nothing is ready of what is scaled, which may not be finite."""
        torch.mul(self._computed, l2, out=self._sums) if l2 else self._sums.zero_()
        widened: list[tuple[int, int]] = []

        def widen(start: int, stop: int) -> None:
            self.gradients[:, start:stop] = self._sums[:, start:stop]
            widened.append((start, stop))
            if ready is not None:
                ready(start, stop)

        _, losses = super().compute(loss, batches, step, 0.0, () if self.scales else awaited, widen)
        for start, stop in complement(widened, self.layout.d):
            self.gradients[:, start:stop] = self._sums[:, start:stop]
        if self.scales:
            active = [True] * len(self.scales) if self.active is None else self.active.tolist()
            rows = zip(self.scales, self.gradients, active, strict=True)
            self.finite = torch.tensor([not moves or scale.unscale(row) for scale, row, moves in rows])
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


class MixedStacked(Stacked):
    """As `Stacked`, with forward passes under `torch.autocast`: convolutions and products in bfloat16, norms, softmax
    and losses in float32.

    Parameters, buffers, gradients and evaluations stay as the model was made, so that BatchNorm keeps its statistics in
    32 bits. A gradient is off by some times 2^-9 of its size, as bfloat16 has 8 bits (Micikevicius et al., arXiv
    1710.03740; Kalamkar et al., arXiv 1905.12322).

    Parameters
    ----------
    model, workers, seed, groups
        As in `Stacked`.

    Examples
    --------
    >>> replicas = MixedStacked(lambda: nn.Linear(2, 1), range(3))
    >>> seen = []
    >>> def loss(model, x):
    ...     seen.append(model(x).dtype)
    ...     return model(x).float().mean()
    >>> gradients, _ = replicas.compute(loss, [(torch.ones(3, 1, 2),)], step=0)
    >>> replicas.parameters.dtype, seen[0], gradients.dtype
    (torch.float32, torch.bfloat16, torch.float32)
    """

    def _check(self, model: nn.Module) -> None:
        wide = next((p.dtype for p in model.parameters() if p.dtype != torch.float32), None)
        if wide is not None:
            raise ValueError(
                f"precision=bf16_mixed needs a model of float32, got {str(wide).removeprefix('torch.')}: only that is "
                "computed in 16 bits by torch.autocast; omit precision=, or give dtype=float32"
            )

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        device = self.parameters.device.type
        return super()._backward(partial(_under_autocast, loss, device), batch, step, r, weight)


def _under_autocast(loss: Loss, device: str, *model_and_batch: object) -> Tensor:
    with torch.autocast(device, torch.bfloat16):
        return loss(*model_and_batch)


class Vmapped(Stacked):
    """As `Stacked`, with all workers' gradients from one `vmap(grad(loss))`: worth it for small MLPs, not for
    convolutions on a CPU.

    Equal to the loop up to rounding, dropout apart, which draws another stream. The base module keeps its real
    parameters: a base on the meta device would silently untie tied weights.
    """

    def _check(self, model: nn.Module) -> None:
        names = [name for name, _ in model.named_modules(remove_duplicate=False)]
        if len(names) > len(list(model.modules())):
            raise ValueError("engine=vmap needs a model of distinct modules, got one under two names: use engine=loop")
        if any(isinstance(module, LossLinear) for module in model.modules()):
            raise ValueError("engine=vmap needs whole logits, got them in chunks: use engine=loop")

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        base, w = self.models[0], len(self.workers)

        def of_one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *parts: Tensor) -> Tensor:
            return loss(lambda *inputs: functional_call(base, (parameters, buffers), inputs), *parts)

        rows = {f.name: self.parameters[:, f.start : f.stop].view(w, *f.shape) for f in self.layout.fields}
        batched = vmap(grad_and_value(of_one), randomness="different")
        together = partial(batched, rows, self.buffers, *batch)
        with sdpa_kernel(SDPBackend.MATH):  # of torch's kinds of attention the one that vmap computes at once
            gradients, losses = self._on_own_stream(together, self.workers[0], step, r)
        for field in self.layout.fields:
            self.gradients[:, field.start : field.stop].add_(gradients[field.name].reshape(w, -1), alpha=weight)
        return losses


def engine_in(precision: str, engine: str) -> Callable[..., Stacked]:
    """The engine that runs whole models in a precision."""
    require.one_of(ENGINES, engine=engine)
    if precision == "fp32":
        return Vmapped if engine == "vmap" else Stacked
    if engine != "loop":
        raise ValueError(f"engine must be loop in 16 bits, got {engine} with precision={precision}: give engine=loop")
    return MixedStacked if precision == MIXED else partial(LowStacked, precision=precision)
