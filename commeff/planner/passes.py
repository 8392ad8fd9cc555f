"""Seconds of one micro-batch through pieces of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from commeff.planner.policies import Count, Numbers


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
