"""How a command ends: always with an exit code, and with a line for whatever went wrong.

What cannot be written to standard output ends the command as `OutputLost`; what cannot be written to standard error is
dropped, so that a run goes on. Signs that a terminal has no code for are written as escapes.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, BinaryIO, TextIO, cast

import typer

from commeff.experiments.cli.common import complain
from commeff.experiments.config.contained import interrupt

FAILED, MISUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141  # 128 + the number of the signal, as shells have it
TRACEBACK = "COMMEFF_TRACEBACK"  # the environment variable that shows the traceback of a fault of ours
MISUSE: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer does not export


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
        is_original = stream is None or stream.fileno() == number
    except (OSError, ValueError):
        is_original = False
    if stream is not None and not is_original:
        return stream
    raw, encoding = kind(number, "w", closefd=False), stream.encoding if stream is not None else "utf-8"
    if number == 2:
        return TextIOWrapper(cast(BinaryIO, raw), encoding, "backslashreplace", write_through=True)
    return TextIOWrapper(BufferedWriter(raw), encoding, "backslashreplace", line_buffering=raw.isatty())


def exit_code(app: typer.Typer, words: Sequence[str] | None) -> int:
    """Run a command; its exit code."""
    with dependable(), _interruptible(), _seldom_collected():
        try:
            code = app(None if words is None else [*words], prog_name="commeff", standalone_mode=False)
            sys.stdout.flush()
            return code if isinstance(code, int) else 0
        except MISUSE as error:
            return _misused(error)
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except OutputLost as error:
            if not error.closed:
                complain(f"standard output cannot be written: {error}")
            return UNREAD if error.closed else FAILED
        except BaseException as error:
            return _unforeseen(error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise what no plug-in raises; where it is ignored, as under nohup, it stays so."""
    uses_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if uses_default:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if uses_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Let importing torch, whose objects stay, not be searched for garbage: a fifth of its time. Runs collect again."""
    before = gc.get_threshold()
    gc.set_threshold(100_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _misused(error: Any) -> int:
    """A command line that cannot be understood. Where there is no word at all, typer has printed the help."""
    if type(error).__name__ != "NoArgsIsHelpError":
        context = getattr(error, "ctx", None)
        where = context.command_path if context is not None else "commeff"
        reason = " ".join(error.format_message().split()).rstrip(".")
        complain(f"{reason}; see `{where} --help`")
    return MISUSED


def _unforeseen(error: BaseException) -> int:
    """Report an unforeseen error: a fault of commeff, or of a plug-in in a place that nobody thought of."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" (line {frame.lineno} of {frame.filename})" for frame in last)
    reason = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    complain(f"{reason}{where}: this should not happen; {TRACEBACK}=1 in the environment shows the traceback")
    return FAILED
