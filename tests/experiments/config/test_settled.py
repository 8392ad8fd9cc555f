"""Settings that mean something else elsewhere are settled when they are composed: the run's name has what was found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.tasks import cifar10
from tests.experiments.tasks import image_files

CIFAR = ["task=cifar10", "workers=2", "model=linear"]


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data folder and no cache but those of the test."""
    monkeypatch.delenv("COMMEFF_DATA", raising=False)
    monkeypatch.setenv("COMMEFF_CACHE", str(tmp_path / "cache"))


def variant(*settings: str) -> str:
    return str(compose([*CIFAR, *settings])["task"]["variant"])


def test_full_and_reduced_data_are_different_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reduced = image_files.cifar10(tmp_path / "reduced", "cifar-10-subset/cifar-10-batches-py", train=100)
    full = image_files.cifar10(tmp_path / "full")
    monkeypatch.setattr(cifar10, "FULL", (image_files.TRAIN, image_files.TEST))
    ids = {place: run_id(compose([*CIFAR, f"data_dir={place}"])) for place in (reduced, full)}
    assert len(set(ids.values())) == 2
    assert ids[reduced] == run_id(compose([*CIFAR, "task.variant=subset"])), "the name of what was asked for by name"
    assert ids[full] == run_id(compose([*CIFAR, "task.variant=full"]))
    for place in (reduced, full):
        assert build(compose([*CIFAR, f"data_dir={place}", "task.validation=20"])).task.label


def test_a_copy_that_is_cut_short_is_not_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = image_files.cifar10(tmp_path)
    monkeypatch.setattr(cifar10, "FULL", (image_files.TRAIN, image_files.TEST))
    assert variant(f"data_dir={folder}") == "full"
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    assert variant(f"data_dir={folder}") == "subset"
    with pytest.raises(ConfigError, match=r"no file .*data_batch_3"):
        build(compose([*CIFAR, f"data_dir={folder}"]))


def test_jpeg_files_and_missing_data_are_called_so(tmp_path: Path) -> None:
    assert variant() == "auto"
    assert variant(f"data_dir={tmp_path}") == "auto"
    (tmp_path / "cifar-10-jpeg" / "train").mkdir(parents=True)
    assert variant(f"data_dir={tmp_path}") == "jpeg"
    assert variant(f"data_dir={tmp_path}", "task.variant=full") == "full", "what is asked for by name stays"


def test_a_folder_of_images_is_found_from_where_the_command_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = image_files.image_folder(tmp_path / "work" / "photos", side=4)
    words = ["task=image_folder", "workers=2", "model=linear", "task.size=4", "task.validation=4"]
    monkeypatch.chdir(tmp_path / "work")
    config = compose([*words, "task.path=photos"])
    assert config["task"]["path"] == photos
    monkeypatch.chdir(tmp_path)
    assert run_id(compose([*words, "task.path=work/photos"])) == run_id(config)
    assert run_id(compose([*words, f"task.path={photos}"])) == run_id(config)
    assert build(config).task.label == "photos", "it goes on from another folder"
    within = compose([*words, "task.path=photos", f"data_dir={tmp_path / 'work'}"])
    assert within["task"]["path"] == "photos", "what is not here stays a name within the data folder"
    assert build(within).task.label == "photos"
    with pytest.raises(ConfigError, match=f"photos, which is not in {tmp_path}: set data_dir"):
        build(compose([*words, "task.path=photos"]))


def test_the_working_folder_comes_before_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor and the configuration agree on which of two is meant."""
    here, there = (image_files.image_folder(tmp_path / place / "photos", side=4) for place in ("here", "there"))
    monkeypatch.chdir(tmp_path / "here")
    data_dir = str(Path(there).parent)
    words = ["task=image_folder", "workers=2", "model=linear", "task.path=photos", f"data_dir={data_dir}"]
    assert compose(words)["task"]["path"] == here

    from commeff.experiments.tasks.image_folder import locate

    assert locate("photos", data_dir).resolve() == Path(here)


def test_a_text_is_found_from_where_the_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    monkeypatch.chdir(tmp_path)
    words = ["task=language", "workers=2", "task.width=8", "task.heads=2", "task.context=8"]
    config = compose([*words, "task.data=mine.txt"])
    assert config["task"]["data"] == str(tmp_path / "mine.txt")
    monkeypatch.chdir("/")
    assert len(build(config).task.texts[0].train) == 7920, "nine tenths of 8,800 bytes"
    assert compose(words)["task"]["data"] == "tinyshakespeare", "a known text is meant by its name"


def test_show_says_what_has_to_be_given_and_train_asks_for_it() -> None:
    told = CliRunner().invoke(app, ["show", "task=image_folder", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["task"]["path"] == "???"
    with pytest.raises(ConfigError, match=r"task\.path has no default; set task\.path="):
        compose(["task=image_folder"])
    typo = CliRunner().invoke(app, ["show", "task=image_folder", "task.pth=x"])
    assert typo.exit_code == 2
    assert "did you mean task.path?" in typo.stderr


def test_show_explains_the_parts_that_are_named() -> None:
    of_the_task = CliRunner().invoke(app, ["show", "task=cifar10"]).stdout
    assert '"resnet20"' in of_the_task, "what is shared with other tasks is explained too"
    assert "Parallel SGD" not in of_the_task
    assert "Parallel SGD" in CliRunner().invoke(app, ["show"]).stdout
    models = CliRunner().invoke(app, ["list", "model"])
    assert models.exit_code == 2
    assert "models belong to the tasks" in models.stderr
