"""Every choice: it is what its signature says, composes, and trains three steps."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, resources
from inspect import isclass, isfunction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from commeff.compressors import Contractive, Shrunk
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import group_of
from commeff.experiments.config.registry import PACKAGES, locate
from commeff.experiments.config.schema import GROUPS, ConfigError, built_in, node, signature_node
from commeff.experiments.config.signature import parameters, signature
from commeff.experiments.run.runner import run_one
from tests.counting import calls
from tests.experiments.tasks import image_files

CHOICES = [(group, name) for group in GROUPS for name in built_in(group)]
APART = {Contractive, Shrunk}  # what `contractive` makes of another
MEMORYLESS = ("drive", "eden")  # neither contractive nor always unbiased, as they are


def exports(group: str) -> list[Any]:
    package = import_module(PACKAGES[group])
    return [getattr(package, name) for name in package.__all__]


def test_everything_of_its_kind_is_a_choice() -> None:
    """And nothing is twice."""
    chosen = {group: [locate(node(group, name)["_target_"]) for name in built_in(group)] for group in GROUPS}
    ours = {group: [part for part in parts if part.__module__.startswith("commeff")] for group, parts in chosen.items()}
    assert all(len(set(parts)) == len(parts) for parts in ours.values())
    for group in ("method", "topology", "compressor", "task"):
        parts = {part for part in exports(group) if isclass(part) or isfunction(part)}
        assert {part for part in parts if group_of(part) == group} - {*ours[group]} <= APART
    assert {*ours["optimizer"]} == {*exports("optimizer")}
    assert {*ours["schedule"]} == {*exports("schedule")}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_the_source_says_what_the_object_says(group: str, name: str) -> None:
    """The signature that is read without importing anything; a key that a table adds is one of its parameters."""
    target = node(group, name)["_target_"]
    of_object = parameters(locate(target))
    if target.startswith("commeff."):
        of_source = signature(target)
        assert [*of_source] == [*of_object]
        assert signature_node(of_source, target, group) == signature_node(of_object, target, group)
    assert {key for key in node(group, name) if not key.startswith("_")} <= {*of_object}


@pytest.mark.parametrize("group", GROUPS)
def test_a_table_says_what_signatures_do_not(group: str) -> None:
    file = resources.files("commeff.experiments.conf") / f"{group}.yaml"
    for name, entry in yaml.safe_load(file.read_text(encoding="utf-8")).items():
        said = signature_node(signature(node(group, name)["_target_"]), "", group)
        assert not [key for key, value in (entry or {}).items() if value == said.get(key)] or "_partial_" in entry, name
        assert entry or group not in ("method", "topology"), name


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_trains_three_steps(
    group: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_another_part_within_a_part_has_its_own_defaults() -> None:
    """Nesterov's rate in DiLoCo would be Adam's ruin; how many workers a part is of does not depend on its name."""
    assert [compose(["method=fedopt", *words])["method"]["server"]["lr"] for words in ([], ["method.server=sgd"])] == [
        0.01,
        0.1,
    ]
    assert compose(["method=fedopt"])["method"]["server"]["betas"] == [0.9, 0.99]
    assert compose(["method=diloco", "method.outer=adam"])["method"]["outer"] == node("optimizer", "adam")
    words = ["method=dsgd", "topology=hierarchical", "topology.inner=ring", "workers=8"]
    assert compose(words)["topology"]["inner"] == {"_target_": "commeff.topologies.ring", "n": 2}
    words = ["method=one_bit_adam", "compressor.compressor=one_bit"]
    assert compose(words)["compressor"]["compressor"] == {"_target_": "commeff.compressors.OneBit"}


def test_a_method_has_the_parts_that_suit_it_unless_others_are_chosen() -> None:
    words = ("method=choco", "method=choco compressor=top_k", "method=mem_sgd")
    parts = [compose(each.split())["compressor"]["_target_"].rpartition(".")[2] for each in words]
    assert parts == ["ScaledSign", "TopK", "TopK"]


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
