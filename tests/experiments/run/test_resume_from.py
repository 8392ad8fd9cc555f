"""`resume_from=RUN`: a run begins where another one has come to, on another mesh or with other workers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from commeff.boxes import ColumnMap
from commeff.compressors import Layout
from commeff.experiments.config.build import part
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.status import status
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.progress import Stop
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from commeff.replicas.stacked import trainable
from commeff.training.checkpoint import Checkpoints
from commeff.training.run_state import mean_model

STEPS, STOP = 6, 4  # in the middle of a period of 3
SMALL = (
    "task=language",
    "task.layers=2",
    "task.heads=2",
    "task.width=16",
    "task.context=8",
    "task.batch=4",
    "task.probe=128",
)
MESHES = {
    "tensor": ("mesh.worker=2", "mesh.tensor=2"),
    "shard": ("mesh.worker=2", "mesh.shard=2", "zero=1"),
    "two ranks": ("mesh.worker=2",),
    "one process": ("workers=2",),
    "two processes": ("workers=2", "nproc=2"),
}
MEASURED = ("minibatch_loss", "val_loss", "train_loss", "consensus_distance", "samples")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text"
    path.write_bytes(bytes(range(256)) * 16)
    return path


def config(text: Path, *more: str, steps: int = STEPS) -> dict[str, Any]:
    method = ("method=diloco", "method.period=3", "optimizer.lr=0.05", "optimizer.momentum=0.9")
    return compose(
        [*SMALL, "task.dtype=float64", f"task.data={text}", *method, f"steps={steps}", "evaluate_every=2", *more]
    )


def trained(store: Path, settings: dict[str, Any], stop_after: int | None = None) -> Path:
    """The folder of a run, stopped after so many steps if they are given."""
    folder, votes, stop, steps = store / run_id(settings), count(), Stop(), count(1)

    def progress(step: int, row: dict[str, Any]) -> None:
        stop.requested = settings["nproc"] == 1 and next(steps) == stop_after

    with pytest.MonkeyPatch.context() as patch:
        if stop_after is not None:
            patch.setattr("commeff.training.stop_vote.StopVote.passed", lambda vote, wish: next(votes) == stop_after)
        state = run_one(settings, folder, progress, stop)["state"]
    assert state == ("done" if stop_after is None else "killed")
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def mean(folder: Path, settings: dict[str, Any]) -> Tensor:
    """Of the workers' parameters at the end."""
    layout = Layout.of([(n, tuple(p.shape)) for n, p in trainable(part(settings, "task").model()).items()])
    state = Checkpoints(folder / "checkpoints").load()
    assert state is not None
    return mean_model(state, ColumnMap.of(layout))


def near(folder: Path, settings: dict[str, Any], whole: Path, whole_settings: dict[str, Any]) -> None:
    assert (mean(folder, settings) - mean(whole, whole_settings)).abs().max() <= 1e-12
    assert [row["step"] for row in rows(folder)] == [2, 4, 6]
    for row, reference in zip(rows(folder), rows(whole), strict=True):
        for name in MEASURED:
            assert row[name] == pytest.approx(reference[name], abs=1e-11), name


@pytest.fixture(scope="module")
def whole(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("whole"), config(text, "workers=2"))


def stopped(text: Path, store: Path, start: str) -> Path:
    return trained(store, config(text, *MESHES[start]), stop_after=STOP)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def four_ranks(text: Path, store: Path) -> Path:
    """Two workers of two tensor ranks, stopped between two exchanges."""
    return stopped(text, store, "tensor")


@pytest.mark.parametrize("after", ["shard", "two ranks"])
def test_another_mesh_goes_on_as_if_nothing_had_happened(
    text: Path, store: Path, four_ranks: Path, whole: Path, after: str
) -> None:
    settings = config(text, *MESHES[after], f"resume_from={four_ranks}")
    folder = trained(store, settings)
    near(folder, settings, whole, config(text, "workers=2"))
    line = next(cell for cell in status(store)[""]["cells"] if cell["run"] == folder.name)
    assert line["origin"] == f"{four_ranks.name} at step {STOP}"


def test_whole_workers_go_on_as_pieces_and_pieces_as_whole_workers(text: Path, tmp_path: Path, whole: Path) -> None:
    """One process, then four tensor ranks; then one process again, with more steps."""
    first = stopped(text, tmp_path, "one process")
    settings = config(text, *MESHES["tensor"], f"resume_from={first}", steps=STOP + 1)
    second = trained(tmp_path, settings)
    last = config(text, *MESHES["one process"], f"resume_from={second}", "evaluate_every=2")
    folder = trained(tmp_path, last)
    assert (mean(folder, last) - mean(whole, config(text, "workers=2"))).abs().max() <= 1e-12
    assert rows(second)[-1]["payload_bytes"] == rows(whole)[1]["payload_bytes"] > 0


def test_other_workers_begin_at_the_mean(text: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = stopped(text, tmp_path, "one process")
    settings = config(text, "workers=3", f"resume_from={first}", steps=STOP)
    summary = run_one(settings, tmp_path / run_id(settings))
    assert "is of 2 workers, the run of 3: all begin at the mean of its parameters" in caplog.text
    same = {name: rows(first)[-1][name] for name in ("val_loss", "train_loss")}
    assert {name: summary[name] for name in same} == pytest.approx(same, abs=1e-12)
    assert summary["local_val_loss"] == summary["val_loss"]
    with caplog.at_level("INFO", "commeff.training.resume"):
        further = trained(tmp_path, config(text, "workers=3", f"resume_from={first}"))
    assert f"{further} goes on from step {STOP}\n" in caplog.text
    assert [row["samples"] for row in rows(further)] == [16, 32, 32 + 24]


def test_a_run_goes_on_by_itself_once_it_has_begun(text: Path, tmp_path: Path, whole: Path) -> None:
    """Its own checkpoint counts from then on, whatever has become of the run that it comes from."""
    first = stopped(text, tmp_path, "one process")
    settings = config(text, "workers=2", f"resume_from={first}")
    folder = trained(tmp_path, settings, stop_after=1)
    first.rename(tmp_path / "elsewhere")
    assert trained(tmp_path, settings) == folder
    near(folder, settings, whole, config(text, "workers=2"))
    assert RunFolder(folder).read("status.json")["origin"] == f"{first.name} at step {STOP}"


def test_the_folder_counts_by_its_name_and_nothing_without_it(text: Path, tmp_path: Path) -> None:
    plain = config(text, "workers=2")
    known = run_id({name: value for name, value in plain.items() if name != "resume_from"})
    there, elsewhere, other = (
        config(text, "workers=2", f"resume_from={path}") for path in ("runs/a", tmp_path / "a", "runs/b")
    )
    assert run_id(plain) == known != run_id(there) == run_id(elsewhere) != run_id(other)
    assert Path(there["resume_from"]).is_absolute()


def refusal(settings: dict[str, Any], folder: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        run_one(settings, folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_does_not_fit_is_refused_in_a_line(text: Path, store: Path, four_ranks: Path, tmp_path: Path) -> None:
    there = f"resume_from={four_ranks}"
    new = tmp_path / "new"
    assert "must be the folder of a run, got" in refusal(config(text, f"resume_from={tmp_path}"), new)
    assert "steps must be at least 4, got 3" in refusal(config(text, there, steps=3), new)
    other = compose([*SMALL, f"task.data={text}", "method=psgd", "workers=2", "steps=6", there])
    assert re.search(
        r"must be of this run's method, psgd, got .*, which is of diloco: give method=diloco", refusal(other, new)
    )
    queued = tmp_path / "queued"
    RunFolder(queued).path.mkdir()
    RunFolder(queued).create(config(text, "workers=2"), {})
    assert "must have a checkpoint, got" in refusal(config(text, f"resume_from={queued}"), new)
    with RunFolder(queued).claimed():
        assert "must have ended, got" in refusal(config(text, f"resume_from={queued}"), new)
    assert not new.exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("workers=2", "task.width=32"), "must be of this run's model, in which .*, got one where it is"),
        (
            ("workers=2", "optimizer.lr=0.1"),
            r"must be of this run's method, in which there is \w+\(lr=0.1,[^)]*\), got one where it is \w+\(lr=0.05,.*"
            r" \(optimizer.lr is 0.05 there and 0.1 here\)$",
        ),
        (("mesh.worker=2", "mesh.shard=2", "method.period=2"), r"\(method.period is \d+ there and 2 here\)$"),
    ],
)
def test_another_model_or_method_is_refused_in_a_line(
    text: Path, four_ranks: Path, tmp_path: Path, more: Sequence[str], words: str
) -> None:
    text_of = refusal(config(text, *more, f"resume_from={four_ranks}"), tmp_path / "new")
    assert re.search(words, text_of)
    assert "; go on from another run, or begin anew (" in text_of
