"""Code of others, kept inside: it may fail, but neither end this process nor speak on its standard output.

`sys.exit()`, `raise KeyboardInterrupt` and their like, written in a plug-in, would pass by every handler of errors;
they become errors here. Ctrl-C stays what it is: a command raises `Interrupt` for it, which plug-ins do not know.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType
from typing import NoReturn

from commeff.experiments.config.schema import ConfigError

end_process = os._exit  # for ours, also while code of a plug-in runs
PREFIX = "commeff_plugin_"  # of the module that a plug-in file becomes


class Interrupt(KeyboardInterrupt):
    """Somebody pressed Ctrl-C."""


class ProcessEnding(RuntimeError):
    """A plug-in raised what is no error: SystemExit, KeyboardInterrupt, GeneratorExit or a BaseException of its own."""


def interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """The handler of Ctrl-C. A second one ends the process at once, whatever the code under way makes of the first."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise Interrupt


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody pressed Ctrl-C, as far as one can know: Python's own handler raises what a plug-in may raise."""
    unknown = isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return unknown or isinstance(error, Interrupt)


def plugin_files() -> list[Path]:
    """The plug-in files that this process has executed, or executes."""
    loaded = [module for name, module in sys.modules.items() if name.startswith(PREFIX)]
    return [Path(module.__file__) for module in loaded if module.__file__]


def raised_at(error: BaseException, plugins: Iterable[Path]) -> str:
    """' (line 3 of FILE)' for the last line that an error went through of a plug-in or a file beside one, or ''."""
    folders = {plugin.resolve().parent for plugin in plugins}
    frames = traceback.extract_tb(error.__traceback__)
    lines = [
        f" (line {frame.lineno} of {frame.filename})" for frame in frames if Path(frame.filename).parent in folders
    ]
    return lines[-1] if lines else ""


@contextmanager
def contained() -> Iterator[None]:
    """Run code of a plug-in: what it prints goes to stderr, and whatever it raises is an error.

    Raises
    ------
    ProcessEnding : with the kind of what was raised, and its line in the plug-in.

    Examples
    --------
    >>> try:
    ...     with contained():
    ...         raise SystemExit(0)
    ... except ProcessEnding as error:
    ...     print(error)
    SystemExit: 0: a plug-in must return or raise an error
    """
    try:
        with redirect_stdout(sys.stderr), _no_exit():
            yield
    except BaseException as error:
        text = _text(error)
        if is_interrupt(error) or (isinstance(error, Exception) and text is not None):
            raise
        reason = ": ".join(filter(None, (type(error).__name__, text)))
        must = "return or raise an error" if text is not None else "raise errors that can be printed"
        raise ProcessEnding(f"{reason}{raised_at(error, plugin_files())}: a plug-in must {must}") from error


def _text(error: BaseException) -> str | None:
    """The words of an error in a line, None where its own code does not give them."""
    try:
        return " ".join(str(error).split())
    except BaseException as other:
        if is_interrupt(other):
            raise
        return None


@contextmanager
def refused(name: str, faults: list[str]) -> Iterator[None]:
    """Turn a constructor's error, of whatever kind a plug-in or a library raises, into one line of `faults`.

    An error that is no refusal names the line of the plug-in through which it came.
    """
    try:
        with contained():
            yield
    except ConfigError as error:
        faults += error.faults
    except MemoryError:
        faults.append(f"{name}: too large for this machine's memory; choose smaller dimensions")
    except Exception as error:
        is_refusal = isinstance(error, (ValueError, OSError, ProcessEnding))
        kind = "" if is_refusal or isinstance(error, TypeError) else f"{type(error).__name__}: "
        place = "" if is_refusal else raised_at(error, plugin_files())
        faults.append(f"{name}: {kind}{' '.join(str(error).split())}{place}")


@contextmanager
def refusing(name: str, faults: list[str]) -> Iterator[None]:
    """Like `refused`, but raise the faults, with the earlier ones."""
    with refused(name, faults):
        yield
    if faults:
        raise ConfigError(faults)


@contextmanager
def _no_exit() -> Iterator[None]:
    """Let `os._exit()` of this thread raise SystemExit; forks, and threads that watch over this process, may end."""
    really, process, thread = os._exit, os.getpid(), threading.get_ident()

    def leave(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) == (process, thread):
            raise SystemExit(status)
        really(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = really


@contextmanager
def importing(place: str) -> Iterator[None]:
    """Import a plug-in: a line says which one, when Ctrl-C ends it."""
    try:
        with contained():
            yield
    except KeyboardInterrupt:
        print(f"commeff: interrupted while importing {place}", file=sys.stderr)
        raise
