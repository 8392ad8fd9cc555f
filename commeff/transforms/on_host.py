"""Memories that lie in the host's main memory, while a GPU has better use for its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.compressors import Layout
from commeff.core.addresses import Address, Swap
from commeff.core.state import walk
from commeff.core.strategy import Stages, Traits, Transform, agrees, stages_of

HOST = torch.device("cpu")


class OnHost(Transform):
    """`inner`, whose memory is on the host, and on the device of its vectors only while it works.

    For what works rarely: each use copies the memory there and back. Memory and messages: those of `inner`.

    Parameters
    ----------
    inner : Transform
        What remembers.
    """

    traits = Traits(on_host=True)

    def __init__(self, inner: Transform) -> None:
        self.inner = inner

    def start(self, v: Tensor, layout: Layout, communicator: Communicator) -> None:
        super().start(v, layout, communicator)
        self._device, self._on_accelerator = v.device, v.device.type not in ("cpu", "meta")
        self._move(HOST)

    def stages(self, vectors: Tensor, communicator: Communicator) -> Stages:
        self._move(self._device)
        out = yield from stages_of(self.inner, vectors, communicator.child("inner"))
        self._move(HOST)
        return out

    def exchange(self, at: Address, swap: Swap) -> None:
        super().exchange(at, swap)
        self._move(HOST)  # what was loaded lies where the vectors do

    def agrees(self, step: int | None) -> bool:
        return agrees(self.inner, step)

    def _move(self, device: torch.device) -> None:
        if self._on_accelerator:
            for _, part in walk(self.inner):
                for name in part.rows:
                    setattr(part, name, _moved(getattr(part, name), device))


def _moved(value: Any, device: torch.device) -> Any:
    return {name: _moved(v, device) for name, v in value.items()} if isinstance(value, dict) else value.to(device)
