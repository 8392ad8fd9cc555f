"""Logistic regression on LIBSVM files: the objective, the labels, one-line errors for every way a file can be bad."""

from __future__ import annotations

import bz2
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commeff.experiments.tasks import DataError, Logistic
from commeff.experiments.tasks.libsvm import SOURCES, File, load

DATA = Path(os.environ.get("COMMEFF_DATA") or Path(__file__).parents[4] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (DATA / "libsvm" / "a9a").is_file(), reason=f"no LIBSVM files in {DATA}: set COMMEFF_DATA to the data folder"
)
ROWS = {"mushrooms": (6499, 1625), "a9a": (32561, 16281), "w8a": (39799, 9950), "ijcnn1": (49990, 91701)}


def written(folder: Path, name: str, content: bytes) -> str:
    """`content` as folder/libsvm/name; the folder, as a data_dir."""
    (folder / "libsvm").mkdir(exist_ok=True)
    (folder / "libsvm" / name).write_bytes(content)
    return str(folder)


def mushrooms(rows: int = 8124) -> bytes:
    """A stand-in with the shape of mushrooms: label 1 has feature 3, label 2 has feature 111."""
    return b"".join(b"1 3:1\n" if row % 3 else b"2 7:0.5 111:1\n" for row in range(rows))


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    return written(tmp_path, "mushrooms", mushrooms())


def test_labels_features_and_split(stand_in: str) -> None:
    task = Logistic(3, data="mushrooms", data_dir=stand_in, dtype="float64")
    assert (len(task.train), len(task.validation)) == ROWS["mushrooms"]
    for samples in (task.train, task.validation):
        assert samples.inputs.shape[1] == 112
        assert torch.equal(samples.targets, torch.where(samples.inputs[:, 2] == 1, -1.0, 1.0).double())
        assert float((samples.targets == 1).double().mean()) == pytest.approx(1 / 3, abs=1e-3)
    again = Logistic(5, seed=9, data="mushrooms", data_dir=stand_in, dtype="float64")
    assert torch.equal(task.validation.inputs, again.validation.inputs)


@pytest.mark.parametrize(("bias", "regulariser"), [(False, "l2"), (True, "l2"), (True, "nonconvex")])
def test_the_loss_is_the_regularised_logistic_loss_and_starts_at_log_two(
    stand_in: str, bias: bool, regulariser: str
) -> None:
    options: dict[str, Any] = {"bias": bias, "l2": 0.1, "regulariser": regulariser, "dtype": "float64", "batch": 50}
    task = Logistic(2, data="mushrooms", data_dir=stand_in, **options)
    model = task.model()
    assert task.evaluate(model)["train_loss"] == pytest.approx(np.log(2), rel=1e-14)
    x = torch.randn(112 + bias, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.nn.utils.vector_to_parameters(x, model.parameters())
    inputs, targets = (part[0].numpy() for part in task.batch(0, [1]))
    samples = np.hstack([inputs, np.ones((50, 1))]) if bias else inputs
    r = 0.5 * x @ x if regulariser == "l2" else (x**2 / (1 + x**2)).sum()
    by_hand = np.log1p(np.exp(-targets * (samples @ x.numpy()))).mean() + 0.1 * float(r)
    loss = task.loss(model, *(part[0] for part in task.batch(0, [1])))
    assert loss.item() == pytest.approx(by_hand, rel=1e-13)
    everything = task.loss(model, task.train.inputs, task.train.targets)
    found = task.evaluate(model)
    assert found["train_loss"] == pytest.approx(everything.item(), rel=1e-13)
    assert ("suboptimality" in found) == (regulariser == "l2")


def test_the_gradient_is_that_of_the_mean_of_the_workers_losses() -> None:
    for regulariser in ("l2", "nonconvex"):
        task = Logistic(3, data="synthetic", l2=0.1, regulariser=regulariser, partition="shards", dtype="float64")
        model = task.model()
        torch.nn.utils.vector_to_parameters(torch.linspace(-1, 1, 31, dtype=torch.float64), model.parameters())
        own = [task.train.at(torch.from_numpy(rows)) for rows in task.partition.indices]
        mean = torch.stack([task.loss(model, each.inputs, each.targets) for each in own]).mean()
        gradient = torch.cat([part.flatten() for part in torch.autograd.grad(mean, [*model.parameters()])])
        assert task.evaluate(model)["gradient"] == pytest.approx(float(gradient @ gradient), rel=1e-12)


def test_weighted_objective_keeps_the_regulariser(stand_in: str) -> None:
    options: dict[str, Any] = {
        "data": "mushrooms",
        "data_dir": stand_in,
        "l2": 0.5,
        "dtype": "float64",
        "partition": "dirichlet",
    }
    plain, weighted = (Logistic(4, alpha=0.5, weighted=weighted, **options) for weighted in (False, True))
    model = plain.model()
    torch.nn.utils.vector_to_parameters(torch.ones(113, dtype=torch.float64), model.parameters())
    for worker, share in enumerate(plain.partition.weights):
        losses = [task.loss(model, *(part[0] for part in task.batch(0, [worker]))).item() for task in (plain, weighted)]
        assert losses[1] == pytest.approx(4 * share * losses[0], rel=1e-13)


def test_files_are_read_once(stand_in: str) -> None:
    task = Logistic(2, data="mushrooms", data_dir=stand_in)
    (Path(stand_in) / "libsvm" / "mushrooms").unlink()
    assert task.batch(100, [0])[0].shape == (1, 32, 112)
    assert task.evaluate(task.model())["val_loss"] == pytest.approx(np.log(2), rel=1e-6)
    assert list(task.calibration()) == []


def test_the_folder_may_come_from_the_environment(stand_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMEFF_DATA", stand_in)
    assert len(Logistic(2, data="mushrooms").train) == ROWS["mushrooms"][0]


def test_a_test_file_is_used_and_must_have_the_same_labels(tmp_path: Path) -> None:
    source = (File("tiny", 5, 4), File("tiny.t.bz2", 5, 2))
    folder = written(tmp_path, "tiny", b"1 1:1\n-1 2:1\n1 5:2\n-1\n")
    written(tmp_path, "tiny.t.bz2", bz2.compress(b"-1 1:1\n1 4:1\n"))
    train, validation = load(source, folder, torch.float64)
    assert train.targets.tolist() == [1, -1, 1, -1]
    assert train.inputs.shape == (4, 5)
    assert validation.targets.tolist() == [-1, 1]
    written(tmp_path, "tiny.t.bz2", bz2.compress(b"0 1:1\n1 4:1\n"))
    with pytest.raises(DataError, match=r"test file has labels other than the training file's \[-1.0, 1.0\]"):
        load(source, folder, torch.float64)


UNUSABLE = {
    "empty": (b"", "has 0 rows where mushrooms has 8124"),
    "cut short": (mushrooms(8000), "has 8000 rows where mushrooms has 8124"),
    "cut in a line": (mushrooms()[:-2], "corrupt or cut short"),
    "garbage": (b"\x00\xff\xfe\x80 not a data file\n" * 10, "corrupt or cut short"),
    "a web page": (b"<!DOCTYPE html>\n<html>404</html>\n", "corrupt or cut short"),
    "too many features": (mushrooms() + b"1 113:1\n", "corrupt or cut short"),
    "feature zero": (mushrooms(8123) + b"1 0:1\n", "corrupt or cut short"),
    "not a number": (mushrooms(8123) + b"1 3:nan\n", "not finite"),
    "one label": (b"1 3:1\n" * 8124, "must hold two labels, got 1"),
    "three labels": (mushrooms(8123) + b"3 3:1\n", "must hold two labels, got 3"),
}


def refusal(name: str, folder: str | None) -> str:
    with pytest.raises(DataError) as caught:
        Logistic(2, data=name, data_dir=folder)
    message = str(caught.value)
    assert "\n" not in message
    assert "csie.ntu.edu.tw" in message  # how to get it
    return message


@pytest.mark.parametrize(("content", "reason"), UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_file_is_one_line_with_the_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    message = refusal("mushrooms", written(tmp_path, "mushrooms", content))
    assert reason in message
    assert "libsvm/mushrooms" in message


@pytest.mark.parametrize("damage", ["truncated", "altered", "not bz2", "empty"])
def test_a_damaged_bz2_file_is_one_line_with_the_remedy(tmp_path: Path, damage: str) -> None:
    whole = bz2.compress(b"1 3:1\n-1 4:1\n" * 24_995)
    content = {"truncated": whole[:-9], "altered": whole[:40] + b"??" + whole[42:], "not bz2": b"1 3:1\n", "empty": b""}
    folder = written(tmp_path, "ijcnn1.trn.bz2", content[damage])
    assert "ijcnn1.trn.bz2 is corrupt or cut short" in refusal("ijcnn1", folder)


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"no file {tmp_path}/libsvm/a9a:" in refusal("a9a", str(tmp_path))
    (tmp_path / "libsvm" / "w8a").mkdir(parents=True)
    assert f"no file {tmp_path}/libsvm/w8a:" in refusal("w8a", str(tmp_path))
    monkeypatch.delenv("COMMEFF_DATA", raising=False)
    assert "set data_dir or COMMEFF_DATA" in refusal("a9a", None)


def test_other_values_that_make_no_sense_are_refused(stand_in: str) -> None:
    with pytest.raises(ValueError, match="data must be one of a9a, w8a, mushrooms, ijcnn1"):
        Logistic(2, data="iris")
    with pytest.raises(ValueError, match="l2 must be at least 0"):
        Logistic(2, l2=-1.0)
    with pytest.raises(ValueError, match="6500 workers need at least 6500 samples, there are 6499"):
        Logistic(6500, data="mushrooms", data_dir=stand_in)


@needs_data
@pytest.mark.parametrize("name", SOURCES)
def test_the_real_files_have_their_rows_and_two_labels(name: str) -> None:
    train, validation = load(SOURCES[name], str(DATA), torch.float32)
    assert (len(train), len(validation)) == ROWS[name]
    assert train.inputs.shape[1] == validation.inputs.shape[1] == SOURCES[name][0].features
    assert set(train.targets.tolist()) == set(validation.targets.tolist()) == {-1.0, 1.0}


@needs_data
def test_plain_sgd_learns_a9a() -> None:
    task = Logistic(1, data_dir=str(DATA))
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1500):
        optimizer.zero_grad()
        task.loss(model, *(part[0] for part in task.batch(step, [0]))).backward()
        optimizer.step()
    report = task.evaluate(model)
    assert report["val_accuracy"] > 0.84
    assert report["train_loss"] < 0.345


@pytest.mark.parametrize("weighted", [False, True])
def test_the_suboptimality_is_that_of_what_the_workers_minimise(weighted: bool) -> None:
    """Gradient descent on the workers' own losses goes to its zero, and to no other point."""
    task = Logistic(
        3, data="synthetic", l2=0.1, partition="dirichlet", alpha=0.2, batch=4, weighted=weighted, dtype="float64"
    )
    model = task.model()
    own = [task.train.at(torch.from_numpy(rows)) for rows in task.partition.indices]
    shares = task.partition.weights if weighted else np.full(3, 1 / 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        losses = [task.losses(model(each.inputs), each.targets).mean() for each in own]
        total = torch.stack([loss * share for loss, share in zip(losses, shares, strict=True)]).sum()
        total.backward()
        return total

    assert task._risks.least is not None
    start = float(closure().detach()) - task._risks.least
    assert task.evaluate(model)["suboptimality"] == pytest.approx(start, rel=1e-12)
    optimizer.step(closure)
    assert 0 <= task.evaluate(model)["suboptimality"] < 1e-13
    other = Logistic(3, data="synthetic", l2=0.1, partition="dirichlet", alpha=0.2, weighted=not weighted)
    assert other.evaluate(model.float())["suboptimality"] > 1e-4


def test_without_a_regulariser_there_need_be_no_optimum() -> None:
    assert "suboptimality" not in Logistic(2, data="synthetic", l2=0).evaluate(Logistic(2, data="synthetic").model())


def test_sgd_on_minibatches_falls_to_a_floor_of_its_rate() -> None:
    """The usual convex figure: the suboptimality of stochastic gradients, from a grid that needs no file."""
    from commeff.experiments.config.build import build
    from commeff.experiments.config.compose import compose
    from commeff.training.settings import RunSettings
    from commeff.training.trainer import train

    floors = []
    for rate in (0.5, 0.05):
        words = ["task=logistic", "task.data=synthetic", "task.batch=2", "task.l2=0.05", "workers=4", "steps=600"]
        parts = build(compose([*words, f"optimizer.lr={rate}", "engine=vmap"]))
        ended = train(parts.task, parts.strategy, parts.communicator, RunSettings(steps=600, engine="vmap"))
        floors.append(ended["suboptimality"])
    assert 0 < floors[1] < 0.3 * floors[0] < 0.1
