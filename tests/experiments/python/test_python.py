"""`commeff.run`, `grid` and `load` do what the command line does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

import commeff
from commeff import methods, topologies
from commeff.core import Strategy
from commeff.experiments.config.compose import compose
from commeff.experiments.python import Runs, TrainedRun
from commeff.experiments.run.naming import run_id
from commeff.experiments.tasks import Quadratic

SMALL: dict[str, Any] = {"task": "quadratic", "workers": 4, "steps": 6, "evaluate_every": 2}
WORDS = [f"{key}={value}" for key, value in SMALL.items()]


def strategy(workers: int = 4) -> Strategy:
    return methods.dsgd(partial(torch.optim.SGD, lr=0.1), topologies.ring(workers))


def test_a_run_is_the_one_of_the_same_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = commeff.run({"optimizer.lr": 0.1}, method="dsgd", topology="ring", store=tmp_path, progress=False, **SMALL)
    assert found.path.name == run_id(compose([*WORDS, "method=dsgd", "topology=ring", "optimizer.lr=0.1"]))
    assert found.state == "done"
    assert list(found.metrics["step"]) == [2, 4, 6]
    assert found.summary["train_loss"] == found.metrics["train_loss"].iloc[-1]
    assert "wire_bytes" in repr(found)
    assert capsys.readouterr() == ("", "")
    before = (found.path / "summary.json").stat().st_mtime_ns
    again = commeff.run({"optimizer.lr": 0.1}, method="dsgd", topology="ring", store=tmp_path, progress=False, **SMALL)
    assert (again.path / "summary.json").stat().st_mtime_ns == before


def test_a_key_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown key 'mehtod'; did you mean method"):
        commeff.run(mehtod="dsgd", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_objects_run_as_their_names_do(tmp_path: Path) -> None:
    named = commeff.run(
        {"optimizer.lr": 0.1, "optimizer": "sgd"}, method="dsgd", topology="ring", store=tmp_path, **SMALL
    )
    settings = {key: value for key, value in SMALL.items() if key != "task"}
    task = Quadratic(**{name: value for name, value in named.config["task"].items() if name != "_target_"})
    for i, method in enumerate((strategy(), strategy)):
        made = commeff.run(task=task, method=method, folder=tmp_path / f"made{i}", **settings)
        timeless = [column for column in named.metrics if "seconds" not in column]
        pd.testing.assert_frame_equal(made.metrics[timeless], named.metrics[timeless])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": strategy()}, "folder must be given"),
        ({"method": strategy(), "folder": "f", "topology": "ring"}, "'topology=ring' must be left out"),
        ({"method": strategy(), "folder": "f", "nproc": 2}, "nproc must be 1"),
        ({"method": "psgd", "folder": "f"}, "folder must be left out"),
        ({"method": "dsgd", "topology": topologies.ring(4)}, "topology must be a name .* an object goes into method="),
        ({"method": 42, "folder": "f"}, "method must be a name, a Strategy or a function from n to one, got 42"),
        ({"method": lambda n: n, "folder": "f"}, "method must be a name, a Strategy or .*, got 4"),
        ({"method": "psgd", "optimizer.lr": [0.1, 0.2]}, "optimizer.lr must be a number, got .0.1, 0.2."),
        ({"method": strategy(5), "folder": "f"}, "method: the topology must connect the run's 4 workers, got one of 5"),
    ],
)
def test_what_objects_cannot_be_is_refused(
    settings: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=reason):
        commeff.run(**SMALL, **settings)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("task", [object(), Quadratic], ids=["anything", "a class"])
def test_a_task_that_is_none_is_refused(task: object, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="task must be a name or a Task, which has workers, got <"):
        commeff.run(task=task, method="psgd", folder=tmp_path / "f")


def test_words_of_a_command_are_no_settings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="settings must be a dict, got 'task=digits'"):
        commeff.run("task=digits", store=tmp_path)  # type: ignore[arg-type]


def test_a_folder_keeps_one_run(tmp_path: Path) -> None:
    commeff.run(method=strategy(), folder=tmp_path / "mine", **SMALL)
    with pytest.raises(ValueError, match="holds another run"):
        commeff.run({"seed": 7}, method=strategy(), folder=tmp_path / "mine", **SMALL)


def test_a_grid_is_a_frame_of_cells_and_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter does
    content = {
        "base": SMALL,
        "seeds": [0, 1],
        "grid": [{"method": "psgd"}, {"method": "dsgd", "topology": ["ring", "complete"]}],
    }
    cells = commeff.grid(content, name="small", store=tmp_path, jobs=2)
    assert list(cells.columns[:4]) == ["method", "topology", "seed", "state"]
    assert cells["state"].eq("done").all()
    assert len(cells) == 6
    said = capfd.readouterr().err
    assert "[6/6]" in said
    assert "\x1b" not in said, "a live table is for a terminal"
    runs = commeff.load(tmp_path)
    assert isinstance(runs, Runs)
    pd.testing.assert_frame_equal(runs.cells, cells)
    assert len(runs.metrics) == 6 * 3
    assert {"method", "topology", "seed", "step"} <= {*runs.metrics}
    one = runs[cells["run"][0]]
    assert isinstance(one, TrainedRun)
    assert one.summary == commeff.load(one.path).summary  # type: ignore[union-attr]
    with pytest.raises(KeyError, match="must name one run"):
        runs["nothing"]
    drawn = [runs.plot("train_loss"), one.plot("train_loss", against="wire_bytes")]
    drawn.append(runs.plot("train_loss", against="topology", by="method"))
    assert [line.get_label() for line in drawn[0].lines] == ["parallel SGD", "DSGD, ring", "DSGD, complete"]
    for axes in drawn:
        assert axes.get_ylabel() == "training loss"
        axes.figure.clear()
    with pytest.raises(ValueError, match="topology must be at an axis, tell lines apart or be fixed"):
        runs.plot("train_loss", by="method")
    with pytest.raises(ValueError, match="must be of metrics, settings and constants of parts, got 'rank_error'"):
        one.plot("rank_error")
    with pytest.raises(ValueError, match="no method 'nope'"):
        commeff.grid(content | {"grid": [{"method": "nope"}]}, name="bad", store=tmp_path / "bad")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no store"):
        commeff.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="name must be given"):
        commeff.grid({"grid": [{"method": "psgd"}]})
    with pytest.raises(ValueError, match="without folders"):
        commeff.grid({"grid": [{"method": "psgd"}]}, name="../x", store=tmp_path)


def test_neolithic_is_double_squeeze_of_as_many_numbers_on_as_many_minibatches(tmp_path: Path) -> None:
    own = {"task": "digits", "model": "mlp", "workers": 4, "steps": 4, "evaluate_every": 2, "store": tmp_path}
    parts = {"compressor": "top_k", "optimizer.lr": 0.1}
    twice = commeff.run({**parts, "compressor.k": 200}, method="neolithic", **own)
    once = commeff.run({**parts, "compressor.k": 400}, method="double_squeeze", accumulate=2, **own)
    assert twice.summary["epoch"] == once.summary["epoch"]
    pd.testing.assert_series_equal(twice.metrics["train_loss"], once.metrics["train_loss"], rtol=0, atol=0)
    alone = commeff.run({**parts, "compressor.k": 400}, method="double_squeeze", **own)
    assert not alone.metrics["train_loss"].equals(once.metrics["train_loss"])
