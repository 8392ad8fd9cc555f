"""Standard output and standard error, as a command can rely on them.

What cannot be written to standard output ends the command as `OutputLost`; what cannot be written to standard error is
dropped, so that a run goes on. Signs that a terminal has no code for are written as escapes.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, BinaryIO, TextIO, cast


class OutputLost(Exception):
    """Standard output cannot be written; no OSError, which commands take for a fault of their own files.

    Attributes
    ----------
    closed : whether the reader has had enough, as `head` does.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.closed = error.errno == errno.EPIPE


class _Output(FileIO):
    """A descriptor that reports its first failure, and then takes everything."""

    lost = False

    def write(self, data: Any, /) -> int:
        if not self.lost:
            try:
                return super().write(data) or 0
            except OSError as error:
                self.lost = True
                raise OutputLost(error) from None
        return len(memoryview(data))


class _Errors(FileIO):
    """A descriptor that takes everything, at once: a buffer would say it twice when Ctrl-C comes in between."""

    def write(self, data: Any, /) -> int:
        rest = memoryview(data)
        with suppress(OSError):
            while rest:
                rest = rest[super().write(rest) :]
        return len(memoryview(data))


@contextmanager
def dependable() -> Iterator[None]:
    """Wrap sys.stdout and sys.stderr, where they are this process's own (and not a test's).

    A descriptor that was closed is opened on /dev/null: else the next file would get its number.
    """
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):  # 1 refuses to be written, as before
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    before = sys.stdout, sys.stderr
    sys.stdout = _wrapped(before[0], _Output, 1)
    sys.stderr = _wrapped(before[1], _Errors, 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, OutputLost, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _wrapped(stream: TextIO | None, kind: type[FileIO], number: int) -> TextIO:
    try:
        own = stream is None or stream.fileno() == number
    except (OSError, ValueError):
        own = False
    if stream is not None and not own:
        return stream
    raw, encoding = kind(number, "w", closefd=False), stream.encoding if stream is not None else "utf-8"
    if number == 2:
        return TextIOWrapper(cast(BinaryIO, raw), encoding, "backslashreplace", write_through=True)
    return TextIOWrapper(BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.isatty())
