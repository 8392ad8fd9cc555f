"""Ways of the worker axis, by the words of `commeff train`."""

from __future__ import annotations

from commeff.experiments.planning.worker_words import MethodWords, read_method
from commeff.planner import WorkerMethod


def method(words: str) -> str | MethodWords:
    """What `Policy(method=...)` takes.

    >>> str(method("dsgd topology=ring"))
    'dsgd, ring'
    """
    return read_method(f"method={words}".split())


def way(words: str = "psgd", steps: float = 1.0) -> WorkerMethod:
    """The same, weighed by the steps that it needs."""
    return WorkerMethod(method(words), steps=steps)
