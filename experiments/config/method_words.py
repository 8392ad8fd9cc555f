"""A method alone, from the words of `commeff train`: what `commeff scale` and `commeff plan` price without a run.

>>> words = ["method=choco", "compressor=top_k", "compressor.ratio=0.01", "topology=ring"]
>>> label(words)
'choco, top_k, ratio 0.01, ring'
>>> strategy(words, workers=8)[0].__class__.__name__
'Strategy'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.compose import SHORTHANDS, compose
from commeff.experiments.config.contained import refusing
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.config.settings import RUN

if TYPE_CHECKING:
    from commeff.core.strategy import Strategy

KEYS = ("collective", "bucket_mb")  # those of a run that change how its method communicates


def strategy(words: Sequence[str], workers: int, plugins: Sequence[Choice] = ()) -> tuple[Strategy, dict[str, Any]]:
    """The strategy that words describe, not started, and the whole configuration behind it.

    Parameters
    ----------
    words : `key=value` of method, compressor, topology, optimizer, schedule, `collective` and `bucket_mb`.
    workers : n, which topologies follow.
    plugins : choices beside the built-in ones.

    Raises
    ------
    ConfigError
        If a word belongs to a run and not to its method, or does not fit the others.
    """
    _check_keys(words)
    from commeff.experiments.config import build  # with torch

    config = compose([*words, f"workers={workers}"], plugins, unfinished=True)
    with refusing(f"{label([w for w in words if not w.startswith('bucket_mb=')])} with {workers} workers", []):
        method = build.strategy(config)
    return method, config


def check_words(words: Sequence[str], plugins: Sequence[Choice] = ()) -> None:
    """Refuse what is wrong with the words of some methods, as far as it is known without torch."""
    for method in split_methods(words):
        _check_keys(method)
        compose(method, plugins, unfinished=True, settled=False)


def _check_keys(words: Sequence[str]) -> None:
    faults = []
    for word in words:
        key = SHORTHANDS.get(word.partition("=")[0], word.partition("=")[0])
        if key.split(".")[0] == "task" or (key in RUN and key not in KEYS):
            faults.append(f"keys must describe a method here, got {word!r}: nothing is trained; leave it out")
    if faults:
        raise ConfigError(faults)


def split_methods(words: Sequence[str]) -> list[list[str]]:
    """The words of each method, its name first: every `method=` begins a new one, and what stands before the first
    belongs to all.

    >>> split_methods(["optimizer=adam", "method=psgd", "method=dsgd", "topology=ring"])
    [['method=psgd', 'optimizer=adam'], ['method=dsgd', 'optimizer=adam', 'topology=ring']]
    """
    starts = [i for i, word in enumerate(words) if word.startswith("method=")]
    if not starts:
        return [[*words]] if words else []
    ends = [*starts[1:], len(words)]
    shared = words[: starts[0]]
    return [[words[start], *shared, *words[start + 1 : end]] for start, end in zip(starts, ends, strict=True)]


def label(words: Sequence[str]) -> str:
    """A method's words for tables and figures: the choices by their names, the settings by theirs.

    >>> label(["method=local_sgd", "method.period=8"])
    'local_sgd, period 8'
    """
    words_shown = []
    for word in words:
        key, _, value = word.partition("=")
        name = key.split(".")[-1]
        words_shown.append(f"{name} {value}" if "." in key or key in KEYS else value)
    return ", ".join(words_shown) or "psgd"
