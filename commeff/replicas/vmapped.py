"""The stacked replicas with one batched graph instead of a loop: worth it for small MLPs, not for conv nets on CPU."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from commeff.replicas.stacked import Batch, Loss, Stacked


class Vmapped(Stacked):
    """As `Stacked`, with all workers' gradients from one `vmap(grad(loss))`.

    Equal to the loop up to rounding, dropout apart, which draws another stream. The base module keeps its real
    parameters: a base on the meta device would silently untie tied weights.
    """

    def _backward(self, loss: Loss, batch: Batch, step: int, r: int) -> Tensor:
        base = self.models[0]

        def of_one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *parts: Tensor) -> Tensor:
            return loss(lambda *inputs: functional_call(base, (parameters, buffers), inputs), *parts)

        if self.random:
            torch.manual_seed(self._draw_seed(self.workers[0], step, r))
        w = len(self.workers)
        rows = {f.name: self.parameters[:, f.start : f.stop].view(w, *f.shape) for f in self.layout.fields}
        gradients, losses = vmap(grad_and_value(of_one), randomness="different")(rows, self.buffers, *batch)
        for field in self.layout.fields:
            self.gradients[:, field.start : field.stop] += gradients[field.name].reshape(w, -1)
        return losses
