"""Grids on SLURM: what is written runs to the end on a fake one, preempted or not, and bad requests are refused."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from commeff.experiments.cli import app
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cell_list import read_cells
from commeff.experiments.grid.slurm.script import array, shapes
from commeff.experiments.grid.slurm.site import EXAMPLE, Site, find_site, read_site
from commeff.experiments.run.store import RunFolder
from tests import owned
from tests.fork_commands import commands

FAKE = Path(__file__).with_name("fake_slurm.sh")
GRID = "base: {task: quadratic, workers: 4, steps: 5}\ngrid: [{method: psgd, optimizer.lr: [0.1, 0.2, 0.3]}]\n"
LONG = (
    "title: Two cells\nbase: {task: quadratic, workers: 4, checkpoint_every: 50}\n"
    "grid:\n  - {method: psgd, steps: 5}\n  - {method: compressed_sgd, compressor: pausing, steps: 600}\n"
)
PAUSING = """
import os, signal, time
from commeff.compressors import Dense

calls, asked = 0, []

class Pausing(Dense):
    def compress(self, vectors, random):
        global calls
        calls += 1
        if calls == 100:
            stop = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *what: asked.append(what) or stop(*what))
        while calls == 400 and os.environ["SLURM_RESTART_COUNT"] == "0" and not asked:
            time.sleep(0.01)  # until this task is preempted
        return super().compress(vectors, random)
"""


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def grid(*words: object) -> Result:
    return CliRunner().invoke(app, ["grid", *map(str, words)])


def emitted(folder: Path, text: str, site: str = "requeues: 3\n", *words: str) -> Path:
    """The folder of scripts for a grid."""
    options = ["--store", folder / "store", "--site", written(folder, site, "site.yaml"), "--emit", folder / "out"]
    result = grid(written(folder, text), "--launcher", "sbatch", *options, *words)
    assert result.exit_code == 0, result.output
    return folder / "out"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The books of a fake SLURM, which is on PATH."""
    programs, books = tmp_path / "bin", tmp_path / "books"
    for folder in (programs, books):
        folder.mkdir()
    for name in ("sbatch", "scontrol", "squeue", "scancel", "srun"):
        (programs / name).symlink_to(FAKE)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(books))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("sys.executable", str(programs / "python"))  # beside which `commeff` is looked for
    with commands(programs):
        yield books


def preempt(books: Path, store: Path, number: int, method: str) -> None:
    """SIGTERM for the script of a task, once its run has a checkpoint: so SLURM warns it."""
    owned.until(lambda: list(store.glob(f"{method}-*/checkpoints/latest.pt")), "a checkpoint")
    os.kill(int((books / f"1_{number}.pid").read_text()), signal.SIGTERM)


def test_an_array_runs_to_the_end_though_a_task_is_preempted(slurm: Path, tmp_path: Path) -> None:
    home = tmp_path / "a place"
    home.mkdir()
    store = home / "store"
    words = [
        written(home, LONG),
        "--plugin",
        written(home, PAUSING, "pausing.py"),
        "--launcher",
        "sbatch",
        "--store",
        store,
    ]
    result = grid(*words, "--site", written(home, "", "s.yaml"))
    assert result.exit_code == 2, "an empty site file says nothing"
    result = grid(*words, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["jobs"]) == 2
    preempt(slurm, store, 1, "compressed_sgd")
    owned.until((slurm / "2.done").exists, "the report")
    runs = {path.parent.name.split("-")[0]: RunFolder(path.parent) for path in store.glob("*/status.json")}
    assert {run.state for run in runs.values()} == {"done"}, [(p, p.read_text()) for p in slurm.glob("*.out")]
    assert [runs[name].read("status.json").get("preemptions", 0) for name in ("psgd", "compressed_sgd")] == [0, 1]
    assert [(slurm / f"1_{i}.codes").read_text().split() for i in (0, 1)] == [["0"], ["130", "0"]]
    assert (store / "report" / "report.html").is_file()
    told = CliRunner().invoke(app, ["status", str(store)]).stdout
    assert "mine: 2 done; preempted once" in told


def test_a_cancelled_task_is_not_queued_again(slurm: Path, tmp_path: Path) -> None:
    """A task that is being cancelled hears the same signal, but SLURM does not call it RUNNING any more."""
    folder = emitted(tmp_path, GRID)
    script = written(tmp_path, (folder / "array_nproc1.sh").read_text(), "task.sh")
    words = script.read_text().splitlines()
    (line,) = [i for i, word in enumerate(words) if word.endswith("--no-report &")]
    words[line] = "  (trap 'exit 130' TERM; touch started; while true; do sleep 0.05; done) &"
    script.write_text("\n".join(words).replace(f"cd {Path.cwd()}", f"cd {tmp_path}"))
    for state, said in (("COMPLETING", "not queued again"), ("RUNNING", "is queued again")):
        for count, limit in ((0, False), (3, True)):
            (slurm / "9_1.state").write_text(state)
            environment = {"SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "1", "SLURM_RESTART_COUNT": str(count)}
            task = owned.start(["bash", str(script)], env=os.environ | environment, stdout=subprocess.PIPE)
            owned.until((tmp_path / "started").exists, "the task")
            task.send_signal(signal.SIGTERM)
            told = task.communicate(timeout=owned.PATIENCE)[0]
            assert task.returncode == 130
            assert ("submit it anew" if limit and state == "RUNNING" else said) in told
            assert (slurm / "9_1.requeue").exists() == (state == "RUNNING" and not limit)
            (slurm / "9_1.requeue").unlink(missing_ok=True)
            (tmp_path / "started").unlink()


@pytest.mark.parametrize("preempted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_srun_starts_the_processes_of_a_cell_that_one_node_cannot_hold(
    preempted: bool, slurm: Path, tmp_path: Path
) -> None:
    steps = 2000 if preempted else 5
    text = f"base: {{task: quadratic, workers: 4, steps: {steps}, checkpoint_every: 50}}\n"
    folder = emitted(tmp_path, text + "grid: [{method: psgd, nproc: 2}]\n", "processes_per_node: 1\n", "--no-report")
    owned.run([str(folder / "submit.sh")], check=True)
    if preempted:
        preempt(slurm, tmp_path / "store", 0, "psgd")
    owned.until((slurm / "2.done").exists, "the report")
    (run,) = [RunFolder(path.parent) for path in (tmp_path / "store").glob("*/status.json")]
    assert run.state == "done", (slurm / "1_0.out").read_text()
    assert run.read("status.json").get("preemptions", 0) == preempted
    assert (slurm / "1_0.codes").read_text().split() == ["130"] * preempted + ["0"]
    assert (slurm / "srun.log").read_text().split().count("nproc=2") == 1 + preempted


def test_every_script_is_one_that_bash_reads(tmp_path: Path) -> None:
    text = "base: {task: quadratic, workers: 4}\ngrid:\n  - {method: psgd, seed: [0, 1]}\n"
    text += "  - {method: dsgd, nproc: 2}\n  - {method: choco, nproc: 4}\n"
    site = 'setup: |\n  if true; then\n    echo hello\n  fi\nenvironment: {A: "it\'s $HOME"}\nprocesses_per_node: 2\n'
    folder = emitted(tmp_path, text, site, "--timeout", "30")
    scripts = sorted(folder.glob("*.sh"))
    assert [path.name for path in scripts] == [
        "array_nproc1.sh",
        "array_nproc2.sh",
        "array_nproc4.sh",
        "collect.sh",
        "submit.sh",
    ]
    for script in scripts:
        owned.run(["bash", "-n", str(script)], check=True)
    found = [script.read_text() for script in scripts[:3]]
    assert all("--timeout 30 &\n" in script for script in found)
    assert ["--launcher srun" in script for script in found] == [False, False, True]
    assert ["#SBATCH --nodes=2\n#SBATCH --ntasks=4\n" in script for script in found] == [False, False, True]
    assert ["#SBATCH --cpus-per-task=2\n" in script for script in found] == [False, True, False]
    assert ["#SBATCH --ntasks-per-node=2\n" in script for script in found] == [False, False, True]


def test_gpus_are_booked_for_the_runs_that_compute_on_them(tmp_path: Path) -> None:
    text = "base: {task: quadratic, workers: 4}\ngrid: [{method: psgd, seed: [0, 1]}]\n"
    site = "gpus_per_node: a100:2\noptions: [--gres=gpu:2, --gpus=2, --cpus-per-gpu=4, --gres=nvme:1]\n"
    folder = emitted(tmp_path, text, site)
    cells = read_cells(folder / "cells.jsonl").cells
    moved = replace(cells[1], config=dict(cells[1].config) | {"device": "cuda"})
    on_cpu, on_gpu = shapes([cells[0], moved], Site())
    assert [(shape.device, shape.cells) for shape in (on_cpu, on_gpu)] == [("cpu", 1), ("cuda", 1)]
    assert (on_cpu.name, on_gpu.name) == ("array_nproc1.sh", "array_cuda_nproc1.sh")
    booked = array(on_gpu, read_site(tmp_path / "site.yaml"), "", folder, "commeff", []).replace(str(tmp_path), "")
    assert [line.partition("=")[0] for line in booked.splitlines() if "gpu" in line] == [
        "#SBATCH --gpus-per-node",
        "#SBATCH --gres",
        "#SBATCH --gpus",
        "#SBATCH --cpus-per-gpu",
    ]
    assert " --only nproc=1 --only device=cuda " in booked
    for script in (folder / "array_nproc1.sh", folder / "collect.sh"):
        assert "gpu" not in script.read_text().replace(str(tmp_path), "")
        assert "#SBATCH --gres=nvme:1\n" in script.read_text()
    assert " --only nproc=1 --only device=cpu " in (folder / "array_nproc1.sh").read_text()


def test_the_list_holds_what_is_not_finished_and_runs_by_itself(tmp_path: Path) -> None:
    place = ["--store", tmp_path / "store", "--no-report"]
    assert grid(written(tmp_path, GRID), *place, "--only", "optimizer.lr=0.2").exit_code == 0
    folder = emitted(tmp_path, GRID, "cells_per_task: 2\n")
    cells = read_cells(folder / "cells.jsonl").cells
    assert [cell.settings["optimizer.lr"] for cell in cells] == ["0.1", "0.3"]
    assert "#SBATCH --array=0-0\n" in (folder / "array_nproc1.sh").read_text()
    before = (tmp_path / "store" / "grids" / "mine.json").read_bytes()
    result = grid(folder / "cells.jsonl", "--no-report", "--only", "nproc=1", "--shard", "2/2")
    assert result.exit_code == 0, result.output
    assert [RunFolder(cell.folder).state for cell in cells] == ["queued", "done"]
    assert (tmp_path / "store" / "grids" / "mine.json").read_bytes() == before
    assert len(json.loads(before)["cells"]) == 3


def test_what_is_settled_is_not_changed_afterwards(tmp_path: Path) -> None:
    plugin = written(tmp_path, "from commeff.compressors import Dense\n\nclass Mine(Dense):\n    pass\n", "mine.py")
    text = "base: {task: quadratic, workers: 4, steps: 5}\ngrid: [{method: compressed_sgd, compressor: mine}]\n"
    folder = emitted(tmp_path, text, "requeues: 0\n", "--plugin", str(plugin))
    cells = folder / "cells.jsonl"
    result = grid(cells, "steps=7", "--store", tmp_path / "other")
    assert result.exit_code == 2
    assert "'steps=7', --store: the cells of cells.jsonl are settled" in result.stderr
    for name in ("array_nproc1.sh", "collect.sh"):
        assert f" --plugin {plugin}" in (folder / name).read_text(), (
            "tasks are told the plug-ins, and take no list's word"
        )
    result = grid(cells, "--plugin", plugin, "--no-report")
    assert result.exit_code == 0, result.output
    plugin.write_text(plugin.read_text() + "\n\nNEW = 1\n")
    result = grid(cells, "--plugin", plugin)
    assert result.exit_code == 2
    assert "its plug-in has changed since" in result.stderr
    cells.write_text(cells.read_text()[:-40])
    assert "is damaged" in grid(cells, "--collect").stderr


def test_a_folder_is_written_once(tmp_path: Path) -> None:
    emitted(tmp_path, GRID)
    (tmp_path / "file").write_text("")
    for place, words in (("out", "the folder is not empty"), ("file", "--emit must be a folder")):
        again = grid(
            tmp_path / "mine.yaml", "--launcher", "sbatch", "--emit", tmp_path / place, "--store", tmp_path / "s"
        )
        assert again.exit_code == 2
        assert words in again.stderr
        assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--emit", "out"], "--emit goes with --launcher sbatch only"),
        (["--site", "site.yaml"], "--site goes with --launcher sbatch only"),
        (["--launcher", "sbatch", "--emit", "out", "-j", "4"], "array_limit and cells_per_task"),
        (["--launcher", "sbatch", "--emit", "out", "--collect"], "leave --launcher out"),
        (["--launcher", "sbatch"], "write the scripts with --emit FOLDER"),
        (["--launcher", "srun"], "begin one with salloc"),
        (["--launcher", "torchrun"], "no launcher 'torchrun'; choose from local, srun, sbatch"),
    ],
)
def test_what_does_not_go_with_a_launcher_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    result = grid(written(tmp_path, GRID), *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_all_faults_of_a_site_are_told_at_once(tmp_path: Path) -> None:
    text = (
        "partion: gpu\ntime: soon\ncpus_per_task: many\narray_limit: 0\nmodules: {a: b}\nenvironment: [A]\n"
        "options: [--array=3, mail, --partition=x]\naccount: |\n  a\n  b\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_site(written(tmp_path, text))
    assert [fault.removeprefix("mine.yaml") for fault in caught.value.faults] == [
        " has no use for 'partion'; did you mean partition?",
        ": cpus_per_task must be a whole number, got 'many'",
        ": modules must be a list of texts in one line each, got a mapping",
        ": environment must be variables and their values, such as {OMP_PROC_BIND: close}, got a list",
        ": account must be text in one line, got 'a\\nb\\n'",
        ": array_limit must be at least 1",
        ": time must be as SLURM has it, such as 4:00:00 or 1-12:00:00, got 'soon'",
        ": options: --array is set by commeff; leave it out",
        ": options: 'mail' is no option of sbatch; write --name=value",
        ": options: --partition is the key partition",
    ]
    assert "time must be at least 6 min, got 2" in grid_error(tmp_path, "time: '2'\n")


def grid_error(folder: Path, site: str) -> str:
    options = ["--site", written(folder, site, "site.yaml"), "--emit", folder / "out"]
    result = grid(written(folder, GRID), "--launcher", "sbatch", *options)
    assert result.exit_code == 2
    assert not (folder / "out").exists()
    return result.stderr


def test_values_are_read_as_they_are_written(tmp_path: Path) -> None:
    text = "time: 4:00:00\naccount: 007\nqos: no\nenvironment: {A: 1.50}\nsetup: |\n  one\n  two\n"
    site = read_site(written(tmp_path, text))
    assert (site.time, site.account, site.qos, site.environment) == ("4:00:00", "007", "no", {"A": "1.50"})
    assert site.setup == ("one", "two")


def test_the_example_has_every_key() -> None:
    site, bare = read_site(EXAMPLE), Site()
    keys = set(EXAMPLE.read_text().split())
    assert {f"{key}:" for key in vars(site)} <= keys
    assert [key for key in vars(bare) if getattr(site, key) == getattr(bare, key)] == ["requeues"]


def test_a_site_is_found_without_being_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COMMEFF_SITE", raising=False)
    words = [written(tmp_path, GRID), "--launcher", "sbatch", "--store", tmp_path / "store", "--emit"]
    assert "no site file" in grid(*words, tmp_path / "bare").stderr
    (tmp_path / ".config" / "commeff").mkdir(parents=True)
    written(tmp_path / ".config" / "commeff", "partition: own\n", "site.yaml")
    assert grid(*words, tmp_path / "own").exit_code == 0
    assert '#SBATCH --partition="own"' in (tmp_path / "own" / "array_nproc1.sh").read_text()
    monkeypatch.setenv("COMMEFF_SITE", str(tmp_path / "missing.yaml"))
    missing = grid(*words, tmp_path / "missing")
    assert missing.exit_code == 2
    assert "missing.yaml cannot be read: No such file" in missing.stderr


def test_a_user_without_a_home_has_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "COMMEFF_SITE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    assert find_site(None)[0] == Site()
    assert find_site(written(tmp_path, "partition: own\n", "own.yaml"))[0].partition == "own"


def test_an_array_is_never_larger_than_slurm_takes(tmp_path: Path) -> None:
    cells = read_cells(emitted(tmp_path, GRID) / "cells.jsonl").cells * 800
    (shape,) = shapes(cells, Site())
    assert (shape.cells, shape.tasks) == (2400, 800)
    (shape,) = shapes(cells, Site(cells_per_task=100, cpus_per_task=8))
    assert (shape.tasks, shape.cores, shape.jobs) == (24, 8, 8)
