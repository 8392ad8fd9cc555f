"""One cell in a process of its own: what runs there, and how it is told to stop."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from commeff.experiments.config.plugins import admit
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.server import BUSY, CLOSED
from commeff.experiments.run.local import LOCAL, Forks
from commeff.experiments.run.progress import Stop, Throttled
from commeff.experiments.run.runner import RunBusy, RunFailed, run_one
from commeff.experiments.run.store import RunFolder
from commeff.experiments.run.system import VISIBLE
from commeff.files import regular

GRACE = 60.0  # seconds that a cell has to write a checkpoint once it should stop


def run_cell(
    config: Mapping[str, Any],
    folder: Path,
    connection: Connection,
    forks: Forks = LOCAL,
    orphaned: float = GRACE,
    gpus: Sequence[str] = (),
    plugins: Sequence[str] = (),
) -> None:
    """Run a cell, and report its progress and its failure to the runner. What it prints goes to log.txt.

    The failure goes over the connection too, since a full disk may keep it from the folder. Any message from the runner
    means: stop after the step under way, with a checkpoint. So does the runner's death, which closes the connection.

    Parameters
    ----------
    config, folder : of the run.
    connection : to the runner.
    forks : how the processes of a run of several are forked.
    orphaned : seconds by which the cell may outlive its runner.
    gpus : those that this process may use, as CUDA_VISIBLE_DEVICES has them; none: as they are.
    plugins : those that the runner was given.
    """
    to_log(folder)
    faulthandler.enable()
    if gpus:
        os.environ[VISIBLE] = ",".join(gpus)  # CUDA reads it when it is first used, which is later
    stop = Stop()

    def send(message: object) -> None:
        with suppress(OSError):  # the runner is gone, which stops this cell
            connection.send(message)

    threading.Thread(target=_stop_on_message, args=(connection, stop, orphaned), daemon=True).start()
    code = 0
    try:
        admit(plugins, config)
        run_one(config, folder, Throttled(lambda step, row: send((step, row))), stop, forks)
    except RunBusy:
        code = BUSY
    except RunFailed as error:
        send(str(error))
        code = 1
    except ConfigError as error:  # what was possible when the grid was planned is so no longer
        send(str(error))
        RunFolder(folder).fail(str(error))
        print(error, file=sys.stderr)
        code = 1
    leave(folder, code)


def to_log(folder: Path) -> None:
    """Detach this process from the terminal's signals, and send its output to log.txt."""
    os.setsid()  # Ctrl-C on the terminal is for the runner
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "log.txt", "a", opener=regular) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
    except OSError:
        os._exit(CLOSED)


def leave(folder: Path, code: int) -> NoReturn:
    """End this process at once, without destructors: everything is on disk. An empty log is removed."""
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
        if code != BUSY and not (folder / "log.txt").stat().st_size:
            (folder / "log.txt").unlink()
    os._exit(code)


def _stop_on_message(connection: Connection, stop: Stop, orphaned: float) -> None:
    grace = GRACE
    try:
        connection.recv()
    except (EOFError, OSError):  # the runner is gone
        grace = orphaned
    stop.requested = True
    time.sleep(grace)
    os._exit(1)
