"""Runs the cells of a grid side by side. A cell that dies takes nothing with it, and other runners may share the work.

Each cell is a process that holds the lock of its run folder; what another runner holds is looked at again until it is
finished or free.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from commeff.experiments.grid.local.exit_codes import BUSY, death, oom_kills
from commeff.experiments.grid.local.server import Server
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.store import FINISHED, RunFolder

Launch = Callable[[Cell, Sequence[str], Connection], None]  # see `as_step`
BUSY_AGAIN = 1.0  # seconds between two looks at a cell that another runner holds
OUR_GRACE = 90.0  # seconds that a stopping cell has before it is ended
BAD = ("failed", "timeout", "oom", "killed")


class View(Protocol):
    """Who watches the runner."""

    def started(self, cell: Cell) -> None:
        """A cell has begun."""

    def progress(self, cell: Cell, step: int, row: dict[str, Any]) -> None:
        """A cell is at a step."""

    def ended(self, cell: Cell, state: str, seconds: float, error: str) -> None:
        """A cell has ended, here or (seconds = 0) elsewhere."""

    def left(self, cell: Cell) -> None:
        """A cell that had begun is run by somebody else."""

    def beat(self, waiting: int, elsewhere: int) -> None:
        """Some time has passed; so many cells wait, so many are run by others."""


@dataclass
class Limits:
    """-j (processes at a time), --timeout (seconds a cell, 0: none) and --max-failures (0: any number)."""

    jobs: int
    timeout: float = 0.0
    max_failures: int = 0

    def admit(self, cell: Cell, running: Sequence[Cell]) -> bool:
        """Whether -j has room for all processes of a cell. What comes after it waits too: else it might wait for ever.

        A cell of more processes than -j runs alone.
        """
        return sum(other.slots(self.jobs) for other in running) + cell.slots(self.jobs) <= self.jobs


@dataclass
class _Running:
    cell: Cell
    process: BaseProcess
    line: Connection
    begun: float = field(default_factory=time.monotonic)
    stopped: float | None = None  # when it was asked to stop
    late: bool = False  # asked because of the timeout
    error: str = ""  # what it says of its end


class Scheduler:
    """Runs cells until all have ended, failures are too many, or somebody presses Ctrl-C.

    The first Ctrl-C (or SIGTERM) stops every cell with a checkpoint; the second ends them at once. `launch` is what
    starts the processes of a cell that has several, in a process of its own, if not the cell itself.
    """

    def __init__(
        self, limits: Limits, server: Server, launch: Launch | None = None, plugins: Sequence[str] = ()
    ) -> None:
        self.limits, self._server = limits, server
        self._launch, self._plugins = launch, tuple(plugins)
        self.states: dict[str, str] = {}
        self.interrupts = 0
        self._oom_kills = oom_kills()
        self._running: list[_Running] = []
        self._begun = time.time()
        self._view: View

    def run(self, cells: Sequence[Cell], view: View) -> dict[str, str]:
        """The state of every cell that has ended, by run."""
        self._view = view
        waiting, elsewhere = deque(cells), deque[Cell]()
        looked = 0.0
        with self._signals():
            try:
                while waiting or elsewhere or self._running:
                    while waiting and self._has_room(waiting[0]) and self._goes_on:
                        self._begin(waiting.popleft(), elsewhere)
                    if elsewhere and self._goes_on and time.monotonic() - looked > BUSY_AGAIN:
                        looked = time.monotonic()
                        for cell in [elsewhere.popleft() for _ in range(len(elsewhere))]:
                            if not self._settled(cell):
                                (elsewhere if RunFolder(cell.folder).busy else waiting).append(cell)
                    if not self._goes_on and not self._running:
                        break
                    self._attend(elsewhere)
                    self._view.beat(len(waiting), len(elsewhere))
            finally:
                for running in self._running:
                    running.process.kill()
        return self.states

    @property
    def _goes_on(self) -> bool:
        most = self.limits.max_failures
        return not self.interrupts and not (most and sum(s in BAD for s in self.states.values()) >= most)

    def _has_room(self, cell: Cell) -> bool:
        return self.limits.admit(cell, [running.cell for running in self._running])

    def _settled(self, cell: Cell) -> bool:
        """Whether somebody else has finished it, or has failed at it since we began; then it is told."""
        folder = RunFolder(cell.folder)
        state = folder.state
        fresh = state in BAD and state != "killed" and folder.read("status.json").get("time", 0.0) > self._begun
        if (state in FINISHED or fresh) and cell.folder.name not in self.states:
            self._end(cell, state, 0.0)
        return state in FINISHED or fresh

    def _begin(self, cell: Cell, elsewhere: deque[Cell]) -> None:
        if self._settled(cell):
            return
        if RunFolder(cell.folder).busy:
            elsewhere.append(cell)
            return
        if self._launch and cell.processes > 1:
            process, line = self._server.start(self._launch, cell, self._plugins)
        else:
            process, line = self._server.start(_run_cell, dict(cell.config), cell.folder)
        self._running.append(_Running(cell, process, line))
        self._view.started(cell)

    def _attend(self, elsewhere: deque[Cell]) -> None:
        """Hear what the cells say, for a moment, and see to those that have ended or should."""
        lines = {running.line: running for running in self._running}
        sentinels = [running.process.sentinel for running in self._running]
        if not self._running:
            time.sleep(0.1)
        heard = wait([*lines, *sentinels], timeout=0.2)
        for line in [line for line in heard if isinstance(line, Connection)]:
            self._hear(lines[line])
        for running in list(self._running):
            if not running.process.is_alive():
                self._running.remove(running)
                self._bury(running, elsewhere)
            else:
                self._hurry(running)

    def _hear(self, running: _Running) -> None:
        with suppress(EOFError, OSError):
            while running.line.poll():
                said = running.line.recv()
                if isinstance(said, str):
                    running.error = said
                else:
                    self._view.progress(running.cell, *said)

    def _hurry(self, running: _Running) -> None:
        now, limit = time.monotonic(), self.limits.timeout
        late = bool(limit) and now - running.begun > limit
        if (late or self.interrupts) and running.stopped is None:
            running.stopped, running.late = now, late
            with suppress(OSError):
                running.line.send("stop")
        elif running.stopped is not None and (self.interrupts > 1 or now - running.stopped > OUR_GRACE):
            running.process.kill()

    def _bury(self, running: _Running, elsewhere: deque[Cell]) -> None:
        """Say in the run's folder how it ended, where it could not say so itself."""
        running.process.join()
        self._hear(running)
        running.line.close()
        code, folder = running.process.exitcode, RunFolder(running.cell.folder)
        if code == BUSY:
            elsewhere.append(running.cell)
            self._view.left(running.cell)
            return
        state, facts = folder.state, {}
        if running.late and state not in FINISHED:
            state, facts = "timeout", {"error": f"longer than {self.limits.timeout:g} s; it goes on from a checkpoint"}
        elif state in ("queued", "running") or (state == "killed" and code):
            memory = code == -signal.SIGKILL and oom_kills() > self._oom_kills
            state = "oom" if memory else "failed" if running.error else "killed"
            facts = {"error": running.error or death(code)}
        if facts:
            with suppress(OSError), folder.claimed() as own:
                if own and folder.state not in FINISHED:
                    folder.mark(
                        state, **{key: folder.read("status.json").get(key) for key in ("step", "steps")}, **facts
                    )
        self._end(running.cell, state, time.monotonic() - running.begun, facts.get("error", ""))

    def _end(self, cell: Cell, state: str, seconds: float, error: str = "") -> None:
        self.states[cell.folder.name] = state
        self._view.ended(cell, state, seconds, error)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def ask(number: int, frame: FrameType | None) -> None:
            self.interrupts += 1

        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_cell(config: dict[str, Any], folder: Path, line: Connection) -> None:
    from commeff.experiments.grid.local.cell import run_cell  # with torch, which only the cell needs

    run_cell(config, folder, line)


def as_step(cell: Cell, plugins: Sequence[str], line: Connection) -> None:
    """Let srun start the processes of a cell, as a step of the SLURM job that we are in."""
    from commeff.experiments.grid.local.srun_step import run_step

    run_step(cell, plugins, line)


def default_jobs() -> int:
    """As many processes as this process may use cores."""
    return len(os.sched_getaffinity(0))
