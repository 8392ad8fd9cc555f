"""What the worker axis of a policy does, in the words of `commeff train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.method_words import label, strategy
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.planner import WorkerMethod
from commeff.planner.worker_method import PLAIN

if TYPE_CHECKING:
    from commeff.core import Strategy

PARTS = ("method", "compressor", "topology")  # a word of one of these, or of something in it, describes the method
DEGREES = {1: ("topology=one_peer_exponential",), 2: ("topology=ring",)}


@dataclass(frozen=True)
class MethodWords:
    """A strategy of any number of workers, as the planner takes it; as text, what tables and figures call it.

    Attributes
    ----------
    words : `key=value` of a method, its compressor and its topology.
    plugins : choices that they may name beside the built-in ones.

    Examples
    --------
    >>> str(MethodWords(("method=choco", "compressor=top_k", "compressor.ratio=0.01", "topology=ring")))
    'choco, top_k, ratio 0.01, ring'
    """

    words: tuple[str, ...]
    plugins: tuple[Choice, ...] = field(default=(), compare=False, repr=False)

    def __call__(self, workers: int) -> Strategy:
        if self._regardless is not None:
            from commeff.experiments.config import build  # with torch

            return build.strategy(self._regardless)
        return self._composed(workers)[0]

    def _composed(self, workers: int) -> tuple[Strategy, dict[str, Any]]:
        return strategy([*self.words, "bucket_mb=0"], workers, self.plugins)  # what hides is the planner's

    @cached_property
    def _regardless(self) -> dict[str, Any] | None:
        """The configuration behind it, if it is the same for any number of workers, as of what has no topology."""
        try:
            few, more = (
                {key: value for key, value in self._composed(workers)[1].items() if key not in ("workers", "task")}
                for workers in (2, 4)
            )
        except ConfigError:
            return None
        return few if few == more else None

    def __str__(self) -> str:
        return label(self.words)


def is_method_word(setting: str) -> bool:
    """Whether a word describes what the worker axis does.

    >>> [is_method_word(word) for word in ("compressor.ratio=0.01", "period=8", "tensor=8")]
    [True, True, False]
    """
    key = setting.partition("=")[0]
    return key.split(".")[0] in PARTS or key in ("period", "degree")


def read_method(settings: Sequence[str], plugins: Sequence[Choice] = ()) -> str | MethodWords:
    """The method of `Policy`. `period=` is short for `method.period=`, `degree=` for a topology of that degree.

    >>> read_method(["method=psgd"]), str(read_method(["method=gossip_pga", "period=8", "degree=2"]))
    ('psgd', 'gossip_pga, period 8, ring')
    """
    words: list[str] = []
    if any(word.startswith("period=") for word in settings) and not any(
        word.startswith("method=") for word in settings
    ):
        raise ValueError("period must go with a method, such as method=local_sgd, got none")
    for setting in settings:
        key, _, value = setting.partition("=")
        if key == "degree":
            if not value.isdecimal() or int(value) < 1:
                raise ValueError(f"degree must be a whole number from 1 on, got {value!r}")
            words += DEGREES.get(int(value), ("topology=random_regular", f"topology.degree={value}"))
        else:
            words.append(f"method.{setting}" if key == "period" else setting)
    return PLAIN if words == [f"method={PLAIN}"] else MethodWords(tuple(words), tuple(plugins))


def method_words(method: WorkerMethod) -> tuple[str, ...]:
    """The words of a method, for `commeff plan`.

    >>> method_words(WorkerMethod(read_method(["method=local_sgd", "period=4"])))
    ('method=local_sgd', 'method.period=4')
    """
    return method.method.words if isinstance(method.method, MethodWords) else (f"method={method.name}",)
