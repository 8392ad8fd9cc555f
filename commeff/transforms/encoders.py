"""Encoders: compressors with a memory."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from commeff import require
from commeff.communicator import Communicator
from commeff.compressors import Compressor, Layout, Message, contractive
from commeff.core.strategy import Encoder, Timetable


class Plain(Encoder):
    """v -> C(v): a compressor as an encoder, without memory.

    Parameters
    ----------
    compressor : Compressor
        C.
    """

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        self._bound = self.compressor.bind(layout)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        return self._bound.compress(vectors, communicator.random(purpose))

    def omega(self, layout: Layout, method: str, other: str) -> float:
        """The omega of C on whole vectors; a biased C is refused where the method needs an unbiased one."""
        omega = self.compressor.bind(layout).omega(layout.size)
        if omega is None:
            raise ValueError(
                f"{method} needs an unbiased compressor, got {type(self.compressor).__name__}, which is biased: what "
                f"it drops is lost; choose one such as random_k, natural or qsgd, or {other}, which is made for others"
            )
        return omega


def as_encoder(encoder: Encoder | Compressor) -> Encoder:
    """A compressor as an encoder; an encoder as it is."""
    if not isinstance(encoder, (Encoder, Compressor)):
        raise TypeError(f"an encoder or compressor is needed, got {encoder!r}: give one, such as TopK(ratio=0.01)")
    return encoder if isinstance(encoder, Encoder) else Plain(encoder)


class ErrorFeedback(Encoder):
    """q = v + decay e;  send C(q);  e = q - C(q)   (arXiv 1809.07599, 1901.09847).

    C is made contractive: an unbiased compressor is divided by 1 + omega, since with error feedback it diverges
    otherwise.
    Memory: error, one row a sender, in the units of v.

    Parameters
    ----------
    compressor : Compressor
        C, biased or not.
    decay : float
        The share of the error that is kept, in [0, 1].
    """

    rows = ("error",)

    def __init__(self, compressor: Compressor, decay: float = 1.0) -> None:
        require.within("[0, 1]", decay=decay)
        self.compressor = Plain(contractive(compressor))
        self.decay = decay

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.error = torch.zeros_like(v)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        target = torch.add(vectors, self.error, alpha=self.decay, out=self.error)
        message = self.compressor.encode(target, communicator, purpose)
        memory = {part.untyped_storage().data_ptr() for part in message.parts}
        if target.untyped_storage().data_ptr() in memory:  # of numbers sent as they are
            self.error = target - message.decode()
        else:
            message.add_rows(target, -1)
        return message


class ErrorControl(ErrorFeedback):
    """Send C(v + eta e);  e = e + v - C(v + eta e)   (EControl, arXiv 2311.05645).

    Of EF21, whose v = gradient - public, it makes EControl: e is all that the public vectors have missed so far, so
    that x - lr mean e is plain SGD, and eta controls how strongly it is sent. eta = 0 is EF21, eta = 1 `ErrorFeedback`.
    C is made contractive.
    Memory: error, one row a sender, in the units of v.

    Parameters
    ----------
    compressor : Compressor
        C, biased or not.
    eta : float
        The share of the error that is sent each time, in [0, 1]; of the order of delta.
    """

    def __init__(self, compressor: Compressor, eta: float) -> None:
        require.within("[0, 1]", eta=eta)
        super().__init__(compressor)
        self.eta = eta

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        message = self.compressor.encode(torch.add(vectors, self.error, alpha=self.eta), communicator, purpose)
        self.error += vectors - message.decode()
        return message


class Warmup(Encoder):
    """The encoder `first` for the first `steps` messages, `then` from there on. Memory: how many there were.

    Parameters
    ----------
    first : Encoder or Compressor
        What encodes the first messages.
    steps : int
        How many they are.
    then : Encoder or Compressor
        What encodes the others.
    """

    shared = ("sent",)

    def __init__(self, first: Encoder | Compressor, steps: int, then: Encoder | Compressor) -> None:
        require.at_least(0, steps=steps)
        self.first, self.steps, self.then = as_encoder(first), steps, as_encoder(then)

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self.sent = 0

    def timetable(self) -> Timetable:
        settled = self.sent >= self.steps and self.then.timetable().settled
        return replace(super().timetable(), settled=settled)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        chosen = self.first if self.sent < self.steps else self.then
        self.sent += 1
        return chosen.encode(vectors, communicator, purpose)
