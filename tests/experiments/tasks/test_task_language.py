"""The language task: windows, pieces and splits of the text, the laws of the GPT, one-line errors for unusable text."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commeff import methods
from commeff.communicator import Communicator
from commeff.experiments.config.compose import compose
from commeff.experiments.data.manifest import DATA_SETS
from commeff.experiments.tasks import DataError, Language
from commeff.experiments.tasks.language import task as task_file
from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.text import load, spaced
from commeff.replicas import Stacked, Vmapped
from commeff.training.settings import RunSettings
from commeff.training.trainer import train

CONTENT = np.random.default_rng(0).bytes(4000)  # no nine bytes of it occur twice
TINY: dict[str, Any] = {"layers": 2, "heads": 2, "width": 16, "context": 8, "batch": 4}


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "noise.txt"
    path.write_bytes(CONTENT)
    return str(path)


def made(data: str, workers: int = 4, **changed: Any) -> Language:
    return Language(workers, data=data, **(TINY | changed))


def tiny(**changed: Any) -> GPT:
    torch.manual_seed(0)
    return GPT(**({"vocabulary": 11, "layers": 2, "heads": 2, "width": 16, "context": 8} | changed)).double()


def placed(window: torch.Tensor) -> int:
    """Where in the text a window starts."""
    return CONTENT.index(bytes(window.tolist()))


@pytest.mark.parametrize("order", ["random", "epoch"])
@pytest.mark.parametrize("partition", ["iid", "contiguous"])
def test_a_batch_is_a_pure_function_of_seed_step_and_workers(text: str, partition: str, order: str) -> None:
    walked = made(text, partition=partition, order=order, seed=3)
    rows = [walked.batch(step, range(4))[0] for step in range(40)]
    for step in (33, 0, 17):
        fresh = made(text, partition=partition, order=order, seed=3)
        assert torch.equal(fresh.batch(step, [2, 0])[0], rows[step][[2, 0]])
    assert rows[0].shape == (4, 4, 9)
    assert rows[0].dtype == torch.int64
    assert not torch.equal(rows[0], made(text, partition=partition, order=order, seed=4).batch(0, range(4))[0])
    assert len({tuple(window.tolist()) for batch in rows for window in batch.flatten(0, 1)}) > 400


def test_windows_are_training_text_and_reach_both_of_its_ends(text: str) -> None:
    task = made(text, batch=64)
    starts = {placed(window) for step in range(100) for window in task.batch(step, range(4))[0].flatten(0, 1)}
    assert (min(starts), max(starts)) == (0, len(task.texts[0].train) - 9)


def test_contiguous_workers_own_disjoint_pieces_that_cover_the_text(text: str) -> None:
    task = made(text, workers=7, partition="contiguous", batch=64)
    used: list[set[int]] = []
    for worker in range(7):
        drawn = (window for step in range(60) for window in task.batch(step, [worker])[0][0])
        used.append({start + k for start in map(placed, drawn) for k in range(9)})
    assert sum(map(len, used)) == len(set.union(*used)) == len(task.texts[0].train)
    assert max(map(len, used)) - min(map(len, used)) <= 1


def test_a_text_is_cut_in_order_and_no_byte_is_in_two_splits(text: str) -> None:
    task = made(text)
    splits = (task.texts[0].train, task.texts[0].validation, task.texts[0].test)
    assert [len(split) for split in splits] == [3600, 200, 200]
    assert bytes(torch.cat(splits).tolist()) == CONTENT
    assert task.size == 3599 // 8


@pytest.mark.parametrize("most", [1, 24, 100, 10**9])
@pytest.mark.parametrize("length", [9, 33, 40, 200])
def test_evaluation_windows_share_no_target_and_span_the_text(length: int, most: int) -> None:
    taken = spaced(torch.arange(length), 8, most)
    assert torch.equal(taken, taken[:, :1] + torch.arange(9))
    assert len(taken[:, 1:].unique()) == taken[:, 1:].numel()
    count = (length - 1) // 8
    assert len(taken) == min(count, max(1, most // 8))
    gaps = taken[:, 0].diff()
    assert taken[0, 0] == 0
    assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_evaluation_is_the_mean_over_the_windows_and_accuracy_counts_next_bytes(text: str) -> None:
    task = made(text, probe=64, dtype="float64")
    model = task.model()
    report = task.evaluate(model) | task.test(model)
    everything = {"train": task.probe[0], "val": task.validation[0], "test": spaced(task.texts[0].test, 8, 10**9)}
    assert [len(tokens) for tokens in everything.values()] == [8, 8, 24]
    for name, tokens in everything.items():
        assert report[f"{name}_loss"] == pytest.approx(task.loss(model, tokens).item(), rel=1e-12)
    guessed = model(task.validation[0][:, :-1]).argmax(-1) == task.validation[0][:, 1:]
    assert report["val_accuracy"] == guessed.double().mean().item()
    assert model.training


def test_an_evaluation_has_few_logits_at_a_time_and_few_tokens_of_a_long_test(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, seen = made(text, dtype="float64"), []
    model = task.model()
    model.register_forward_hook(lambda module, inputs, out: seen.append(out.numel()))
    large = task.evaluate(model)
    monkeypatch.setattr(task_file, "LOGITS", 256 * 20)
    monkeypatch.setattr(task_file, "TESTED", 64)
    seen.clear()
    assert task.evaluate(model) == pytest.approx(large, rel=1e-12)
    assert max(seen) == 256 * 16
    seen.clear()
    task.test(model)
    assert sum(seen) == 256 * 64


def test_models_start_equal_near_a_uniform_guess_and_leave_the_global_generator_alone(text: str) -> None:
    before = torch.get_rng_state()
    task = made(text, width=64, context=64, heads=4, workers=2, seed=5)
    first, again = task.model(), task.model()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    other = made(text, width=64, context=64, heads=4, workers=2, seed=6).model()
    assert not torch.equal(next(first.parameters()), next(other.parameters()))
    noise = torch.randint(256, (64, 65), generator=torch.Generator().manual_seed(0))
    assert task.loss(first, noise).item() == pytest.approx(math.log(256), abs=0.3)


def test_a_later_token_does_not_change_earlier_predictions_and_an_earlier_one_does_later_ones() -> None:
    model = tiny()
    tokens = torch.arange(8)[None]
    logits = model(tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[0, place] = 10
        moved = (model(changed) - logits).abs().amax((0, 2))
        assert (moved[:place] == 0).all()
        assert (moved[place:] > 1e-6).all()


def test_order_matters() -> None:
    model = tiny()
    one, other = (model(torch.tensor([tokens]))[0, -1] for tokens in ([1, 2, 3], [2, 1, 3]))
    assert (one - other).abs().max() > 1e-6


@pytest.mark.parametrize(("layers", "width", "context"), [(1, 8, 4), (3, 16, 8)])
def test_the_number_of_parameters_is_the_formula_and_the_embedding_is_the_output_layer(
    layers: int, width: int, context: int
) -> None:
    model = tiny(layers=layers, width=width, context=context)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == (11 + context) * width + layers * (12 * width**2 + 2 * width) + width
    model.tokens.weight.data[7] = 0
    assert (model(torch.tensor([[1, 2]]))[..., 7] == 0).all()


def test_weights_start_as_wide_as_gpt_2_says_at_its_width() -> None:
    model = tiny(width=768, layers=2, vocabulary=50)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            expected = 0.01 if "project" in name else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_dropout_acts_in_training_only() -> None:
    model, tokens = tiny(dropout=0.5), torch.arange(8)[None]
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_one_vmapped_graph_gives_the_gradients_of_the_loop(text: str) -> None:
    task = made(text, dtype="float64")
    batch = task.batch(5, range(4))
    results = []
    for engine in (Stacked, Vmapped):
        replicas = engine(task.model, range(4))
        noise = torch.randn(replicas.parameters.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        replicas.parameters += 0.1 * noise
        gradients, losses = replicas.compute(task.loss, [batch], step=0)
        assert gradients.dtype == torch.float64
        results.append((gradients, losses))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)
    assert results[0][0].norm(dim=1).min() > 1e-3


def test_training_learns_and_counts_epochs_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "fox.txt"
    path.write_bytes(b"the quick brown fox jumps over the lazy dog. " * 100)
    task = made(str(path), workers=2)
    communicator = Communicator(workers=2, seed=0)
    strategy = methods.psgd(partial(torch.optim.AdamW, lr=0.01))
    rows: list[dict[str, Any]] = []
    summary = train(task, strategy, communicator, RunSettings(steps=150), progress=lambda step, row: rows.append(row))
    assert summary["test_loss"] < 0.5
    assert summary["val_accuracy"] > 0.8
    seen = 150 * 2 * 4 * 8
    assert summary["epoch"] == pytest.approx(seen / len(task.texts[0].train), rel=0.01)


@pytest.mark.parametrize(("data", "sizes"), [("tinyshakespeare", [91, 5, 5]), ("wikitext-2", [101, 102, 103])])
def test_a_known_text_is_found_in_the_data_folder_and_another_copy_of_it_is_refused(
    data: str, sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = DATA_SETS[data]
    contents = {name: bytes([k]) * (101 + k) for k, name in enumerate(known.files)}
    sums = {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(DATA_SETS, data, replace(known, files=sums))
    (tmp_path / known.folder).mkdir()
    for name, content in contents.items():
        (tmp_path / known.folder / name).write_bytes(content)
    found = load(data, str(tmp_path))
    assert [len(split) for split in (found.train, found.validation, found.test)] == sizes
    if data == "wikitext-2":
        assert [int(split.unique()) for split in (found.train, found.validation, found.test)] == [0, 1, 2]
    (tmp_path / known.folder / name).write_bytes(content[1:])
    with pytest.raises(DataError, match=f"{name} is no good copy of {data}, its MD5 sum .*: get .*github.com"):
        load(data, str(tmp_path))


def test_a_path_is_absolute_or_relative_to_the_data_folder(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COMMEFF_DATA", raising=False)
    assert torch.equal(load("noise.txt", str(tmp_path)).test, load(text, None).test)
    with pytest.raises(DataError, match=r"no data folder to look for noise\.txt: set data_dir or COMMEFF_DATA; give"):
        load("noise.txt", None)
    monkeypatch.setenv("COMMEFF_DATA", str(tmp_path))
    assert torch.equal(load("noise.txt", None).test, load(text, None).test)


def fifo(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return "pipe"


def empty(folder: Path) -> str:
    (folder / "empty.txt").touch()
    return "empty.txt"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (lambda folder: "tinyshakespear", "no file .*tinyshakespear: correct task.data, .* or one of tinyshakespeare"),
        (lambda folder: "tinyshakespeare", "no file .*input.txt: .* get .*karpathy/char-rnn"),
        (lambda folder: "wikitext-2", "no file .*train.txt: .* get .*pytorch/examples"),
        (lambda folder: ".", "is not a regular file: give the path"),
        (fifo, "is not a regular file"),
        (empty, "empty.txt is empty: give the path"),
    ],
)
def test_text_that_cannot_be_used_is_refused_in_one_line(
    name: Callable[[Path], str], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=reason) as refusal:
        Language(2, data=name(tmp_path), data_dir=str(tmp_path))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"context": 0}, "context must be at least 1"),
        ({"probe": 0}, "probe must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"heads": 3}, "3 heads cannot share width 16 evenly"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"dtype": "half"}, "dtype must be one of"),
        ({"partition": "shards"}, "partition must be one of iid, contiguous"),
        ({"order": "sorted"}, "order must be one of random, epoch"),
        ({"context": 200}, "the validation text in .* has 200 tokens and a window 201: take a longer text"),
        (
            {"workers": 401, "partition": "contiguous"},
            "each of 401 workers in .* has 8 tokens and a window 9: .* fewer",
        ),
    ],
)
def test_refusals_are_one_line(text: str, wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        made(text, **wrong)
    assert "\n" not in str(refusal.value)


def test_as_many_workers_as_pieces_of_one_window_are_taken(text: str) -> None:
    task = made(text, workers=400, partition="contiguous")
    batches = [task.batch(step, range(400))[0] for step in (0, 1)]
    assert torch.equal(*batches)
    assert len(batches[0][:, 0].unique(dim=0)) == 400


@pytest.fixture
def mixed(text: str, tmp_path: Path) -> str:
    (tmp_path / "fox.txt").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 60)
    return f"3 {text} + 1 {tmp_path}/fox.txt"


@pytest.mark.parametrize("order", ["random", "epoch"])
def test_a_mixture_draws_from_its_texts_and_is_measured_on_each(mixed: str, text: str, order: str) -> None:
    task = made(mixed, order=order, dtype="float64")
    fox = made(mixed.split()[-1], order=order, dtype="float64")
    noise, model = made(text, order=order, dtype="float64"), task.model()
    windows = torch.cat([task.batch(step, range(4))[0].flatten(0, 1) for step in range(30)])
    alien = torch.tensor([bytes(window.tolist()) in CONTENT for window in windows])
    assert alien.double().mean() == pytest.approx(0.75, abs=0.02)
    assert all(bytes(window.tolist()) in bytes(fox.texts[0].train.tolist()) for window in windows[~alien])
    assert task.size == noise.size + fox.size
    rows = [one.evaluate(model) | one.test(model) for one in (task, noise, fox)]
    for name in ("train_loss", "val_loss", "val_accuracy", "test_loss", "test_accuracy"):
        assert rows[0][name] == pytest.approx(0.75 * rows[1][name] + 0.25 * rows[2][name], rel=1e-12)
    assert [rows[0]["val_loss_1"], rows[0]["val_loss_2"]] == [row["val_loss"] for row in rows[1:]]
    assert "val_loss_1" not in rows[1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("{0} + {0}", r"data must be WEIGHT TEXT \+ WEIGHT TEXT \.\.\., got '/.*: a mixture has weights"),
        ("0.5 {0} + half {0}", "data must be WEIGHT TEXT"),
        ("0.5 {0} + 0.5", "data must be WEIGHT TEXT"),
        ("0.5 {0} + -0.5 {0}", "weight must be above 0, got -0.5: leave out of data=0.5 /.* what is not to be drawn"),
        ("1 {0} + inf {0}", "weight must be finite, got inf"),
        ("1e308 {0} + 1e308 {0}", "weight must be finite, got inf"),
        ("1 {0} + 0 {0}", "weight must be above 0, got 0.0"),
        ("1 {0} + 1 {0}.txt", "no file .*noise.txt.txt: correct task.data"),
        ("1 {0} + 1 {1}", r"same tokenizer, vocabulary and separator, got 256 with None and 300 with None: tokenise"),
        ("1 {1} + 1 {2}", r"must have the same tokenizer, .* got 2 tokenizers: tokenise them with one \(commeff data"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused_in_one_line(text: str, data: str, reason: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tokens.json").write_text('{"vocabulary": 300}')
        (tmp_path / folder / "tokenizer.json").write_text(folder)
        for name in ("train", "val"):
            np.arange(300, dtype="<u2").tofile(tmp_path / folder / f"{name}.bin")
    with pytest.raises(ValueError, match=reason) as refusal:
        made(data.format(text, tmp_path / "one", tmp_path / "two"))
    assert "\n" not in str(refusal.value)
    if "tokenizers" in reason:
        (tmp_path / "two/tokenizer.json").unlink()  # nothing is known of it
        assert made(data.format(text, tmp_path / "one", tmp_path / "two")).workers == 4


def test_a_path_with_a_plus_is_one_text_and_may_be_in_a_mixture(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "C + D").mkdir()
    monkeypatch.chdir(tmp_path / "C + D")
    Path("a + b.txt").write_bytes(CONTENT)
    for given in ("a + b.txt", f"{tmp_path}/C + D/a + b.txt"):
        config = compose(["task=language", f"task.data={given}"])
        assert config["task"]["data"] == f"{tmp_path}/C + D/a + b.txt"
        assert len(made(config["task"]["data"]).texts) == 1
    config = compose(["task=language", f"task.data=0.5 a + b.txt + 1e-1 {text}"])
    assert config["task"]["data"] == f"0.5 {tmp_path}/C + D/a + b.txt + 0.1 {text}"
    assert config["task"]["digest"] is None
    assert torch.equal(made(config["task"]["data"]).texts[0].train, made(text).texts[0].train)


def test_every_text_of_a_mixture_must_have_a_window(text: str, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(CONTENT[:100])
    for data in (f"1 {text} + 1 {tmp_path}/short", f"1 {tmp_path}/short + 1 {text}"):
        with pytest.raises(ValueError, match=r"the validation text in .*/short has 5 tokens and a window 9"):
            made(data)
