"""One cell in a process of its own: what runs there, and how it hears that it should stop."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.exit_codes import BUSY, CLOSED
from commeff.experiments.run.crew import Stop
from commeff.experiments.run.local import LOCAL, Forks, Throttled
from commeff.experiments.run.runner import RunBusy, RunFailed, run_one
from commeff.experiments.run.store import RunFolder

GRACE = 60.0  # seconds that a cell has to write a checkpoint once it should stop


def run_cell(
    config: Mapping[str, Any], folder: Path, line: Connection, forks: Forks = LOCAL, orphaned: float = GRACE
) -> None:
    """Run a cell and tell the runner over `line` how it goes, and at its end why it failed: a full disk keeps that from
    the folder. What it prints goes to log.txt.

    Whatever comes over the line means: stop after the step under way, with a checkpoint. So does the runner's death,
    which closes the line: no cell outlives its runner by more than `orphaned` seconds.
    """
    to_log(folder)
    faulthandler.enable()
    stop = Stop()

    def tell(said: object) -> None:
        with suppress(OSError):  # the runner is gone, as the listener hears too
            line.send(said)

    threading.Thread(target=_listen, args=(line, stop, orphaned), daemon=True).start()
    code = 0
    try:
        run_one(config, folder, Throttled(lambda step, row: tell((step, row))), stop, forks)
    except RunBusy:
        code = BUSY
    except RunFailed as error:
        tell(str(error))
        code = 1
    except ConfigError as error:  # what was good when the grid began is not so now
        tell(str(error))
        with suppress(OSError), RunFolder(folder).claimed() as own:
            if own:
                RunFolder(folder).mark("failed", error=str(error))
        print(error, file=sys.stderr)
        code = 1
    leave(folder, code)


def to_log(folder: Path) -> None:
    """Make this process one of its own, deaf to the terminal, whose words go to log.txt."""
    os.setsid()  # Ctrl-C on the terminal is for the runner
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "log.txt").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    except OSError:
        os._exit(CLOSED)


def leave(folder: Path, code: int) -> NoReturn:
    """End at once, without destructors: everything is on disk. A log that nobody wrote to goes."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        if code != BUSY and not (folder / "log.txt").stat().st_size:
            (folder / "log.txt").unlink()
    os._exit(code)


def _listen(line: Connection, stop: Stop, orphaned: float) -> None:
    grace = GRACE
    try:
        line.recv()
    except (EOFError, OSError):  # the runner is gone
        grace = orphaned
    stop.asked = True
    time.sleep(grace)
    os._exit(1)
