"""Encoders: compressors with a memory."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.strategy import Encoder, Scope
from compressors import Compressor, Layout, Message, contractive


class Plain(Encoder):
    """v -> C(v): a compressor as an encoder, without memory."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor

    @property
    def scope(self) -> Scope:
        return self.compressor.scope

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        self._bound = self.compressor.bind(layout)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        return self._bound.compress(vectors, communicator.random(purpose))


def encoder(compressor: Encoder | Compressor) -> Encoder:
    """A compressor as an encoder; an encoder as it is."""
    return compressor if isinstance(compressor, Encoder) else Plain(compressor)


class ErrorFeedback(Encoder):
    """q = v + decay e;  send C(q);  e = q - C(q)   (arXiv 1809.07599, 1901.09847).

    C is made contractive: an unbiased compressor is divided by 1 + omega, since with error feedback it diverges
    otherwise.
    Memory: error, one row a sender, in the units of v.
    """

    rows = ("error",)

    def __init__(self, compressor: Compressor, decay: float = 1.0) -> None:
        self.compressor = Plain(contractive(compressor))
        self.decay = decay

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.compressor.start(x, layout, communicator)
        self.error = torch.zeros_like(x)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        wanted = torch.add(vectors, self.error, alpha=self.decay)
        message = self.compressor.encode(wanted, communicator, purpose)
        self.error = wanted - message.decode()
        return message


class Warmup(Encoder):
    """The encoder `first` for the first `steps` steps, `then` from there on. The clock decides, so nothing is
    remembered.
    """

    def __init__(self, first: Encoder | Compressor, steps: int, then: Encoder | Compressor) -> None:
        self.first, self.steps, self.then = encoder(first), steps, encoder(then)

    def start(self, x: Tensor, layout: Layout, communicator: Communicator) -> None:
        self.first.start(x, layout, communicator)
        self.then.start(x, layout, communicator)

    def encode(self, vectors: Tensor, communicator: Communicator, purpose: str) -> Message:
        return (self.first if communicator.step < self.steps else self.then).encode(vectors, communicator, purpose)
