"""Lazily aggregated gradients: a worker is silent while its gradient has changed little (LAG, LASG)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator, view
from commeff.compressors import DenseMessage, Layout
from commeff.core.local import Local
from commeff.core.properties import require_one_rate
from commeff.core.strategy import GradientComparison, Gradients, Stages, Traits, Transform
from commeff.optimizers.curvature import require_oracle


class IfChanged(GradientComparison):
    """g_i - h_i, h_i what worker i sent so far, where gradients have changed enough; else 0, which is silence (LAG-WK).

    Worker i is silent where gamma^2 |change|^2 <= threshold (the sum of the last `memory` |x^{k+1-d} - x^{k-d}|^2); the
    change is g_i - h_i. All send at first, and who has been silent for `longest` steps.
    Memory: public = h_i; last_x = x^{k-1}; recent, those squares; age, the steps since it sent, -1 before.

    Parameters
    ----------
    local : Local
        The step whose learning rate is gamma.
    threshold : float
        At least 0.
    memory : int
        The steps that are summed.

    Attributes
    ----------
    longest : int or None
        The steps after which a worker sends in any case.
    sends : (w,) bool
        Who sends in this step.
    """

    rows: ClassVar[tuple[str, ...]] = ("public", "last_x", "recent", "age")
    longest: int | None = None
    traits = Traits(
        scope="whole",
        exact_on_pieces=True,
        needs_everyone="who returns would not know what it had sent; give participation=1, or ef21, which allows "
        "absence",
    )

    def __init__(self, local: Local, threshold: float, memory: int) -> None:
        require.within("[0, inf]", "0 sends every step", threshold=threshold)
        require.at_least(1, memory=memory)
        self._local, self.threshold, self.memory = local, threshold, memory

    def start(self, x: Tensor, layout: Layout) -> None:
        require_one_rate(self._local)
        self._layout = layout
        self.public, self.last_x = torch.zeros_like(x), x.clone()
        self.recent = x.new_zeros(len(x), self.memory)
        self.age = torch.full((len(x), 1), -1, dtype=torch.int64, device=x.device)

    def square(self, rows: Tensor) -> Tensor:
        """(w, 1): |rows|^2 of whole rows."""
        return self._layout.row_sum(rows.square())

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        """(w, 1): |change|^2."""
        return self.square(gradient - self.public)

    def __call__(
        self, x: Tensor, gradient: Tensor, communicator: Communicator, oracle: Gradients | None, moving: Tensor | None
    ) -> Tensor:
        self.recent = torch.cat([self.square(x - self.last_x), self.recent[:, :-1]], 1)
        self.last_x = x.clone()
        moved = self.threshold * self.recent.sum(1, keepdim=True)
        sends = (self.age < 0) | (self._local.lr**2 * self.change(x, gradient, oracle) > moved)
        if self.longest is not None:
            sends = sends | (self.age >= self.longest)
        out = torch.where(sends, gradient - self.public, 0.0)
        self.remember(x, gradient, sends)
        return out

    def remember(self, x: Tensor, gradient: Tensor, sends: Tensor) -> None:
        """Remember who sends, (w, 1), and what."""
        self.sends = sends[:, 0]
        self.public = torch.where(sends, gradient, self.public)
        self.age = torch.where(sends, 1, self.age + 1)


class IfMoved(IfChanged):
    """`IfChanged`, with smoothness (x - y_i) as the estimate of the change; worker i last sent at y_i. No gradient is
    computed for it (LAG-PS).

    Memory also: snapshot = y_i.

    Parameters
    ----------
    local, threshold, memory
        As of `IfChanged`.
    smoothness : float
        How much gradients change where x does, above 0.
    """

    rows = (*IfChanged.rows, "snapshot")

    def __init__(self, local: Local, threshold: float, memory: int, smoothness: float) -> None:
        super().__init__(local, threshold, memory)
        require.positive(smoothness=smoothness)
        self.smoothness = smoothness

    def start(self, x: Tensor, layout: Layout) -> None:
        super().start(x, layout)
        self.snapshot = x.clone()

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        return self.smoothness**2 * self.square(x - self.snapshot)

    def remember(self, x: Tensor, gradient: Tensor, sends: Tensor) -> None:
        super().remember(x, gradient, sends)
        self.snapshot = torch.where(sends, x, self.snapshot)


class IfBatchChanged(IfMoved):
    """The same, where the change is g_i(x) - g_i(y_i) of this step's batch: its noise is in both (LASG-WK2).

    Parameters
    ----------
    local, threshold, memory, longest
        As of `IfChanged`.
    """

    needs_oracle = True

    def __init__(self, local: Local, threshold: float, memory: int, longest: int) -> None:
        super().__init__(local, threshold, memory, smoothness=1.0)
        require.at_least(1, longest=longest)
        self.longest = longest

    def change(self, x: Tensor, gradient: Tensor, oracle: Gradients | None) -> Tensor:
        return self.square(gradient - require_oracle(oracle, self)(self.snapshot))


class LazyMean(Transform):
    """mean <- mean + (1/n) (the sum of the v_j that are not 0);  -> mean   (arXiv 1805.09965, Algorithms 1 and 2).

    Memory: mean, one row. Sends: whether a worker sends, 1 byte, to all; then v_i to the server, by those who do; and
    the sum from it, if anybody did.
    """

    shared = ("mean",)
    traits = Traits(scope="whole", exact_on_pieces=True, data_dependent=True, agrees=True)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.mean = v.new_zeros(1, layout.d)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        sends = (vectors != 0).any(1)
        flags = (yield communicator.post_gather(DenseMessage.of(sends[:, None].to(torch.uint8)))).parts[0][:, 0]
        if flags.is_meta:
            senders, chosen = communicator, vectors  # the most that it can be
        else:
            senders, chosen = view(communicator, among=flags.bool().cpu()), vectors[sends]
        if senders.n:
            mean = yield senders.post_to_server(DenseMessage.of(chosen))
            answer = DenseMessage.of(mean * (senders.n / communicator.n))
            self.mean = self.mean + (yield communicator.post_from_server(answer))[:1]
        return self.mean.clone().expand_as(vectors)
