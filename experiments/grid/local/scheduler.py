"""Runs the cells of a grid side by side. A cell that dies takes nothing with it, and other runners may share the work.

Each cell is a process that holds the lock of its run folder; what another runner holds is looked at again until it is
finished or free.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from commeff.experiments.grid.local.server import BUSY, ForkServer, count_oom_kills, describe_exit
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.progress import RowWords, on_signals
from commeff.experiments.run.store import BAD, FINISHED, RunFolder
from commeff.experiments.run.system import visible_gpus

if TYPE_CHECKING:
    from commeff.experiments.grid.local.view import Watch

Launch = Callable[[Cell, Sequence[str], Connection], None]  # see `as_step`
BUSY_AGAIN = 1.0  # seconds between two looks at a cell that another runner holds
OUR_GRACE = 90.0  # seconds that a stopping cell has before it is ended


@dataclass
class Limits:
    """-j (processes at a time), --timeout (seconds a cell, 0: none) and --max-failures (0: any number).

    `deadline`: when time.monotonic() says it, nothing more begins, and what runs stops with a checkpoint.
    """

    jobs: int
    timeout: float = 0.0
    max_failures: int = 0
    deadline: float = math.inf

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() > self.deadline

    def admit(self, cell: Cell, running: Sequence[Cell]) -> bool:
        """Whether -j has room for all processes of a cell. The cells after it wait too: else it might wait for ever.

        A cell of more processes than -j runs alone.
        """
        return sum(other.slots(self.jobs) for other in running) + cell.slots(self.jobs) <= self.jobs


@dataclass
class Running:
    """A cell that runs here: its process, and how far it is."""

    cell: Cell
    process: BaseProcess
    connection: Connection
    gpus: tuple[str, ...]
    words: RowWords
    step: int = 0
    row: dict[str, Any] = field(default_factory=dict)
    start: float = field(default_factory=time.monotonic)
    stop: float | None = None  # when it was told to stop
    late: bool = False  # told because of the timeout
    error: str = ""  # why it failed, as it reports itself


class Scheduler:
    """Runs cells until all have ended, failures are too many, time is over, or somebody presses Ctrl-C.

    The first Ctrl-C (or SIGTERM) stops every cell with a checkpoint; the second ends them at once.

    Parameters
    ----------
    limits : how many processes at a time, how long a cell may take, how many may fail.
    server : starts the processes of cells.
    launch : starts the processes of a cell that has several; None: the cell does so itself.
    plugins : the plug-ins that cells may need.

    Attributes
    ----------
    states : of every cell that has ended, by run.
    interrupts : how many signals to stop have come.
    left : the runs that the deadline has left over, with a checkpoint or before they began.
    """

    def __init__(
        self, limits: Limits, server: ForkServer, launch: Launch | None = None, plugins: Sequence[str] = ()
    ) -> None:
        self.limits, self._server = limits, server
        self._launch, self._plugins = launch, tuple(plugins)
        self.states: dict[str, str] = {}
        self.interrupts = 0
        self.left: set[str] = set()
        self._oom_kills = count_oom_kills()
        self._running: list[Running] = []
        self._start_time = time.time()
        self._view: Watch

    def run(self, cells: Sequence[Cell], view: Watch) -> None:
        """Run the cells."""
        self._view = view
        waiting, elsewhere = deque(cells), deque[Cell]()
        last_look = 0.0
        with on_signals(self._interrupt):
            try:
                while waiting or elsewhere or self._running:
                    while waiting and self._has_room(waiting[0]) and self._goes_on:
                        self._start(waiting.popleft(), elsewhere)
                    if elsewhere and self._goes_on and time.monotonic() - last_look > BUSY_AGAIN:
                        last_look = time.monotonic()
                        for cell in [elsewhere.popleft() for _ in range(len(elsewhere))]:
                            if not self._ended_elsewhere(cell):
                                (elsewhere if RunFolder(cell.folder).busy else waiting).append(cell)
                    if not self._goes_on and not self._running:
                        self.left |= {cell.folder.name for cell in (*waiting, *elsewhere) if self.limits.over}
                        break
                    self._watch(elsewhere)
                    self._view.tick(self._running, len(waiting), len(elsewhere))
            finally:
                for running in self._running:
                    running.process.kill()

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupts += 1

    @property
    def _goes_on(self) -> bool:
        most, failed = self.limits.max_failures, sum(state in BAD for state in self.states.values())
        return not (self.interrupts or self.limits.over or (most and failed >= most))

    def _has_room(self, cell: Cell) -> bool:
        return self.limits.admit(cell, [running.cell for running in self._running])

    def _ended_elsewhere(self, cell: Cell) -> bool:
        """Whether another runner has finished it, or has failed at it since this one started; then it is reported."""
        folder = RunFolder(cell.folder)
        state = folder.state
        fresh = state in BAD and state != "killed" and folder.read("status.json").get("time", 0.0) > self._start_time
        if ended := state in FINISHED or fresh:
            self._end(cell, state, 0.0)
        return ended

    def _start(self, cell: Cell, elsewhere: deque[Cell]) -> None:
        if self._ended_elsewhere(cell):
            return
        if RunFolder(cell.folder).busy:
            elsewhere.append(cell)
            return
        gpus: tuple[str, ...] = ()
        if self._launch and cell.processes > 1:
            process, connection = self._server.start(self._launch, cell, self._plugins)
        else:
            if cell.config["device"] == "cuda":
                cells_on = Counter(gpu for running in self._running for gpu in running.gpus)
                gpus = tuple(sorted(self._gpus, key=cells_on.__getitem__)[: cell.processes])
            process, connection = self._server.start(_run_cell, dict(cell.config), cell.folder, gpus, self._plugins)
        self._running.append(Running(cell, process, connection, gpus, RowWords(cell.config)))

    @cached_property
    def _gpus(self) -> list[str]:
        """The GPUs, which are dealt to the cells: one takes those with the fewest, one for each of its processes."""
        return visible_gpus(os.environ)

    def _watch(self, elsewhere: deque[Cell]) -> None:
        """Read the messages of the cells, for a moment, and handle those that have ended or should."""
        connections = {running.connection: running for running in self._running}
        sentinels = [running.process.sentinel for running in self._running]
        if not self._running:
            time.sleep(0.1)
        for ready in wait([*connections, *sentinels], timeout=0.2):
            if isinstance(ready, Connection):
                self._read(connections[ready])
        for running in list(self._running):
            if not running.process.is_alive():
                self._running.remove(running)
                self._finish(running, elsewhere)
            else:
                self._stop_if_due(running)

    def _read(self, running: Running) -> None:
        with suppress(EOFError, OSError):
            while running.connection.poll():
                message = running.connection.recv()
                if isinstance(message, str):
                    running.error = message
                else:
                    running.step, running.row = message

    def _stop_if_due(self, running: Running) -> None:
        now, limit = time.monotonic(), self.limits.timeout
        late = bool(limit) and now - running.start > limit
        if (late or self.interrupts or self.limits.over) and running.stop is None:
            running.stop, running.late = now, late
            with suppress(OSError):
                running.connection.send("stop")
        elif running.stop is not None and (self.interrupts > 1 or now - running.stop > OUR_GRACE):
            running.process.kill()

    def _finish(self, running: Running, elsewhere: deque[Cell]) -> None:
        """Write into the run's folder how it ended, where the run could not do so itself."""
        running.process.join()
        self._read(running)
        running.connection.close()
        code, folder = running.process.exitcode, RunFolder(running.cell.folder)
        if code == BUSY:
            elsewhere.append(running.cell)
            return
        state, error = folder.state, ""
        if state == "killed" and not code and running.stop is not None and not running.late and not self.interrupts:
            self.left.add(running.cell.folder.name)
            self._view.ended(running.cell, "stopped", time.monotonic() - running.start, "")
            return
        if running.late and state not in FINISHED:
            state, error = "timeout", f"longer than {self.limits.timeout:g} s; it goes on from a checkpoint"
        elif state in ("queued", "running") or (state == "killed" and code):
            memory = code == -signal.SIGKILL and count_oom_kills() > self._oom_kills
            state = "oom" if memory else "failed" if running.error else "killed"
            error = running.error or describe_exit(code)
        if error:
            folder.fail(error, state)
        self._end(running.cell, state, time.monotonic() - running.start, error)

    def _end(self, cell: Cell, state: str, seconds: float, error: str = "") -> None:
        self.states[cell.folder.name] = state
        self._view.ended(cell, state, seconds, error)


def _run_cell(
    config: dict[str, Any], folder: Path, gpus: tuple[str, ...], plugins: tuple[str, ...], connection: Connection
) -> None:
    from commeff.experiments.grid.local.cell import run_cell  # with torch, which only the cell needs

    run_cell(config, folder, connection, gpus=gpus, plugins=plugins)


def as_step(cell: Cell, plugins: Sequence[str], connection: Connection) -> None:
    """Let srun start the processes of a cell, as a step of the SLURM job around this process."""
    from commeff.experiments.grid.local.srun_step import run_step

    run_step(cell, plugins, connection)
