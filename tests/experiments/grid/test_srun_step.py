"""A cell as a step of a SLURM job: which step it is, and that it ends alone, in time and with a reason."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from commeff.experiments.cli.grid import check_launcher as check
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local import srun_step as step
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import RunFolder
from tests import owned
from tests.experiments.run.launchers import gone

JOB = {"SLURM_JOB_ID": "7", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
COMMEFF = r"""#!/usr/bin/env bash
# Stands for `commeff train` on one of its nodes: begins the run in $1, and stops with a checkpoint.
run=$1
mark() {
  printf '{"state": "%s", "host": "%s", "pid": %d, "time": %d}' "$1" "$(hostname)" $$ "$(date +%s)" >"$run/status.json"
}
trap 'mark killed; exit 130' TERM
printf '{"job": "%s"}' "$SLURM_JOB_ID.$SLURM_STEP_ID" >"$run/env.json"
mark running
while true; do sleep 0.05; done
"""
Begin = Callable[..., tuple[RunFolder, BaseProcess, Connection]]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Begin a cell with a seed as a step: its folder, the process that attends to it, our end of the line."""
    programs, books = tmp_path / "bin", tmp_path / "books"
    for folder in (programs, books):
        folder.mkdir()
    for name in ("scancel", "srun"):
        (programs / name).symlink_to(Path(__file__).with_name("fake_slurm.sh"))
    for name, value in {**JOB, "FAKE_SLURM": str(books), "PATH": f"{programs}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    begun: list[BaseProcess] = []

    def begin(seed: int, commeff: str = COMMEFF) -> tuple[RunFolder, BaseProcess, Connection]:
        settings = {"task": "quadratic", "method": "psgd", "seed": str(seed)}
        config = compose([f"{key}={value}" for key, value in settings.items()])
        cell = Cell(1, {}, None, settings, config, tmp_path / "store" / run_id(config))
        command = tmp_path / f"commeff{seed}"
        command.write_text(commeff)
        command.chmod(0o755)
        monkeypatch.setattr(step, "own_command", lambda: [str(command), str(cell.folder)])
        ours, theirs = multiprocessing.Pipe()
        process = owned.process(_attended, (cell, ours, theirs))
        process.start()
        theirs.close()
        begun.append(process)
        return RunFolder(cell.folder), process, ours

    yield begin
    for process in begun:
        process.kill()


def _attended(cell: Cell, theirs: Connection, line: Connection) -> None:
    theirs.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as the server that forks it
    step.run_step(cell, [], line)


def test_a_job_without_srun_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is no srun on this machine"):
        check("srun", [], inside=True)


def test_a_step_is_known_once_it_has_begun_the_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert step.started_step(run, JOB) is None
    run.write("env.json", {"job": "6.3"})  # an earlier job
    assert step.started_step(run, JOB) is None
    run.write("env.json", {"job": "7.3"})
    assert step.started_step(run, JOB) == "7_2.3"
    assert step.started_step(run, {"SLURM_JOB_ID": "7"}) == "7.3"


def test_a_cell_stops_alone_and_its_processes_end_with_who_attends_to_it(begin: Begin) -> None:
    (first, one, line), (second, other, _other_line) = begin(1), begin(2)
    owned.until(lambda: first.state == second.state == "running", "both cells")
    line.send("stop")
    one.join(owned.PATIENCE)
    assert one.exitcode == 0
    assert (first.state, second.state) == ("killed", "running")
    task = second.read("status.json")["pid"]
    other.kill()
    assert gone([task])


def test_what_stops_a_cell_before_it_begins_ends_its_processes(begin: Begin) -> None:
    run, process, line = begin(1, '#!/usr/bin/env bash\necho $$ >"$1/pid"\nwhile true; do sleep 0.05; done\n')
    owned.until((run.path / "pid").exists, "the processes")
    line.close()
    process.join(owned.PATIENCE)
    assert process.exitcode not in (0, None)
    assert run.state == "queued"
    assert gone([int((run.path / "pid").read_text())])


def test_a_cell_that_does_not_begin_says_why(begin: Begin) -> None:
    run, process, _line = begin(1, "#!/usr/bin/env bash\necho 'commeff: no data here' >&2\nexit 2\n")
    process.join(owned.PATIENCE)
    status = run.read("status.json")
    assert (status["state"], status["error"]) == (
        "failed",
        "srun ended with exit code 2 before the run began; log.txt says why",
    )
    assert "no data here" in (run.path / "log.txt").read_text()
