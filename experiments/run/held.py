"""What a process of a run holds between two steps: its piece of a worker, and what the method remembers of it."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from commeff.core.strategy import Strategy
from commeff.profiling.live import measure_memory
from commeff.replicas import ShardedWorker


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the memory of tensors, that which several share once. Those on the meta device have sizes, too."""
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}
    return sum(storage.nbytes() for storage in storages.values())


def model_bytes(worker: ShardedWorker) -> dict[str, int]:
    """Bytes of parameters and of gradients."""
    own = worker.computation.parameters.values()
    gradients = [parameter.grad for parameter in own if parameter.grad is not None]
    return {
        "parameters": storage_bytes(_local([worker.parameters, *own])),
        "gradients": storage_bytes(_local([worker.gradients, *gradients])),
    }


def held_bytes(worker: ShardedWorker, strategy: Strategy) -> int:
    """Bytes of parameters, gradients and the method's memory, as they lie there."""
    return sum(model_bytes(worker).values()) + sum(measure_memory(strategy, (worker.parameters,)).values())


def _local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This process's part of tensors that FSDP shards."""
    return [getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors]
