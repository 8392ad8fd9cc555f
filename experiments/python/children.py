"""Commands in a process of their own, for what forks: the caller's process may be a notebook, or have no main guard."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.orphans import end_with_parent

REFUSED = 2


def command(*words: str, shown: bool = True) -> int:
    """Run `commeff WORDS` to its end, and pass on its output. An interrupt reaches it once, and it ends in order.

    Parameters
    ----------
    *words : str
        Of the command line.
    shown : bool
        Whether what it says on the way is printed here.

    Returns
    -------
    code : int
        Its exit code.

    Raises
    ------
    ConfigError
        What was asked for cannot be run; nothing has been written.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "commeff", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={name: value for name, value in os.environ.items() if name != "FORCE_COLOR"},  # Jupyter's; a pipe has lines
        start_new_session=True,  # a terminal's Ctrl-C would reach it twice
        preexec_fn=_prepare,
    )
    lines: list[str] = []
    while True:
        try:
            _listen(child, lines, shown)
            code = child.wait()
            break
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
    if code == REFUSED:
        raise ConfigError([line.removeprefix("commeff: ") for line in lines if line.startswith("commeff: ")])
    return code


def _prepare() -> None:
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # where this process ignores it, a child would too


def _listen(child: subprocess.Popen[str], lines: list[str], shown: bool) -> None:
    assert child.stderr is not None
    for line in child.stderr:
        lines.append(line.rstrip("\n"))
        if shown and not line.startswith("commeff: "):
            print(lines[-1], file=sys.stderr, flush=True)
