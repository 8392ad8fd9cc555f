"""Grids under way: nothing is repeated, nothing that dies takes anything with it, nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.grid.command import Request, prepare
from commeff.experiments.grid.local import scheduler
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.grid.local.server import ForkServer
from commeff.experiments.grid.plan.cells import total
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import RunFolder
from tests import owned
from tests.experiments.run.launchers import children
from tests.forks import command

SLOW = "base: {task: digits, workers: 4, steps: 100000, evaluate_every: 50, checkpoint_every: 20}\n"
PLUGIN = """
import os, signal, time
from pathlib import Path
from commeff.compressors import Dense

class Dies(Dense):
    def compress(self, vectors, random):
        if random._origin[2] >= 7:
            HOW[self.dtype]()
        return super().compress(vectors, random)

def error():
    raise RuntimeError("out of order")

def hang():
    Path(__file__).with_name("hangs").touch()
    time.sleep(0.5)

HOW = {"float64": error, "float32": lambda: os.kill(os.getpid(), signal.SIGKILL), "bfloat16": hang}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


def begin(folder: Path, *options: str) -> subprocess.Popen[str]:
    words = ["grid", str(folder / "mine.yaml"), "--store", str(folder / "store"), "--no-report", *options]
    return command(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, told = process.communicate(timeout=owned.PATIENCE)
    return process.returncode, told


def runs(folder: Path) -> list[Path]:
    return sorted(path.parent for path in (folder / "store").glob("*/status.json"))


def states(folder: Path) -> list[str]:
    return sorted(RunFolder(run).state for run in runs(folder))


def pids(folder: Path) -> list[int]:
    return [RunFolder(run).read("status.json")["pid"] for run in runs(folder)]


def test_a_grid_runs_once_and_is_written_down(tmp_path: Path) -> None:
    written(tmp_path, "base: {task: quadratic, workers: 4, steps: 5}\nseeds: [0, 1]\ngrid: [{method: [psgd, dsgd]}]\n")
    code, told = finish(begin(tmp_path, "--json"))
    assert code == 0, told
    assert states(tmp_path) == ["done"] * 4
    described = json.loads((tmp_path / "store" / "grids" / "mine.json").read_text())
    assert {cell["run"] for cell in described["cells"]} == {run.name for run in runs(tmp_path)}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*/summary.json")}
    code, told = finish(begin(tmp_path))
    assert code == 0
    assert "4 finished, 0 to run" in told
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*/summary.json")}
    (runs(tmp_path)[0] / "metrics.jsonl").write_text("")
    code, told = finish(begin(tmp_path))
    assert "0 to run" in told
    assert "metrics.jsonl is damaged, though the run is finished; remove" in told.replace("\n", " ")
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("*/summary.json")}
    for cell in described["cells"]:
        assert run_id(compose(cell["settings"])) == cell["run"], "the cell is not the run that `commeff train` makes"


def test_what_fails_fails_alone_and_says_how_to_run_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def clock() -> float:
        """The last cell hangs, and then days go by."""
        return time.monotonic() + 1e6 * (tmp_path / "hangs").exists()

    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=clock, time=time.time, sleep=time.sleep))
    (tmp_path / "mine.py").write_text(PLUGIN)
    written(
        tmp_path,
        "base: {task: quadratic, workers: 4, steps: 60}\n"
        "grid:\n  - {method: [psgd, local_sgd]}\n  - {method: dsgd, optimizer.lr: 1.0e+30}\n"
        "  - {method: compressed_sgd, compressor: dies, compressor.dtype: [float64, float32, bfloat16]}\n",
    )
    (tmp_path / "store").mkdir()
    taken = tmp_path / "store" / run_id(compose(["task=quadratic", "workers=4", "steps=60", "method=local_sgd"]))
    taken.write_text("a file where the run's folder should be")
    code, told = finish(begin(tmp_path, "--plugin", str(tmp_path / "mine.py"), "--timeout", "1000", "-j", "1"))
    assert code == 1
    assert "local_sgd seed 0: killed, ended: its folder cannot be written" in told
    assert states(tmp_path) == ["diverged", "done", "failed", "killed", "timeout"]
    assert "are not finite" in told
    assert "RuntimeError: out of order" in told
    assert f"again: commeff train --plugin {tmp_path}/mine.py task=quadratic" in told
    assert "ended by SIGKILL" in told
    (failed,) = [run for run in runs(tmp_path) if RunFolder(run).state == "failed"]
    assert "Traceback" in (failed / "error.txt").read_text()
    status = CliRunner().invoke(app, ["status", str(tmp_path / "store"), "--json"])
    wanted = {"queued": 1, "done": 1, "diverged": 1, "failed": 1, "timeout": 1, "killed": 1}
    assert json.loads(status.stdout)["mine"]["states"] == wanted


def test_a_failure_is_told_though_its_state_cannot_be_written(tmp_path: Path) -> None:
    written(tmp_path, "base: {task: quadratic, workers: 4, steps: 5}\ngrid: [{method: psgd}]\n")
    run = tmp_path / "store" / run_id(compose(["task=quadratic", "workers=4", "steps=5", "method=psgd"]))
    run.mkdir(parents=True)
    (run / ".status.json.draft").symlink_to("/dev/full")
    code, told = finish(begin(tmp_path))
    assert code == 1
    assert "psgd seed 0: failed, OSError: [Errno 40] is a link" in told


def test_enough_failures_end_a_grid(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN)
    written(
        tmp_path,
        "base: {task: quadratic, workers: 4, steps: 20, compressor: dies, compressor.dtype: float64}\n"
        "grid: [{method: compressed_sgd, optimizer.lr: [0.1, 0.2, 0.3, 0.4]}]\n",
    )
    code, _ = finish(begin(tmp_path, "--plugin", str(tmp_path / "mine.py"), "--max-failures", "2", "-j", "1"))
    assert code == 1
    assert states(tmp_path) == ["failed", "failed"]


def test_ctrl_c_stops_with_checkpoints_and_the_same_command_goes_on(tmp_path: Path) -> None:
    written(tmp_path, SLOW + "grid: [{method: [psgd, dsgd, local_sgd]}]\n")
    process = begin(tmp_path, "-j", "2")
    owned.until(lambda: len(list((tmp_path / "store").glob("*/checkpoints/latest.pt"))) == 2, "two checkpoints")
    cells = pids(tmp_path)
    process.send_signal(signal.SIGINT)
    code, told = finish(process)
    assert code == 130
    assert "the same command goes on" in told
    assert states(tmp_path) == ["killed", "killed"]
    assert not any(map(owned.alive, cells))
    assert all(RunFolder(run).read("status.json")["step"] >= 20 for run in runs(tmp_path))


def test_ctrl_c_at_the_start_is_quiet(tmp_path: Path) -> None:
    written(tmp_path, SLOW + "grid: [{method: psgd}]\n")
    words = ["grid", str(tmp_path / "mine.yaml"), "--store", str(tmp_path / "store")]
    with (tmp_path / "told").open("w") as told:
        process = owned.start([sys.executable, "-m", "commeff", *words], stderr=told)
    owned.until(lambda: len(children(process.pid)) == 2, "the tracker and the server, which imports")
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=owned.PATIENCE) == 130
    assert "Traceback" not in (tmp_path / "told").read_text()
    assert runs(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_signal_is_lost_while_the_server_begins(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, heard = forkserver.ensure_running, list[int]()

    def with_a_signal() -> None:
        os.kill(os.getpid(), number)
        begin()

    monkeypatch.setattr(forkserver, "ensure_running", with_a_signal)
    before = signal.signal(number, lambda number, frame: heard.append(number))
    try:
        masks = [signal.pthread_sigmask(signal.SIG_BLOCK, [])]
        found = ForkServer().call(how_signals_stand)
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    finally:
        signal.signal(number, before)
    assert heard == [number]
    assert masks[0] == masks[1]
    assert found == (set(), [signal.SIG_IGN, signal.SIG_IGN]), "deaf, but not to a handler of its own"


def how_signals_stand() -> tuple[set[int], list[Any]]:
    """Which of its signals this process holds back, and what it does with those that it hears."""
    ours = (signal.SIGINT, signal.SIGTERM)
    return signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(ours), [signal.getsignal(number) for number in ours]


def test_no_cell_outlives_its_runner(tmp_path: Path) -> None:
    written(tmp_path, SLOW + "grid: [{method: [psgd, dsgd]}]\n")
    process = begin(tmp_path, "-j", "2")
    owned.until(lambda: states(tmp_path) == ["running", "running"], "both cells")
    cells = pids(tmp_path)
    process.kill()
    process.wait()
    owned.until(lambda: states(tmp_path) == ["killed", "killed"], "the cells to be given up")
    owned.until(lambda: not any(map(owned.alive, cells)), "the cells to end")


def test_two_runners_share_the_work(tmp_path: Path) -> None:
    written(tmp_path, SLOW.replace("100000", "200") + "seeds: [0, 1, 2]\ngrid: [{method: [psgd, dsgd]}]\n")
    first, second = begin(tmp_path, "-j", "1"), begin(tmp_path, "-j", "1")
    (code, told), (other_code, other_told) = finish(first), finish(second)
    assert (code, other_code) == (0, 0), told + other_told
    assert states(tmp_path) == ["done"] * 6
    ended = [line for line in (told + other_told).splitlines() if ": done" in line and "by another" not in line]
    assert len(ended) == 6, "a cell ran twice, or not at all"


@pytest.mark.parametrize("part", [{"only": ["method=dsgd"]}, {"shard": "2/3"}, {"only": ["dsgd-quad", "queued"]}])
def test_a_part_of_a_grid(part: dict[str, Any], tmp_path: Path) -> None:
    file = written(tmp_path, "base: {task: quadratic, workers: 4}\ngrid: [{method: [psgd, dsgd, local_sgd]}]\n")
    cells, chosen = prepare(Request(file, store=tmp_path / "store", **part), rehearsed=False)
    assert len(cells) == 3
    assert [cell.labels["method"] for cell in chosen] == ["dsgd"]


def test_collecting_runs_nothing(tmp_path: Path) -> None:
    written(tmp_path, "base: {task: quadratic, workers: 4, steps: 5}\ngrid: [{method: [psgd, dsgd]}]\n")
    code, told = finish(begin(tmp_path, "--collect"))
    assert code == 1, "two cells are missing"
    assert "2 queued" in told
    assert runs(tmp_path) == []


@pytest.mark.parametrize("last", ["killed", "running", "failed", "timeout"])
def test_what_interrupts_a_run_is_counted_when_it_comes_back(last: str, tmp_path: Path) -> None:
    """A run that still says it is running, though nobody holds it, has died; heartbeats do not count."""
    for times in range(1, 4):
        run = RunFolder(tmp_path)
        with run.claimed() as own:
            assert own
            run.mark("running", step=0)
            run.mark("running", step=7)
            run.mark(last)
        began = times - 1
        counts = {"restarts": began, "preemptions": began if last in ("killed", "running") else 0}
        assert {name: run.read("status.json").get(name, 0) for name in counts} == counts
    with RunFolder(tmp_path).claimed():
        RunFolder(tmp_path).mark("killed")
    assert RunFolder(tmp_path).read("status.json")["restarts"] == 2, "who only says how it ended does not run it"


def test_cells_take_as_many_slots_as_they_have_processes(tmp_path: Path) -> None:
    products = "[{method: psgd}, {method: dsgd, nproc: 2}, {method: choco, nproc: 4}]"
    text = f"base: {{task: quadratic, workers: 4}}\ngrid: {products}\n"
    cells, _ = prepare(Request(written(tmp_path, text), store=tmp_path / "store"), rehearsed=False)
    assert [cell.slots(3) for cell in cells] == [1, 2, 3]
    seconds = total(cells, {"[]": 0.5}, 3)
    assert seconds == pytest.approx(cells[0].config["steps"] * 0.5 * 6 / 3)
    assert total(cells, {"[]": 0.5}, 100) == cells[0].config["steps"] * 0.5, "no cell is split over places"
    one, two, four = cells
    limits = Limits(jobs=3)
    assert limits.admit(two, [one])
    assert not limits.admit(two, [one, one])
    assert limits.admit(four, []), "a cell of more processes than -j would never run"
    assert not limits.admit(four, [one])
    assert not limits.admit(one, [four])
