"""What the ranks of a worker must do alike between two steps: looked at now and then, as nothing else would say it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from commeff.adapters.holding import Holding
from commeff.sharding import Axis
from commeff.sharding.foreign import Place, Workers, local, parted
from commeff.sharding.layers import homes_of

ADVICE = "the ranks would drift apart; to clip gradients give clip=NORM, and make any other change alike at all ranks"


class Agreement:
    """The copies of tensors that several ranks of a worker hold, and the shares that they take of its batch.

    Parameters
    ----------
    holding : Holding
        The model.
    """

    def __init__(self, holding: Holding) -> None:
        self._named, self._samples = holding.parameters, SampleCount()
        self._workers = Workers(holding.mesh.devices, "worker") if holding.mesh is not None and holding.inner else None
        for part in holding.parts if any(axis.name == "shard" for axis in holding.inner) else ():
            part.register_forward_pre_hook(self._samples, with_kwargs=True)

    def check(self, step: int) -> None:
        """Refuse copies that part, and say that shares were unequal, before steps 0, 1, 2, 4, 8 and so on."""
        workers = self._workers
        if workers is None or step & (step - 1):
            return
        count, self._samples.count = self._samples.count, 0
        homes = {name: _homes(p, workers.inner) for name, p in self._named.items()}
        gradients = {name: local(p.grad) for name, p in self._named.items() if p.grad is not None}
        weights = {name: local(p) for name, p in self._named.items()}
        faults = [
            *parted(gradients, homes, workers, ADVICE),
            *parted(weights, homes, workers, ADVICE, must="stay equal", rel_tol=1e-5),
        ]
        if faults:
            raise ValueError(faults[0])
        if len(shares := {*workers.gather(count).values()}) > 1:
            since = f"{step - step // 2} steps" if step > 1 else "1 step"
            warnings.warn(
                f"the shares of a worker's batch must be equally large, got {' and '.join(map(str, sorted(shares)))} "
                f"samples at its shard ranks in {since}: those of a smaller share weigh more in the mean; "
                "drop or pad what is over",
                stacklevel=4,
            )


class SampleCount:
    """A hook of a model that counts the samples it gets while gradients are recorded. What is compiled has no count."""

    count = 0

    def __call__(self, module: nn.Module, args: Sequence[Any], options: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            tensors = [x for x in (*args, *options.values()) if isinstance(x, Tensor) and x.ndim]
            self.count += len(tensors[0]) if tensors else 0


def _homes(parameter: nn.Parameter, axes: Sequence[Axis]) -> list[Place]:
    """The ranks of a worker that get this gradient too, by their places: shard ranks have another share of it."""
    along: list[Sequence[int]] = []
    for axis in axes:
        copies = parameter.cut.copies if axis.name == "tensor" and hasattr(parameter, "cut") else 1
        first = axis.rank - axis.rank % copies
        along.append(homes_of(parameter, axis) if axis.name == "pipeline" else range(first, first + copies))
    return list(product(*along))
