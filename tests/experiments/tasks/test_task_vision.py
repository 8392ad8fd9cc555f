"""Tasks on images: what is read, how it is scaled and split, the networks of the papers, one-line refusals."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from commeff.experiments.tasks import CIFAR10, DataError, FashionMNIST, ImageFolder, Samples, Supervised
from commeff.experiments.tasks import cifar10 as cifar10_files
from commeff.experiments.tasks import fashion_mnist as fashion_files
from commeff.experiments.tasks.images import statistics
from commeff.experiments.tasks.models import ARCHITECTURES, NetworkSettings, ResidualBlock, Subsampled
from commeff.experiments.tasks.vision import Vision
from commeff.replicas import Stacked, Vmapped
from tests.experiments.tasks import image_files

DATA = Path(os.environ.get("COMMEFF_DATA") or Path(__file__).parents[4] / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (DATA / "cifar-10-subset").is_dir(), reason=f"no images in {DATA}: set COMMEFF_DATA to the data folder"
)
TASKS: dict[str, Callable[..., Vision]] = {
    "cifar10": lambda folder, **given: CIFAR10(4, data_dir=image_files.cifar10(folder), **given),
    "fashion_mnist": lambda folder, **given: FashionMNIST(
        4, data_dir=image_files.fashion_mnist(folder, image_files.TRAIN, image_files.TEST), **given
    ),
    "image_folder": lambda folder, **given: ImageFolder(
        4, path=image_files.image_folder(folder / "mine"), size=8, **given
    ),
}
SHAPES = {"cifar10": (3, 32, 32), "fashion_mnist": (1, 28, 28), "image_folder": (3, 8, 8)}
SIZES = {"cifar10": (180, 20, 40), "fashion_mnist": (180, 20, 40), "image_folder": (36, 4, 12)}
every_task = pytest.mark.parametrize("name", TASKS)


@pytest.fixture(autouse=True)
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of our own, and Fashion-MNIST may be as small as its stand-in."""
    monkeypatch.setenv("COMMEFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(fashion_files.SIZES, "train", image_files.TRAIN)
    monkeypatch.setitem(fashion_files.SIZES, "t10k", image_files.TEST)


@every_task
def test_every_image_is_used_once_and_the_split_is_fixed_and_stratified(name: str, tmp_path: Path) -> None:
    task = TASKS[name](tmp_path, model="linear")
    assert task.held_back is not None
    parts = (task.train, task.validation, task.held_back)
    assert tuple(map(len, parts)) == SIZES[name]
    assert all(part.inputs.dtype == torch.uint8 and part.inputs.shape[1:] == SHAPES[name] for part in parts)
    own = torch.cat([task.train.inputs, task.validation.inputs]).flatten(1)
    assert len(own.unique(dim=0)) == {"cifar10": 40, "fashion_mnist": 200, "image_folder": 40}[name]
    per_class = torch.bincount(task.validation.targets)
    assert per_class.max() == per_class.min()
    assert sorted(task.evaluate(task.model())) == ["train_loss", "val_accuracy", "val_loss"]
    assert sorted(task.test(task.model())) == ["test_accuracy", "test_loss"]


@every_task
def test_a_batch_is_pure_and_nothing_depends_on_who_else_is_asked(name: str, tmp_path: Path) -> None:
    task = TASKS[name](tmp_path, model="linear", augment="crop_flip", batch=6, weighted=True)
    everyone = task.batch(5, range(4))
    task.batch(900, [1])
    for workers in ([2], [3, 0], range(4)):
        for mine, all_rows in zip(task.batch(5, workers), everyone, strict=True):
            assert torch.equal(mine, all_rows[list(workers)])
    assert everyone[0].shape == (4, 6, *SHAPES[name])
    assert everyone[2].shape == (4, 6)


@every_task
def test_images_are_scaled_by_channel_when_they_are_drawn(name: str, tmp_path: Path) -> None:
    task = TASKS[name](tmp_path, model="linear", augment="none", dtype="float64", partition="iid")
    index = task._sampler.batch(2, [0, 3])
    raw = task.train.inputs[index].double() / 255
    mean, std = (numbers.squeeze() for numbers in (task.train.mean, task.train.std))
    expected = (raw - mean.view(-1, 1, 1)) / std.view(-1, 1, 1)
    torch.testing.assert_close(task.batch(2, [0, 3])[0], expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(task.batch(2, [0, 3])[1], task.train.targets[index])


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(
    ("name", "parameters"), [("resnet20", 269_722), ("resnet56", 853_018), ("resnet18", 11_173_962)]
)
def test_networks_have_the_parameters_of_the_papers(name: str, parameters: int, norm: str) -> None:
    kind = ARCHITECTURES[name]
    with torch.device("meta"):
        model = kind.build(NetworkSettings(3, 32, 10, kind.width, norm))
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("channels", "size"), [(3, 32), (1, 28)])
def test_every_network_takes_every_image(name: str, channels: int, size: int) -> None:
    kind = ARCHITECTURES[name]
    model = kind.build(NetworkSettings(channels, size, 7, 8, kind.norm))
    assert model(torch.zeros(2, channels, size, size)).shape == (2, 7)


def test_layers_of_a_resnet_are_counted_as_in_the_paper() -> None:
    """6n + 2 weight layers: convolutions and the last linear layer; shortcuts of option A have none."""
    for name, layers in (("resnet8", 8), ("resnet20", 20), ("resnet56", 56)):
        with torch.device("meta"):
            model = ARCHITECTURES[name].build(NetworkSettings(3, 32, 10, 16, "batch"))
        assert sum(isinstance(module, nn.Conv2d | nn.Linear) for module in model.modules()) == layers


def test_a_block_without_residual_is_its_shortcut() -> None:
    block = ResidualBlock(4, 8, 2, "group", Subsampled)
    nn.init.zeros_(block.residual[-1].weight)
    images = torch.rand(3, 4, 6, 6)
    out = block(images)
    assert torch.equal(out[:, 2:6], images[:, :, ::2, ::2])
    assert not out[:, :2].any()
    assert not out[:, 6:].any()


def test_convolutions_start_with_variance_two_over_fan_out() -> None:
    kind = ARCHITECTURES["resnet20"]
    model = kind.build(NetworkSettings(3, 32, 10, 32, "batch"))
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 5000:
            expected = 2 / (9 * module.out_channels)
            assert float(module.weight.detach().var()) == pytest.approx(
                expected, rel=6 * (2 / module.weight.numel()) ** 0.5
            )


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_one_vmapped_graph_gives_the_gradients_of_the_loop(norm: str, tmp_path: Path) -> None:
    task = TASKS["image_folder"](tmp_path, model="resnet8", width=8, norm=norm, batch=3, dtype="float64")
    batch = task.batch(1, range(4))
    (loop, losses), (graph, others) = (
        engine(task.model, range(4)).compute(task.loss, [batch], step=1) for engine in (Stacked, Vmapped)
    )
    torch.testing.assert_close(graph, loop, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(others, losses)


@pytest.mark.parametrize(("model", "norm"), [("linear", None), ("cnn", None), ("resnet8", "batch")])
def test_plain_sgd_learns_the_colours(model: str, norm: str | None, tmp_path: Path) -> None:
    task = TASKS["image_folder"](tmp_path, model=model, norm=norm, width=8, augment="crop_flip", partition="iid")
    network = task.model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    before = task.evaluate(network)["train_loss"]
    for step in range(60):
        optimizer.zero_grad()
        inputs, targets = task.batch(step, [0])
        task.loss(network, inputs[0], targets[0]).backward()
        optimizer.step()
    assert task.evaluate(network)["train_loss"] < 0.3 * before
    assert task.test(network)["test_accuracy"] > 0.9


def test_the_probe_stands_for_the_training_images(tmp_path: Path) -> None:
    task = TASKS["cifar10"](tmp_path, model="resnet8", width=4, norm="batch", probe=70)
    assert len(task.probe) == 70
    rows = {tuple(image.flatten().tolist()) for image in task.train.inputs}
    assert {tuple(image.flatten().tolist()) for image in task.probe.inputs} <= rows


def test_batch_norm_is_calibrated_on_images_as_training_sees_them(tmp_path: Path) -> None:
    task = TASKS["cifar10"](tmp_path, model="resnet8", width=4, norm="batch")
    (first, *_) = (inputs for (inputs,) in task.calibration())
    drawn = task.batch(0, range(task.workers))[0].flatten(0, 1)
    assert torch.equal(first[: len(drawn)], drawn)
    plain = {tuple(image.flatten().tolist()) for image in task.train.inputs}
    assert any(tuple(image.flatten().tolist()) not in plain for image in first)


def test_a_cifar_folder_is_called_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = image_files.cifar10(tmp_path, "cifar-10-subset/cifar-10-batches-py", train=100)
    for data_dir in (folder, f"{folder}/cifar-10-subset"):
        for variant in ("auto", "subset"):
            assert CIFAR10(2, data_dir=data_dir, variant=variant, model="linear").label == "CIFAR-10 subset (100/40)"
    with pytest.raises(DataError, match=r"100 \+ 40 images, which is not variant=full: use variant=subset"):
        CIFAR10(2, data_dir=f"{folder}/cifar-10-subset", variant="full")
    monkeypatch.setattr(cifar10_files, "FULL", (image_files.TRAIN, image_files.TEST))
    image_files.cifar10(tmp_path)
    named = dict.fromkeys(("auto", "whole", "full"), "CIFAR-10") | {"subset": "CIFAR-10 subset (100/40)"}
    for variant, label in named.items():
        assert CIFAR10(2, data_dir=folder, variant=variant, model="linear").label == label


def test_cifar_as_jpeg_files_is_called_so_and_must_have_its_classes(tmp_path: Path) -> None:
    folder = image_files.image_folder(tmp_path / "cifar-10-jpeg", side=32, classes=10)
    with pytest.raises(DataError, match="which are not those of CIFAR-10"):
        CIFAR10(2, data_dir=str(tmp_path), variant="jpeg")
    for part in ("train", "test"):
        for number, name in enumerate(cifar10_files.CLASSES):
            os.rename(f"{folder}/{part}/class_{number}", f"{folder}/{part}/{name}")
    task = CIFAR10(2, data_dir=str(tmp_path), variant="jpeg", model="linear", validation=10)
    assert task.label == "CIFAR-10 (JPEG re-encoded)"
    assert task.class_names() == list(cifar10_files.CLASSES)


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harmed",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pickle.dumps({"data": Harmful(), "labels": [1]}), "it asks for posix.mkdir"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 2]})[:-900], "corrupt or cut short"),
        (b"", "corrupt or cut short"),
        (pickle.dumps([1, 2]), "corrupt or cut short"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8)}), "corrupt or cut short"),
        (pickle.dumps({"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]}), "no batch of CIFAR-10"),
        (pickle.dumps({"data": np.zeros((2, 3072)), "labels": [1, 2]}), "no batch of CIFAR-10"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}), "no batch of CIFAR-10"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": 1}), "no batch of CIFAR-10"),
        (pickle.dumps({"data": np.zeros((0, 3072), np.uint8), "labels": []}), "no batch of CIFAR-10"),
        (None, "no file"),
    ],
)
def test_a_bad_batch_file_is_refused_in_one_line_and_runs_nothing(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = image_files.cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=reason) as refusal:
        CIFAR10(2, data_dir=folder)
    assert str(path) in str(refusal.value)
    assert "commeff data prepare cifar10" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not Path("harmed").exists()


@pytest.mark.parametrize("damage", [lambda b: b[:-200], lambda b: b"no gzip", lambda b: None])
def test_a_bad_idx_file_is_refused_in_one_line(damage: Callable[[bytes], bytes | None], tmp_path: Path) -> None:
    folder = image_files.fashion_mnist(tmp_path, image_files.TRAIN, image_files.TEST)
    path = tmp_path / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte.gz"
    content = damage(path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match="t10k-images") as refusal:
        FashionMNIST(2, data_dir=folder)
    assert "\n" not in str(refusal.value)


def test_an_idx_file_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = image_files.fashion_mnist(tmp_path, image_files.TRAIN - 10, image_files.TEST)
    with pytest.raises(DataError, match=r"does not hold bytes of shape \(200, 28, 28\)"):
        FashionMNIST(2, data_dir=folder)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"model": "resnet21"}, "model must be one of linear, mlp, cnn, resnet8, resnet20"),
        ({"norm": "layer"}, "norm must be one of"),
        ({"model": "resnet8", "norm": "none"}, "a ResNet needs a norm"),
        ({"norm": "batch", "batch": 1}, "norm batch needs more than one sample"),
        ({"augment": "cutout"}, "augment must be one of none, crop, crop_flip"),
        ({"variant": "tiny"}, "variant must be one of"),
        ({"width": 0}, "width must be at least 1"),
        ({"probe": 0}, "probe must be at least 1"),
        ({"validation": 9}, r"validation=9 images of 200 leave a class without one .* choose 10 \.\.\. 190"),
        ({"validation": 191}, r"choose 10 \.\.\. 190"),
        ({"dtype": "half"}, "dtype must be one of"),
        ({"model": "linear", "norm": "group"}, "no hidden layer"),
    ],
)
def test_refusals_are_one_line(wrong: dict, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        TASKS["cifar10"](tmp_path, **wrong)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("make", [CIFAR10, FashionMNIST])
def test_missing_data_says_where_it_was_looked_for_and_how_to_get_it(
    make: Callable[..., Vision], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMMEFF_DATA", raising=False)
    with pytest.raises(DataError, match="set data_dir or COMMEFF_DATA; `commeff data prepare"):
        make(2)
    monkeypatch.setenv("COMMEFF_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"{tmp_path}.*correct data_dir or COMMEFF_DATA, or `commeff data prepare"):
        make(2)


@needs_data
def test_the_exact_subset_loads_and_the_constants_are_near_its_statistics() -> None:
    task = CIFAR10(2, data_dir=str(DATA), variant="subset", model="linear")
    assert task.label == "CIFAR-10 subset (8,068/1,017)"
    assert task.held_back is not None
    assert (len(task.train), len(task.validation), len(task.held_back)) == (7261, 807, 1017)
    for found, constant in zip(statistics(task.train.inputs), (cifar10_files.MEAN, cifar10_files.STD), strict=True):
        assert found == pytest.approx(constant, abs=0.004)


@pytest.mark.parametrize("loss", [lambda a, b: (a - b).sum(), lambda a, b: a[:, None] - b])
def test_a_loss_of_another_shape_is_told_by_its_cure(loss: Callable[..., torch.Tensor]) -> None:
    task: Any = SimpleNamespace(losses=loss, measures=lambda outputs, targets: {})
    samples = Samples(torch.randn(4, 3), torch.randn(4))
    with pytest.raises(ValueError, match="one shape and reduction='none'"):
        Supervised._measure(task, torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0)), samples)
