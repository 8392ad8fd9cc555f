"""Every YAML file: it composes, says what its function's signature says, and trains three steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commeff import methods
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import signature_node, snake_case
from commeff.experiments.config.registry import locate, split
from commeff.experiments.config.schema import GROUPS, VERSION, ConfigError, built_in, node
from commeff.experiments.run.runner import run_one
from tests.counting import calls
from tests.experiments import image_files

CHOICES = [(group, name) for group in GROUPS for name in built_in(group)]
OWN = {  # defaults that a signature cannot give
    ("compressor", "top_k"): {"ratio": "${unless:${.k},0.05}"},
    ("compressor", "random_k"): {"ratio": "${unless:${.k},0.05}"},
    ("compressor", "per_tensor"): {"rules": []},
    ("topology", "torus"): {"rows": "${rows:${workers}}", "cols": "${divide:${workers},${.rows}}"},
    ("topology", "grid"): {"rows": "${rows:${workers}}", "cols": "${divide:${workers},${.rows}}"},
}
HIDDEN = {("compressor", "per_tensor"): {"layout", "bound"}}  # what `bind` fills in
WORDS = {"DCTTopK": "dct_top_k"}  # names whose words capitals do not tell
MEMORYLESS = ("drive", "eden")  # neither contractive nor always unbiased, as they are


def test_every_published_method_has_a_yaml() -> None:
    assert set(methods.__all__) == set(built_in("method"))


@pytest.mark.parametrize(
    ("group", "name"), [c for c in CHOICES if c[0] in ("task", "method", "topology", "compressor")]
)
def test_yaml_is_the_signature(group: str, name: str) -> None:
    """Names and defaults; parts are wired by their names."""
    written = node(group, name)
    target = written["_target_"]
    written.pop(VERSION, None)
    nested = {default.split("@")[1].split(":")[0] for default in map(_first_key, written.pop("defaults", []))}
    expected = signature_node(locate(target), target, group) | OWN.get((group, name), {})
    expected = {key: value for key, value in expected.items() if key not in HIDDEN.get((group, name), ())}
    unset = {key for key, value in expected.items() if value == "???"}
    assert {k: v for k, v in written.items() if k not in nested | unset} == {
        k: v for k, v in expected.items() if k not in nested | unset
    }
    assert unset <= {*written, *nested}
    own_name = split(target)[1]
    assert name == (own_name if group in ("method", "topology") else WORDS.get(own_name, snake_case(own_name)))


def _first_key(default: dict[str, Any]) -> str:
    return next(iter(default))


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_yaml_trains_three_steps(group: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMEFF_CACHE", str(tmp_path / "cache"))
    tokens = [f"{group}={name}", "steps=3", "workers=8"]
    if group == "task":
        tokens += [*STAND_INS.get(name, lambda folder: [])(tmp_path), "optimizer.lr=0.01"]  # no network blows up
    else:
        tokens += ["task=digits" if name == "sophia_g" else "task=quadratic"]  # quadratics have no labels
    compressed = "compressed_sgd" if name in MEMORYLESS else "mem_sgd"
    tokens += {"compressor": [f"method={compressed}"], "topology": ["method=dsgd"]}.get(group, [])
    tokens += FILES[name](tmp_path) if name in FILES else []
    summary = run_one(compose(tokens), tmp_path / "run")
    assert summary["state"] == "done"
    assert summary["steps"] == 3
    assert torch.isfinite(torch.tensor([summary["train_loss"], summary["val_loss"]])).all()


def _tiny_libsvm(folder: Path) -> Path:
    (folder / "libsvm").mkdir()
    lines = "".join(f"{1 + i % 2} {1 + i % 111}:1 112:1\n" for i in range(8124))
    (folder / "libsvm" / "mushrooms").write_text(lines)
    return folder


def _tiny_text(folder: Path) -> Path:
    (folder / "text.txt").write_bytes(bytes(range(256)) * 200)
    return folder / "text.txt"


STAND_INS: dict[str, Callable[[Path], list[str]]] = {
    "logistic": lambda folder: [f"data_dir={_tiny_libsvm(folder)}", "task.data=mushrooms"],
    "cifar10": lambda folder: [f"data_dir={image_files.cifar10(folder)}", "model=linear"],
    "fashion_mnist": lambda folder: [f"data_dir={image_files.fashion_mnist(folder)}", "model=linear"],
    "language": lambda folder: [f"task.data={_tiny_text(folder)}"],
    "image_folder": lambda folder: [f"task.path={image_files.image_folder(folder / 'mine')}", "model=linear"],
}


def _ring_of_eight(folder: Path) -> Path:
    (folder / "ring.edges").write_text("".join(f"{i} {(i + 1) % 8}\n" for i in range(8)))
    return folder / "ring.edges"


def _averages_of_eight(folder: Path) -> Path:
    np.save(folder / "mine.npy", np.full((8, 8), 1 / 8))
    return folder / "mine.npy"


FILES: dict[str, Callable[[Path], list[str]]] = {
    "from_graph": lambda folder: [f"topology.graph={_ring_of_eight(folder)}"],
    "from_matrices": lambda folder: [f"topology.matrices={_averages_of_eight(folder)}"],
}


def test_names_are_forgiving_about_case_and_underscores() -> None:
    assert compose(["method=mem_sgd", "compressor=TopK"]) == compose(["method=MemSGD", "compressor=top-k"])


def test_parts_within_parts_are_chosen_like_parts() -> None:
    config = compose(
        ["method=mem_sgd", "compressor=repeated", "compressor.compressor=qsgd", "compressor.compressor.levels=8"]
    )
    assert config["compressor"]["compressor"]["_target_"] == "commeff.compressors.QSGD"
    assert config["compressor"]["compressor"]["levels"] == 8
    config = compose(["method=diloco", "method.outer=adam", "method.outer.lr=0.5"])
    assert config["method"]["outer"]["_target_"] == "torch.optim.Adam"
    assert config["method"]["outer"]["lr"] == 0.5


def test_model_is_short_for_task_model() -> None:
    assert compose(["model=cnn"]) == compose(["task.model=cnn"]) != compose([])


def test_text_that_hydra_cannot_read_is_text() -> None:
    assert compose(["data_dir=/a [b]/it's"])["data_dir"] == "/a [b]/it's"


def test_a_schedule_moves_the_learning_rate(tmp_path: Path) -> None:
    tokens = [
        "task=quadratic",
        "workers=4",
        "steps=4",
        "optimizer.lr=0.1",
        "schedule=multi_step",
        "schedule.milestones=[2]",
    ]
    assert run_one(compose(tokens), tmp_path / "run")["lr"] == pytest.approx(0.01)


def test_composing_is_quick() -> None:
    compose([])
    _, count = calls(lambda: compose(["method=choco", "topology=torus"]))
    assert count < 1_000_000  # about a second


def test_nothing_built_means_every_fault_is_kept() -> None:
    with pytest.raises(ConfigError) as error:
        build(compose(["method=choco", "topology=torus", "workers=7", "compressor=top_k", "compressor.ratio=2"]))
    assert len(error.value.faults) == 2
