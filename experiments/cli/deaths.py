"""The error message of a command that measures on several processes, when one of them dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from commeff.experiments.cli.common import complain


@contextmanager
def deaths() -> Iterator[None]:
    """A process that took part has died: one line, and exit code 1."""
    try:
        yield
    except RuntimeError as error:
        complain(str(error))
        raise typer.Exit(1) from None
