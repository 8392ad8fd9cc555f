"""Seconds of one micro-batch through pieces of a model, and of waiting for it on equal stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.planner.policies import SCHEDULES, Count, Numbers


class StageSeconds(NamedTuple):
    """Seconds of one micro-batch on a piece, on a stage, all chunks together, or on all stages, added up.

    Attributes
    ----------
    forward : forward pass.
    backward : whole backward pass.
    weights : of `backward`: gradients of weights.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers

    def times(self, count: Count, more: StageSeconds) -> StageSeconds:
        """So many times these seconds, and `more`."""
        return StageSeconds(*(count * each + other for each, other in zip(self, more, strict=True)))


def bubble_seconds(
    schedule: Numbers,
    stages: Numbers,
    chunks: Numbers,
    micro_batches: Numbers,
    slowest: StageSeconds,
    total: StageSeconds,
) -> Numbers:
    """Idle seconds of the slowest stage.

    GPipe and 1F1B wait while the first micro-batch passes the other stages and the last one comes back: total -
    slowest, which is (p-1) (F + B) on equal stages (Huang 2019; Narayanan 2019). Interleaved: 1/v of it (Narayanan
    2021). Naive: in every micro-batch. ZB-H1 (Qi 2024) does gradients of weights meanwhile: while the last micro-batch
    comes back, one on each stage that it passes, and those of min(m-1, p-1) that the slowest put off, as far as they
    fit between the passes of a neighbour:

        (p-1) (F + B - W) - min(m-1, p-1) min(W, B - W, F),    one third of 1F1B's where F = B - W = W,

    and at least (p-1) F, as the first micro-batch has to come. All five equal the event loop on equal stages.

    Parameters
    ----------
    schedule : places in `SCHEDULES`.
    stages : stages of the pipeline.
    chunks : pieces of the model on each stage.
    micro_batches : micro-batches of each rank in a step.
    slowest : seconds of a micro-batch on the slowest stage.
    total : seconds of a micro-batch on all stages together.
    """
    forward, backward, late = (
        np.where(stages > 1, pipeline - stage, 0.0) for pipeline, stage in zip(total, slowest, strict=True)
    )
    others, neighbours = forward + backward, np.maximum(stages - 1, 1)
    room = np.minimum(slowest.backward - slowest.weights, slowest.forward)
    back = late * (1 - 1 / neighbours) + slowest.weights
    behind = np.minimum(micro_batches - 1, stages - 1) * np.minimum(slowest.weights, room)
    zero_bubble = np.maximum(others - back - behind, forward)
    is_a = [schedule == SCHEDULES.index(name) for name in ("naive", "interleaved", "zero_bubble")]
    return np.select(is_a, [micro_batches * others, others / chunks, zero_bubble], others)


class SpareSeconds(NamedTuple):
    """Seconds of one micro-batch on a piece or on a stage beside which more can be sent.

    Attributes
    ----------
    forward, backward : of each pass that hide nothing yet.
    weights : of `backward`: gradients of weights that a zero-bubble schedule may do later.
    sending : of the messages of both passes, hidden or not.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers
    sending: Numbers


@dataclass(frozen=True, eq=False)
class Pass:
    """Seconds of one micro-batch through one piece of the model, forward and backward.

    Attributes
    ----------
    forward : forward pass without communication.
    backward : backward pass without communication and without what is recomputed.
    weights : of `backward`: gradients of weights that hide nothing, which a zero-bubble schedule may do later.
    recomputed : what the backward pass computes again.
    tensor : exposed communication of the ranks that split a layer, a sequence or the experts, both ways and recomputed.
    tensor_forward : of `tensor`, in the forward pass.
    hidden_forward, hidden_backward : communication of these ranks that the computing of a pass hides.
    host_forward, host_backward : what a pass waits for copies to the host, or back.
    """

    forward: Numbers
    backward: Numbers
    weights: Numbers
    recomputed: Numbers
    tensor: Numbers
    tensor_forward: Numbers
    hidden_forward: Count = 0.0
    hidden_backward: Count = 0.0
    host_forward: Count = 0.0
    host_backward: Count = 0.0

    def __getitem__(self, where: NDArray[np.int64]) -> Pass:
        """The seconds at some places."""
        return Pass(*(array[where] if np.ndim(array) else array for array in vars(self).values()))

    def times(self, count: Count, more: Pass) -> Pass:
        """So many times this piece, and `more`."""
        pairs = zip(vars(self).values(), vars(more).values(), strict=True)
        return Pass(*(count * each + other for each, other in pairs))

    def where(self, condition: Numbers, other: Pass) -> Pass:
        """This piece where the condition holds, and `other` elsewhere."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Pass(*(np.where(condition, *pair) for pair in pairs))

    @property
    def seconds(self) -> StageSeconds:
        """Both passes, and the gradients of weights."""
        return StageSeconds(self.forward_total, self.backward_total, self.weights)

    @property
    def forward_total(self) -> Numbers:
        """The whole forward pass."""
        return self.forward + self.tensor_forward + self.host_forward

    @property
    def backward_total(self) -> Numbers:
        """The whole backward pass."""
        return self.backward + self.recomputed + self.tensor - self.tensor_forward + self.host_backward

    @property
    def total(self) -> Numbers:
        """Both passes."""
        return self.forward_total + self.backward_total

    @property
    def forward_room(self) -> Numbers:
        """Computing and waiting for the host in the forward pass that hide no message yet."""
        return self.forward - self.hidden_forward + self.host_forward

    @property
    def backward_room(self) -> Numbers:
        """Computing and waiting for the host in the backward pass that hide no message yet."""
        return self.backward + self.recomputed - self.hidden_backward + self.host_backward
