"""Hearing of gradients while the rest of them is still computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from torch import Tensor, nn

from compressors import Layout

Listener = Callable[[int, int], None]  # columns [start, stop) of the gradients are final


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that a run moves, by name; frozen ones stay as they are, in each replica."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


class Arrivals:
    """Says of each tensor's columns when all models have their gradients of it, if anybody listens."""

    def __init__(self, models: Sequence[nn.Module], layout: Layout) -> None:
        self._layout, self._models = layout, len(models)
        self._missing: list[int] = []
        self._listener: Listener | None = None
        for model in models:
            for i, parameter in enumerate(trainable(model).values()):
                parameter.register_post_accumulate_grad_hook(partial(self._arrived, i))

    def listen(self, listener: Listener | None) -> None:
        """The next backward pass of each model is the last before the gradients are used."""
        self._listener, self._missing = listener, [self._models] * len(self._layout.fields)

    def _arrived(self, index: int, parameter: Tensor) -> None:
        if self._listener is None:
            return
        field = self._layout.fields[index]
        self._missing[index] -= 1
        if not self._missing[index]:
            self._listener(field.start, field.stop)
        elif self._missing[index] < 0:
            raise RuntimeError(
                f"the gradient of {field.name} came a second time, when it may have been sent already; to go backward "
                "several times before a step, give bucket_mb=0"
            )
