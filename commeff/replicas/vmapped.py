"""The stacked replicas with one batched graph instead of a loop: worth it for small MLPs, not for conv nets on CPU."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from commeff.replicas.stacked import Batch, Loss, Stacked


class Vmapped(Stacked):
    """As `Stacked`, with all workers' gradients from one `vmap(grad(loss))`.

    Equal to the loop up to rounding, dropout apart, which draws another stream. The base module keeps its real
    parameters: a base on the meta device would silently untie tied weights.
    """

    def _check(self, model: nn.Module) -> None:
        names = [name for name, _ in model.named_modules(remove_duplicate=False)]
        if len(names) > len(list(model.modules())):
            raise ValueError("engine=vmap needs a model of distinct modules, got one under two names: use engine=loop")

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int, weight: float) -> Tensor:
        base, w = self.models[0], len(self.workers)

        def of_one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *parts: Tensor) -> Tensor:
            return loss(lambda *inputs: functional_call(base, (parameters, buffers), inputs), *parts)

        rows = {f.name: self.parameters[:, f.start : f.stop].view(w, *f.shape) for f in self.layout.fields}
        batched = vmap(grad_and_value(of_one), randomness="different")
        together = partial(batched, rows, self.buffers, *batch)
        gradients, losses = self._on_own_stream(together, self.workers[0], step, r)
        for field in self.layout.fields:
            self.gradients[:, field.start : field.stop].add_(gradients[field.name].reshape(w, -1), alpha=weight)
        return losses
