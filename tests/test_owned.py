"""No process outlives its test: what `tests.owned` promises, and that nothing is started past it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from pathlib import Path

import pytest

from tests import forks, owned
from tests.experiments.run.launchers import children, torchrun

FOLDER = Path(__file__).parent
HOMES = {"owned.py", "forks.py", "test_owned.py"}
STARTS = re.compile(
    r"subprocess\.(run|call|check_\w+|getoutput|Popen\()|os\.(fork|forkpty|system|popen|posix_spawn\w*|spawn\w+)\("
    r"|(?<!owned)\.Process\(|\bPool\(|\bPopen\(|ProcessPoolExecutor|mp\.spawn|start_processes"
)
CLOCK = re.compile(r"\btime\.(time|monotonic|perf_counter|process_time)|from time import")
CLOCKED = {
    "test_grid_runs.py",  # a clock that jumps
    "test_lab.py",  # a link carries no more than its rate: a slow machine makes it no faster
    "test_clock.py",  # a clock that is moved by hand
}
ENDLESS = ["task=quadratic", "workers=4", "steps=100000000", "checkpoint_every=1000"]


def lines_with(pattern: re.Pattern[str], homes: set[str]) -> list[str]:
    """Where a pattern stands in tests other than its homes."""
    files = [path for path in FOLDER.rglob("*.py") if path.name not in homes]
    assert len(files) > 100
    return [
        f"{path.relative_to(FOLDER)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line)
    ]


def test_processes_are_started_in_one_place() -> None:
    assert lines_with(STARTS, HOMES) == [], "start it by tests.owned or tests.forks"


def test_no_test_looks_at_the_clock() -> None:
    """Waits are `owned.until`; work is counted by `tests.counting`."""
    assert lines_with(CLOCK, HOMES | CLOCKED) == []


@pytest.mark.parametrize("line", ["subprocess.run(words)", "os.fork()", "context.Process(target=f)", "Popen(words)"])
def test_a_start_elsewhere_is_seen(line: str) -> None:
    assert STARTS.search(line)


def shell() -> list[int]:
    process = owned.start(["bash", "-c", "sleep 1000 & sleep 1000"])
    owned.until(lambda: len(children(process.pid)) == 2, "the sleepers")
    return [process.pid, *children(process.pid)]


def interpreter() -> list[int]:
    return [owned.start([sys.executable, "-Sc", "import time; time.sleep(1000)"]).pid]


def command(folder: Path) -> list[int]:
    process = forks.command(["train", *ENDLESS, "nproc=2", "--store", str(folder)], stderr=subprocess.DEVNULL)
    owned.until(lambda: len(children(process.pid)) == 2, "two processes")
    return [process.pid, *children(process.pid)]


def launched(folder: Path) -> list[int]:
    job = torchrun(2, folder, ENDLESS)
    owned.until(lambda: len(children(job.pid)) == 2, "two members")
    return [job.pid, *children(job.pid)]


def orphan() -> list[int]:
    """A fork of a fork that has gone."""
    ours, theirs = Pipe()

    def leave_a_child() -> None:
        child = owned.fork()
        if child:
            theirs.send(child)
        else:
            time.sleep(1000)

    process = owned.process(leave_a_child)
    process.start()
    process.join()
    return [int(ours.recv())]


STARTED: dict[str, Callable[[Path], list[int]]] = {
    "shell": lambda folder: shell(),
    "interpreter": lambda folder: interpreter(),
    "command": command,
    "torchrun": launched,
    "orphan": lambda folder: orphan(),
}


@pytest.mark.parametrize("how", STARTED)
def test_what_a_test_leaves_behind_is_killed(how: str, tmp_path: Path) -> None:
    with owned.lifeline():
        pids = STARTED[how](tmp_path)
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert ended(pids)


def test_everything_ends_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    ours, theirs = Pipe()

    def test_process() -> None:
        with owned.lifeline():
            theirs.send([pid for how, begin in STARTED.items() for pid in begin(tmp_path / how)])
            time.sleep(1000)

    process = owned.process(test_process)
    process.start()
    assert ours.poll(owned.PATIENCE)
    pids = ours.recv()
    assert len(pids) > len(STARTED)
    assert process.pid is not None
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert ended(pids)


def ended(pids: list[int]) -> bool:
    owned.until(lambda: not any(map(owned.alive, pids)), f"the end of {pids}")
    return True
