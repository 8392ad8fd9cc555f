"""Work that pauses where it waits for others, so that something else can be done in between.

A transform in *stages* is a generator: it yields a handle wherever its equation needs what others have sent, and is
resumed with the handle's result.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from commeff.communicator import Handle

Stages = Generator["Handle[Any]", Any, Tensor]


class Flow:
    """Stages under way: they have run up to their first communication, which travels meanwhile.

    Attributes
    ----------
    handle : Handle or None
        What is waited for; None at the end.

    Examples
    --------
    >>> def stages():
    ...     return 2 * (yield Handle(lambda: torch.ones(1)))
    >>> from commeff.communicator import Handle
    >>> import torch
    >>> flow = Flow(stages())
    >>> flow.handle is None, flow.finish()
    (False, tensor([2.]))
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self.handle: Handle[Any] | None = None
        self._result: Tensor
        self.send(None)

    def send(self, arrived: Any) -> None:
        """Resume with what has arrived, up to the next communication."""
        try:
            self.handle = self._stages.send(arrived)
        except StopIteration as end:
            self.handle, self._result = None, end.value

    def finish(self) -> Tensor:
        """Wait for all that is left, and give the result."""
        while self.handle is not None:
            self.send(self.handle.wait())
        return self._result
