"""What is wrong in a table's own code, told in one line with the file and the line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commeff.experiments.config.contained import ProcessEnding, is_interrupt
from commeff.experiments.config.schema import ConfigError


class TableError(ValueError):
    """What a table says and cannot mean."""


@contextmanager
def own_code(path: Path) -> Iterator[None]:
    """Turn an error that passed through a table's code into one line; another error passes.

    Raises
    ------
    ConfigError : with the file, the line and the reason.
    """
    try:
        yield
    except BaseException as raised:
        error = raised.__cause__ if isinstance(raised, ProcessEnding) and raised.__cause__ else raised
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines.append(error.lineno)
        if isinstance(error, TableError) and not lines:
            raise ConfigError([f"{path.name}: {error}"]) from None
        if not lines or is_interrupt(error):
            raise
        ours = isinstance(error, (TableError, ConfigError, OSError))
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        words = [*([] if ours else [type(error).__name__]), *filter(None, [" ".join(text.split())])]
        raise ConfigError([f"{path.name} line {lines[-1]}: {': '.join(words)}"]) from None
