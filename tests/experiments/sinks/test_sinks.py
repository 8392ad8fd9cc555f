"""Rows of a run reach TensorBoard, Weights & Biases and MLflow, and nothing that happens there stops the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commeff
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.sinks import SINKS, rows

SMALL: dict[str, Any] = {"task": "quadratic", "workers": 4, "steps": 6, "evaluate_every": 2}
WORDS = [f"{key}={value}" for key, value in SMALL.items()]


class Broken:
    """A sink whose network goes down at its second row."""

    def __init__(self, fails_at: int) -> None:
        self.fails_at, self.steps, self.closed = fails_at, list[int](), False

    def write(self, step: int, row: dict[str, float]) -> None:
        if step == self.fails_at:
            raise ConnectionError("no route\nto host")
        self.steps.append(step)

    def close(self) -> None:
        self.closed = True


def logged(monkeypatch: pytest.MonkeyPatch, sinks: dict[str, Broken | Exception]) -> None:
    """Let the packages be there, and their sinks be these."""

    def open_sink(name: str) -> Broken:
        sink = sinks[name]
        if isinstance(sink, Exception):
            raise sink
        return sink

    monkeypatch.setattr(rows, "find_spec", lambda package: True)
    for name in sinks:
        monkeypatch.setitem(SINKS, name, lambda *_, name=name: open_sink(name))


def test_a_sink_that_fails_is_left_out_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, whole = Broken(fails_at=4), Broken(fails_at=-1)
    logged(monkeypatch, {"tensorboard": whole, "wandb": broken, "mlflow": RuntimeError("not logged in")})
    found = commeff.run({"log": ["wandb", "tensorboard", "mlflow"]}, store=tmp_path, progress=False, **SMALL)
    assert found.state == "done"
    assert (whole.steps, whole.closed) == ([2, 4, 6], True)
    assert (broken.steps, broken.closed) == ([2], False)
    assert capsys.readouterr().err.splitlines() == [
        "log=mlflow stopped (RuntimeError: not logged in); the run goes on",
        "log=wandb stopped (ConnectionError: no route to host); the run goes on",
    ]


def test_where_rows_go_is_no_part_of_a_run_s_name_but_a_part_s_own_key_is(monkeypatch: pytest.MonkeyPatch) -> None:
    logged(monkeypatch, {})
    plain, sent = compose(WORDS), compose([*WORDS, "log=wandb"])
    assert run_id(plain) == run_id(sent)
    assert run_id(plain) == run_id({key: value for key, value in plain.items() if key != "log"})
    assert run_id(plain | {"task": {**plain["task"], "log": True}}) != run_id(plain)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("log=tensorbord", "log must name some of tensorboard, wandb, mlflow, got 'tensorbord'"),
        ("log=[wandb,3]", "log must name some of tensorboard, wandb, mlflow, got 3"),
        ("log=4", "log must be text or a list or null"),
    ],
)
def test_a_sink_that_is_not_there_is_refused(word: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        compose([*WORDS, word])


@pytest.mark.parametrize("name", SINKS)
def test_a_package_that_is_not_here_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=rf"log={name} needs the package {name}.*pip install 'commeff\[{name}\]'"):
        compose([*WORDS, f"log={name}"])


def test_tensorboard_shows_the_rows(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = commeff.run(log="tensorboard", store=tmp_path, progress=False, **SMALL)
    events = EventAccumulator(str(found.path / "tensorboard")).Reload()
    shown = [(event.step, event.value) for event in events.Scalars("train_loss")]
    assert [step for step, _ in shown] == [2, 4, 6]
    assert [value for _, value in shown] == pytest.approx(list(found.metrics["train_loss"]))


def test_wandb_keeps_the_rows_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    found = commeff.run(log="wandb", store=tmp_path, progress=False, **SMALL)
    assert len([*(found.path / "wandb").glob(f"offline-run-*-{found.path.name}/*.wandb")]) == 1


def test_mlflow_keeps_the_rows_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    found = commeff.run(log="mlflow", store=tmp_path / "store", progress=False, **SMALL)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("commeff")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["method"] == "commeff.methods.psgd"
    history = {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "train_loss")}
    assert history == pytest.approx(dict(zip([2, 4, 6], found.metrics["train_loss"], strict=True)))
    assert run.info.status == "FINISHED"
