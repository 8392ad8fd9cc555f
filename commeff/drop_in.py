"""Any method of the catalogue in a plain PyTorch loop: three lines change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from commeff.communicator import Communicator
from commeff.replicas import Stacked, write_row
from commeff.replicas.stacked import trainable
from commeff.strategy import Strategy


class DistributedOptimizer:
    """The optimizer of one model on each of n processes, which are the n workers of a strategy.

        model = Net()                                                        # not wrapped in DDP
        strategy = methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(dist.get_world_size()))
        optimizer = commeff.DistributedOptimizer(model, strategy)
        for inputs, targets in loader:                                       # each process its own data
            optimizer.zero_grad()
            loss_function(model(inputs), targets).backward()
            optimizer.step()

    All models begin as that of rank 0, buffers too. From there on a worker's parameters are its own, wherever the
    method lets them differ: evaluate `average_into(another model)`. BatchNorm statistics are never averaged. Schedules
    belong to the strategy (`commeff.scheduled`). A method over several minibatches a step (`strategy.accumulate`) wants
    as many backward passes, each of its loss divided by their number.

    Attributes
    ----------
    communicator : with the ledger of what this worker has sent, and the clock `step`.

    Raises
    ------
    ValueError: no process group, a model wrapped in DDP, or a strategy that does not fit the model or the number of
    processes.
    """

    def __init__(self, model: nn.Module, strategy: Strategy, *, seed: int = 0, group: Any = None) -> None:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            raise ValueError(
                "the model is wrapped in DistributedDataParallel, which averages gradients beside the method; "
                "give model.module"
            )
        self.communicator, self.strategy, self._model = Communicator.per_process(seed, group), strategy, model
        self._replicas = Stacked(lambda: model, self.communicator.workers, seed)
        for tensor in (self._replicas.parameters, *self._replicas.buffers.values()):
            self.communicator.transport.broadcast(tensor)
        strategy.start(self._replicas.parameters, self._replicas.layout, self.communicator)

    def zero_grad(self) -> None:
        """Set all gradients to zero."""
        self._gather()
        self._replicas.gradients.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One model update of all workers; every process calls it. Returns what the closure does."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._gather()
        replicas = self._replicas
        with torch.no_grad():
            self.strategy.post(replicas.parameters, self.communicator)
            replicas.load(self.strategy.step(replicas.parameters, replicas.gradients, self.communicator, donate=True))
        self.communicator.step += 1
        return loss

    def average_into(self, model: nn.Module) -> nn.Module:
        """Write the mean of all workers' parameters into another model of this kind; every process calls it."""
        mean = self.communicator.observe(self._replicas.parameters).to(self._replicas.parameters)
        return write_row(model, mean, self._replicas.layout)

    def state_dict(self) -> dict[str, Any]:
        """This worker's memory and the clock; the model's parameters are saved with the model."""
        return {"strategy": self.strategy.state_dict(), "step": self.communicator.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave on the process of the same rank."""
        self.strategy.load_state_dict(state["strategy"])
        self.communicator.step = state["step"]

    def _gather(self) -> None:
        """Gradients live in one vector; what the model's own `zero_grad` has thrown away is put back into it."""
        row = self._replicas.gradients[0]
        for parameter, field in zip(trainable(self._model).values(), self._replicas.layout.fields, strict=True):
            place = row[field.start : field.stop].view(field.shape)
            if parameter.grad is None:
                parameter.grad = place.zero_()
            elif parameter.grad.data_ptr() != place.data_ptr():
                parameter.grad = place.copy_(parameter.grad)
