"""Runs a function on n forked processes joined by a gloo group, with torch imported once."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch

from commeff.experiments.run.crew import Fork, crew
from tests.owned import PATIENCE

GRACE = 60.0  # seconds that the others have to check what they see, once one has failed


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    """The state after it was saved and read as data, nothing of it being executed."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def on_processes(n: int, function: Callable[[], Any]) -> list[Any]:
    """[function() at rank 0, ..., at rank n - 1]; an error at any rank is raised here with its traceback."""

    def member(fork: Fork) -> Any:
        torch.set_num_threads(1)
        with fork.group(PATIENCE):
            return function()

    with crew(n, member) as forks:
        return forks.results(grace=GRACE)
