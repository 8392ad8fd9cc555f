"""Clipping by the norm of a worker's whole vector."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.compressors.reductions import joint_norm
from commeff.core.strategy import Stages, Strategy, Traits, Transform, agrees, stages_of, with_transforms
from commeff.transforms.blocks import Blocks


class Clipped(Transform):
    """v -> u min(1, max_norm / (|u| + 1e-6))  with  u = inner(v): a worker's vector is scaled down to a norm.

    As `torch.nn.utils.clip_grad_norm_`. Around what averages gradients it clips their average, equally at all workers;
    around `Keep`, each worker's own gradient.
    Memory: none. Sends: nothing itself.

    Parameters
    ----------
    max_norm : float
        The largest norm that goes on.
    inner : Transform
        What gives the vectors to be clipped.

    Attributes
    ----------
    unclipped_norm : (w, 1) or (1, 1), or None
        The norm of the last vectors, before they were clipped; one where it is the same at all workers.

    Examples
    --------
    >>> import torch
    >>> from commeff.core import Keep
    >>> gradients, communicator = torch.tensor([[3.0, 4.0], [0.3, 0.4]]), Communicator(workers=2)
    >>> clipped = Clipped(1.0, Keep())
    >>> clipped.start(gradients, Layout.flat(2), communicator)
    >>> clipped(gradients, communicator).round(decimals=4)
    tensor([[0.6000, 0.8000],
            [0.3000, 0.4000]])
    >>> [round(norm, 6) for norm in clipped.unclipped_norm.flatten().tolist()]
    [5.0, 0.5]
    """

    traits = Traits(scope="whole", exact_on_pieces=True, rowwise=True)

    def __init__(self, max_norm: float, inner: Transform) -> None:
        require.positive(clip=max_norm)
        self.max_norm, self.inner = max_norm, inner
        self.unclipped_norm: Tensor | None = None

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._layout, self.unclipped_norm = layout, None

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        out = yield from stages_of(self.inner, vectors, communicator.child("inner"))
        rows = out[:1] if out.stride(0) == 0 else out  # rows that are one memory are clipped once
        self.unclipped_norm = joint_norm(rows, self._layout)
        factor = (self.max_norm / (self.unclipped_norm + 1e-6)).clamp(max=1)
        return (rows * factor.to(rows.dtype)).expand_as(out)

    def agrees(self, step: int | None) -> bool:
        return agrees(self.inner, step)

    def awaited(self) -> Sequence[tuple[int, int]]:
        return self.inner.awaited() if isinstance(self.inner, Blocks) else ()

    def ready(self, vectors: Tensor, start: int, stop: int, communicator: Communicator) -> bool:
        inside = communicator.child("inner")
        return isinstance(self.inner, Blocks) and self.inner.ready(vectors, start, stop, inside)


def clipped(strategy: Strategy, max_norm: float | None) -> Strategy:
    """The strategy whose local step gets gradients of at most this norm, clipped after they were averaged, if they are.

    None: as it is. Give it a strategy in buckets, so that the buckets travel early and what arrived is clipped.
    """
    if max_norm is None:
        return strategy
    return with_transforms(strategy, Clipped(max_norm, strategy.gradients), strategy.parameters)
