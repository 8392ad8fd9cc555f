"""Calls a listener for each span of gradients that is final, while backward still computes the rest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from commeff.compressors import Layout

Listener = Callable[[int, int], None]  # columns [start, stop) of the gradients are final


class Arrivals:
    """Says of each of the `awaited` spans of columns when all models have their gradients of it, if anybody listens.

    A span that ends inside a tensor goes with the next one. Of the arrivals of a parameter only the last made listen.

    Parameters
    ----------
    models : sequence of dict
        The parameters of each model by name, in the order of the layout.
    layout : Layout
        Where they lie in a row.
    awaited : sequence of (start, stop)
        The spans of columns.
    passes : int
        How many times a model adds to each gradient before it is final.
    late : set of str
        Tensors whose gradients are not final then: nothing is said of their spans.

    Attributes
    ----------
    begun : int
        How many backward passes have begun since `listen`, where more than one is allowed.
    """

    def __init__(
        self,
        models: Sequence[Mapping[str, nn.Parameter]],
        layout: Layout,
        awaited: Sequence[tuple[int, int]],
        passes: int = 1,
        late: Set[str] = frozenset(),
    ) -> None:
        self._layout, self._times = layout, len(models) * passes
        between = {field.start for field in layout.fields}
        begins = [start for start, _ in awaited if start in between]
        self._spans = list(pairwise([*begins, layout.d]))
        self._span_of = [bisect_right(begins, field.start) - 1 for field in layout.fields]
        silent = {self._span_of[i] for i, field in enumerate(layout.fields) if field.name in late}
        self._sizes = [self._span_of.count(span) * self._times + (span in silent) for span in range(len(begins))]
        self._missing: list[int] = []
        self._left: list[int] = []
        self._listener: Listener | None = None
        self.begun, self._once = 0, True
        for model in models:
            for i, parameter in enumerate(model.values()):
                parameter.heard_by = id(self)  # type: ignore[attr-defined]
                parameter.register_post_accumulate_grad_hook(partial(self._arrived, i))

    def listen(self, listener: Listener | None, once: bool = True) -> None:
        """The next backward pass of each model (or `passes` of them) is the last before the gradients are used.

        once : whether another one is refused; otherwise the listener hears of it too.
        """
        self._listener, self._once, self.begun = listener, once, 1
        self._missing, self._left = [self._times] * len(self._span_of), list(self._sizes)

    def _arrived(self, index: int, parameter: Tensor) -> None:
        if self._listener is None or getattr(parameter, "heard_by", None) != id(self):
            return
        self._missing[index] -= 1
        if self._missing[index] < 0 and not self._once:
            begun = self.begun + 1
            self.listen(self._listener, once=False)
            self.begun = begun
            self._missing[index] -= 1
        if self._missing[index] < 0:
            raise RuntimeError(
                f"the gradient of {self._layout.fields[index].name} came a second time, when it may have been sent "
                "already; to go backward several times before a step, do all but the last within optimizer.no_sync(), "
                "or give bucket_mb=0"
            )
        span = self._span_of[index]
        self._left[span] -= 1
        if not self._left[span]:
            self._listener(*self._spans[span])
