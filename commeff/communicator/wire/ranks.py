"""Processes that save and load together."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from commeff.communicator.wire.group import timeout_of
from commeff.communicator.wire.records import gather_states, share_json


class Ranks:
    """The processes of a torch.distributed group, which tell each other facts, or this process alone.

    Attributes
    ----------
    rank, size : int
        Which of them this one is, and how many there are.
    """

    def __init__(self, group: Any = None, alone: bool = True) -> None:
        self._group, self.size = group, 1 if alone else dist.get_world_size(group)
        self.rank = 0 if alone else dist.get_rank(group)

    @classmethod
    def beside(cls) -> Ranks:
        """All processes, in a group of their own, so that they can talk while a run goes on; all of them call it."""
        if not dist.is_initialized():
            return cls()
        return cls(dist.new_group(backend="gloo", timeout=timeout_of()), alone=False)

    def share(self, value: Any) -> list[Any]:
        """What each of them says, in rank order: as JSON has it."""
        return [value] if self.size == 1 else share_json(value, self._group)

    def gather(self, state: Any) -> list[Any] | None:
        """Everybody's state in rank order at rank 0, None elsewhere: numbers, text, tensors and containers of them."""
        return [state] if self.size == 1 else gather_states(state, self._group)
