"""How a command ends: always with an exit code, and with a line for whatever went wrong."""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from commeff.experiments.cli.common import complain
from commeff.experiments.cli.streams import OutputLost, dependable
from commeff.experiments.config.contained import interrupt

FAILED, MISUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141  # 128 + the number of the signal, as shells have it
TRACEBACK = "COMMEFF_TRACEBACK"  # the environment variable that shows the traceback of a fault of ours
MISUSE: Any = typer.BadParameter.__mro__[2]  # ClickException, which typer does not export


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
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        if ours:
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
    """What no command has foreseen: a fault of commeff, or of a plug-in in a place that nobody thought of."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" (line {frame.lineno} of {frame.filename})" for frame in last)
    reason = ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))
    complain(f"{reason}{where}: this should not happen; {TRACEBACK}=1 in the environment shows the traceback")
    return FAILED
