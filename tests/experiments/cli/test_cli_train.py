"""Runs from the command line: what they write, that they are not repeated, and that they resume."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner, Result

from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.config.contained import Interrupt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.progress import opening
from commeff.experiments.run.runner import RunFailed, run_one
from commeff.experiments.run.store import RunFolder
from tests.forks import command
from tests.owned import PATIENCE, until

SMALL = ["task=quadratic", "workers=4", "steps=12", "checkpoint_every=5", "method=choco", "evaluate_every=2"]


def train(store: Path, *tokens: str) -> Result:
    return CliRunner().invoke(app, ["train", "--json", "--store", str(store), *SMALL, *tokens])


def only_run(store: Path) -> Path:
    (folder,) = store.iterdir()
    return folder


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("seconds", "run")}


def rows(folder: Path) -> list[dict[str, Any]]:
    return [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_says_at_its_start_how_the_data_of_workers_differ(tmp_path: Path) -> None:
    words = "the workers' data differ: dirichlet, alpha 0.3, the default"
    assert words in train(tmp_path, "task=digits").stderr
    assert "data differ" not in train(tmp_path, "task=digits", "task.partition=iid").stderr + train(tmp_path).stderr


def test_a_run_that_leaves_a_gpu_idle_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "computing on the CPU, though this machine has a GPU: device=cuda uses it\n"
    for there in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert train(tmp_path / str(there)).stderr.count(words) == there
    config = {"device": "cpu"}
    assert (opening([config, config]), opening([{"device": "cuda"}]), opening([])) == ([words.strip()], [], [])


def test_a_run_folder_holds_the_contract(tmp_path: Path) -> None:
    result = train(tmp_path, "model=mlp", "task=digits")
    assert result.exit_code == 0, result.output
    folder = only_run(tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    for key in ("train_loss", "val_loss", "val_accuracy", "steps", "payload_bytes", "wire_bytes", "seconds"):
        assert isinstance(summary[key], (int, float)), key
    assert summary["steps"] == 12
    assert json.loads(result.stdout) == {"run": str(folder), **summary}
    assert json.loads((folder / "status.json").read_text())["state"] == "done"
    assert [row["step"] for row in rows(folder)] == [2, 4, 6, 8, 10, 12]
    assert yaml.safe_load((folder / "config.yaml").read_text()) == compose([*SMALL, "model=mlp", "task=digits"])
    assert {"host", "cpu", "python", "torch", "commit"} <= json.loads((folder / "env.json").read_text()).keys()


def test_the_same_command_does_not_run_again(tmp_path: Path) -> None:
    first = train(tmp_path)
    written = (only_run(tmp_path) / "summary.json").stat().st_mtime_ns
    config = only_run(tmp_path) / "config.yaml"
    config.write_text("#" * (1 << 20) + "\n" + config.read_text())  # as large as 50,000 stays make it
    again = train(tmp_path)
    assert again.exit_code == 0
    assert "finished already" in again.stderr
    assert again.stdout == first.stdout
    assert (only_run(tmp_path) / "summary.json").stat().st_mtime_ns == written


def test_a_finished_run_whose_records_are_damaged_is_named_and_left_alone(tmp_path: Path) -> None:
    assert train(tmp_path).exit_code == 0
    folder = only_run(tmp_path)
    for name in ("config.yaml", "metrics.jsonl"):
        whole = (folder / name).read_text()
        half = "".join(whole.splitlines(keepends=True)[:5])
        for left in ("", half, whole[:-1], "\0" * 9, None):
            (folder / name).unlink() if left is None else (folder / name).write_text(left)
            result, fault = train(tmp_path), "is damaged" if left is not None else "is missing"
            assert (result.exit_code, result.stdout) == (2, "")
            (line,) = result.stderr.splitlines()
            assert f"{folder / name} {fault}, though the run is finished; remove {folder} to run it again" in line
            assert (folder / name).exists() == (left is not None)
        (folder / name).write_text(whole)
    assert "finished already" in train(tmp_path).stderr


def test_what_does_not_decide_the_result_does_not_name_the_run(tmp_path: Path) -> None:
    config = compose(SMALL)
    assert run_id(config) == run_id(compose([*SMALL, "checkpoint_every=7"]))
    for other in ("seed=1", "steps=13", "method.gamma=0.4", "task.zeta=2.0"):
        assert run_id(compose([*SMALL, other])) != run_id(config), other


@pytest.mark.parametrize("stop", [1, 5, 7])
def test_an_interrupted_run_resumes_to_the_same_end(stop: int, tmp_path: Path) -> None:
    """Stopped after any step, it is killed; the same command gives the summary of a run that nobody interrupted."""

    def interrupt(step: int, row: dict[str, Any]) -> None:
        if step == stop:
            os.kill(os.getpid(), signal.SIGINT)

    config = compose(SMALL)
    whole = run_one(config, tmp_path / "whole")
    folder = tmp_path / "store" / run_id(config)
    assert run_one(config, folder, interrupt) == {"state": "killed", "steps": stop}
    assert RunFolder(folder).state == "killed"
    assert not (folder / "summary.json").exists()

    result = train(tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert f"{folder} goes on from step {stop}\n" in result.stderr
    assert timeless(json.loads(result.stdout)) == timeless(whole)
    assert rows(folder) == rows(tmp_path / "whole")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_process_is_resumed_by_the_same_command(number: signal.Signals, tmp_path: Path) -> None:
    tokens = [*SMALL, "steps=300000", "evaluate_every=100", "checkpoint_every=50"]
    words = ["train", "--store", str(tmp_path), *tokens]
    process = command(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    until(lambda: any(tmp_path.glob("*/checkpoints/latest.pt")), "a checkpoint")
    process.send_signal(number)
    _, told = process.communicate(timeout=PATIENCE)
    folder = only_run(tmp_path)
    assert RunFolder(folder).state == "killed"
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert "the same command goes on from there" in told
    seen: list[int] = []

    def stop_soon(step: int, row: dict[str, Any]) -> None:
        seen.append(step)
        os.kill(os.getpid(), signal.SIGINT)

    run_one(compose(tokens), folder, stop_soon)
    assert seen[0] > 50, "it began again"


def test_a_diverged_run_is_a_result(tmp_path: Path) -> None:
    result = train(tmp_path, "optimizer.lr=1e30")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["state"] == "diverged"
    assert RunFolder(only_run(tmp_path)).state == "diverged"
    assert "NaN" not in (only_run(tmp_path) / "summary.json").read_text()
    assert "finished already" in train(tmp_path, "optimizer.lr=1e30").stderr


def test_a_running_run_is_left_alone(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / run_id(compose(SMALL)))
    with run.claimed() as own:
        assert own
        run.create(compose(SMALL), {})
        run.mark("running", step=0, steps=12)
        result = train(tmp_path)
    assert result.exit_code == 1
    assert "is running in process" in result.stderr


def test_an_error_in_a_run_is_kept_and_told_in_one_line(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from commeff.compressors import Dense\n\nCALLS = []\n\n\nclass Broken(Dense):\n"
        "    def compress(self, vectors, random):\n        CALLS.append(1)\n        if len(CALLS) > 5:\n"
        "            raise RuntimeError('out of order')\n        return super().compress(vectors, random)\n"
    )
    result = train(tmp_path / "store", "--plugin", str(plugin), "method=mem_sgd", "compressor=broken")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"commeff: RuntimeError: out of order (line 10 of {plugin}); see ")
    assert len(result.stderr.splitlines()) == 1
    folder = only_run(tmp_path / "store")
    assert RunFolder(folder).state == "failed"
    assert "Traceback" in (folder / "error.txt").read_text()


def test_a_run_that_recovers_forgets_its_error(tmp_path: Path) -> None:
    config, calls = compose(["steps=4", "workers=2"]), []

    def fail_once(step: int, row: dict[str, Any]) -> None:
        calls.append(step)
        if len(calls) == 1:
            raise RuntimeError("once")

    with pytest.raises(RunFailed, match="once"):
        run_one(config, tmp_path, fail_once)
    assert (tmp_path / "error.txt").exists()
    assert run_one(config, tmp_path, fail_once)["state"] == "done"
    assert not (tmp_path / "error.txt").exists()


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("commeff.training.recorder.os", SimpleNamespace(fsync=full))
    monkeypatch.setattr(Path, "write_text", full)
    result = train(tmp_path)
    assert result.exit_code == 1
    assert f"No space left on device: '{only_run(tmp_path) / 'metrics.jsonl'}'" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_checkpoint_that_knows_more_rows_than_there_are_is_refused(tmp_path: Path) -> None:
    config = compose(["steps=6", "evaluate_every=1", "workers=2", "checkpoint_every=2"])
    with pytest.raises(KeyboardInterrupt):
        run_one(config, tmp_path, lambda step, row: _interrupt(step == 5))
    kept = (tmp_path / "metrics.jsonl").read_text().splitlines()[:2]
    (tmp_path / "metrics.jsonl").write_text("".join(line + "\n" for line in kept))
    with pytest.raises(ConfigError, match=f"lacks rows that the checkpoint has; delete {tmp_path} to start anew"):
        run_one(config, tmp_path)
    assert (tmp_path / "metrics.jsonl").read_text().splitlines() == kept


@pytest.mark.parametrize("garbage", [b"\xff\x00\n", b"[1]\n", b"[" * 100_000 + b"\n", b'{"step": "x"}\n', b"\n"])
def test_garbage_among_the_rows_is_written_again_or_refused(garbage: bytes, tmp_path: Path) -> None:
    config = compose(["task=quadratic", "steps=6", "evaluate_every=1", "workers=2", "checkpoint_every=2"])
    with pytest.raises(KeyboardInterrupt):
        run_one(config, tmp_path, lambda step, row: _interrupt(step == 5))
    metrics = tmp_path / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([*lines[:2], garbage, *lines[2:]]))
    with pytest.raises(ConfigError, match="lacks rows"):
        run_one(config, tmp_path)
    assert RunFolder(tmp_path).state == "killed"
    metrics.write_bytes(b"".join([*lines[:4], garbage, *lines[4:]]))
    assert run_one(config, tmp_path)["state"] == "done"
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_checkpoint_of_another_form_is_a_refusal_that_names_it(nproc: int, tmp_path: Path) -> None:
    words = ["task=quadratic", "steps=4", "workers=2", f"nproc={nproc}"]
    assert train(tmp_path, *words).exit_code == 0
    folder = only_run(tmp_path)
    (folder / "summary.json").unlink()
    path = folder / "checkpoints" / "latest.pt"
    whole = torch.load(path, weights_only=True)
    torch.save(whole | {"state": {"step": 3}}, path)
    refused = train(tmp_path, *words)
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1), refused.stderr
    assert f"checkpoint {path} must hold the state of this run" in refused.stderr
    assert f"delete {path.parent} to start anew" in refused.stderr
    assert RunFolder(folder).state == "killed"


def _interrupt(now: bool) -> None:
    if now:
        raise Interrupt


def test_what_a_killed_run_wrote_after_its_last_checkpoint_is_written_once(tmp_path: Path) -> None:
    config = compose(["steps=6", "evaluate_every=1", "workers=2", "checkpoint_every=0"])

    def die(step: int, row: dict[str, Any]) -> None:
        if step == 3:
            raise Interrupt

    with pytest.raises(KeyboardInterrupt):
        run_one(config, tmp_path, die)
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]
    assert run_one(config, tmp_path)["state"] == "done"
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3, 4, 5, 6]


def test_a_diverged_run_says_null_where_there_is_no_number(tmp_path: Path) -> None:
    result = train(tmp_path, "task=digits", "optimizer.lr=1e38", "steps=3", "workers=2")
    assert result.exit_code == 0, result.output
    assert "NaN" not in result.stdout
    summary = json.loads((only_run(tmp_path) / "summary.json").read_text())
    assert summary["state"] == "diverged"
    assert summary["val_loss"] is None
    assert set(summary) >= {"train_loss", "val_loss", "val_accuracy", "steps", "payload_bytes", "wire_bytes", "seconds"}


@pytest.mark.parametrize("damage", ["summary.json", "status.json"])
def test_damaged_files_of_a_store_are_written_again(damage: str, tmp_path: Path) -> None:
    config = compose(["steps=4", "workers=2"])
    whole = run_one(config, tmp_path)
    (tmp_path / damage).write_text("{")
    assert timeless(run_one(config, tmp_path)) == timeless(whole)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    config = compose(["steps=4", "workers=2"])
    run_one(config, tmp_path)
    (tmp_path / "summary.json").unlink()
    (tmp_path / "checkpoints" / "latest.pt").write_bytes(b"junk")
    with pytest.raises(ConfigError, match=r"latest\.pt cannot be read"):
        run_one(config, tmp_path)


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_checkpoint_of_another_run_is_refused_and_nothing_is_written(nproc: int, tmp_path: Path) -> None:
    words = ["task=quadratic", "steps=4", "workers=2", f"nproc={nproc}"]
    for seed in (1, 2):
        assert train(tmp_path / str(seed), *words, f"seed={seed}").exit_code == 0
    folder, other = only_run(tmp_path / "1"), only_run(tmp_path / "2")
    (folder / "summary.json").unlink()
    shutil.copy(other / "checkpoints" / "latest.pt", folder / "checkpoints" / "latest.pt")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    refused = train(tmp_path / "1", *words, "seed=1")
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    assert f"must be of the run {folder.name}, got one of {other.name}; delete " in line
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_steps_and_samples_are_counted_apart(tmp_path: Path) -> None:
    config = compose(["method=neolithic", "method.rounds=3", "steps=4", "workers=2", "task.batch=8"])
    summary = run_one(config, tmp_path)
    assert (summary["steps"], summary["samples"]) == (4, 4 * 3 * 2 * 8)
