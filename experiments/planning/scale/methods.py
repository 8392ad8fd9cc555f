"""The methods of the curves, each by the words of `commeff train`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from commeff.core.strategy import Strategy
from commeff.experiments.config.method_words import label, split_methods, strategy
from commeff.experiments.config.plugins import Choice

PSGD, DSGD = ("method=psgd",), ("method=dsgd", "topology=one_peer_exponential")
AWC = ("method=dsgd", "method.order=awc", "topology=one_peer_exponential")
SHOWN = (
    PSGD,
    DSGD,
    AWC,
    ("method=local_sgd", "method.period=8"),
    ("method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01"),
)  # where no method is named
CHECKED = 8  # workers with which a method is built before anything runs


@dataclass(frozen=True)
class MethodChoice:
    """The method of one curve.

    Attributes
    ----------
    words : `key=value` as `commeff train` takes them.
    plugins : the choices of plug-ins that the words may name.
    """

    words: tuple[str, ...]
    plugins: tuple[Choice, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """What tables and figures call it.

        >>> [MethodChoice(words).name for words in SHOWN]
        ['psgd', 'dsgd, one_peer_exponential', 'dsgd, order awc, one_peer_exponential', 'local_sgd, period 8',
        'mem_sgd, top_k, ratio 0.01']
        """
        return label(self.words)

    def build(self, workers: int) -> tuple[Strategy, str]:
        """The strategy of so many workers, not started, and the collective of its averages."""
        built, config = strategy(self.words, workers, self.plugins)
        return built, config["collective"]


def read_methods(words: Sequence[str], plugins: Sequence[Choice] = ()) -> tuple[MethodChoice, ...]:
    """The methods of a command line, each begun by `method=`; those of `SHOWN` where none is given.

    >>> read_methods([])[1].words
    ('method=dsgd', 'topology=one_peer_exponential')
    """
    chosen = [tuple(own) for own in split_methods(words)] or SHOWN
    methods = tuple(MethodChoice(own, tuple(plugins)) for own in dict.fromkeys(chosen))
    for method in methods:
        method.build(CHECKED)
    return methods
