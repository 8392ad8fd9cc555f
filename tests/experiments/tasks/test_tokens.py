"""Tokenised texts: what is written is read back, runs are named after it, documents do not see each other."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.run.naming import run_id
from commeff.experiments.tasks import DataError, Language
from commeff.experiments.tasks.language import GPT, Llama
from commeff.experiments.tasks.language.text import DTYPES, load
from commeff.experiments.tasks.language.tokenise import tokenise

PLAY = "".join(f"\nSpeaker {k % 7}:\nWords é {k}, and words of {k % 11}.\n" for k in range(400))
TINY: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "context": 32, "batch": 4}


@pytest.fixture
def play(tmp_path: Path) -> str:
    path = tmp_path / "play.txt"
    path.write_text(PLAY, encoding="utf-8")
    return str(path)


def read(folder: Path, name: str) -> np.ndarray:
    return np.fromfile(folder / name, DTYPES[json.loads((folder / "tokens.json").read_text())["dtype"]])


def test_bytes_are_the_text_and_need_no_package(play: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    made = tokenise(play, None, tmp_path / "bytes")
    assert (made.vocabulary, made.separator, made.bytes_per_token) == (256, None, 1.0)
    content = b"".join(
        bytes(read(tmp_path / "bytes", f"{name}.bin").astype(np.uint8)) for name in ("train", "val", "test")
    )
    assert content == PLAY.encode()
    raw, tokens = load(play, None), load(str(tmp_path / "bytes"), None)
    assert torch.equal(raw.train, tokens.train.to(torch.uint8))
    with pytest.raises(DataError, match=r"the package tokenizers, .* pip install 'commeff\[tokenizers\]', or take"):
        tokenise(play, None, tmp_path / "pairs", 300)
    assert not (tmp_path / "pairs").exists()


def test_merged_pairs_are_the_text_again_and_the_same_at_every_making(play: str, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    first, again = (tokenise(play, None, tmp_path / name, 300) for name in ("first", "again"))
    assert first.vocabulary == 300
    assert first.bytes_per_token > 1.5
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "first" / "tokenizer.json"))
    ids = [token for name in ("train", "val", "test") for token in read(tmp_path / "first", f"{name}.bin").tolist()]
    assert tokenizer.decode(ids) == PLAY
    for file in (tmp_path / "first").iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()
    facts = json.loads((tmp_path / "first" / "tokens.json").read_text())
    for name, total in facts["sha256"].items():
        assert hashlib.sha256((tmp_path / "first" / name).read_bytes()).hexdigest() == total
    assert (
        again.tokens
        == first.tokens
        == {k: facts["tokens"][f] for k, f in zip(first.tokens, facts["tokens"], strict=True)}
    )


def test_room_for_no_more_tokens_is_asked_than_the_text_can_have(
    play: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    trainer = tokenizers.trainers.BpeTrainer

    def bounded(vocab_size: int, **settings: object) -> object:
        assert vocab_size <= 256 + len(PLAY.encode()), "the package aborts where memory for all of them is not there"
        return trainer(vocab_size=vocab_size, **settings)

    monkeypatch.setattr(tokenizers.trainers, "BpeTrainer", bounded)
    made = tokenise(play, None, tmp_path / "all", 10**9)
    assert 256 < made.vocabulary < 256 + len(PLAY.encode())


def test_validation_text_does_not_shape_the_vocabulary(play: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    other = tmp_path / "other.txt"
    size = len(PLAY.encode())
    other.write_bytes(PLAY.encode()[: size - 2 * (size // 20)] + b"z" * (2 * (size // 20)))
    for name, data in (("one", play), ("two", str(other))):
        tokenise(data, None, tmp_path / name, 300)
    assert (tmp_path / "one/tokenizer.json").read_bytes() == (tmp_path / "two/tokenizer.json").read_bytes()


def test_every_document_begins_with_the_separator(play: str, tmp_path: Path) -> None:
    made = tokenise(play, None, tmp_path / "documents", documents="^Speaker")
    assert made.separator == 256
    assert made.vocabulary == 257
    tokens = read(tmp_path / "documents", "train.bin")
    begins = np.flatnonzero(tokens == 256)
    assert begins[0] == 0
    assert bytes(tokens[tokens != 256].astype(np.uint8)) == PLAY.encode()[: (tokens != 256).sum()]
    assert all(bytes(tokens[b + 1 : b + 8].astype(np.uint8)) == b"Speaker" for b in begins[1:])
    assert len(begins) == 1 + bytes(tokens[tokens != 256].astype(np.uint8)).count(b"\nSpeaker")


def test_many_tokens_take_four_bytes_and_batches_are_pure(tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    values = np.random.default_rng(0).integers(0, 70_000, 5000)
    for name in ("train", "val"):
        values.astype("<u4").tofile(folder / f"{name}.bin")
    (folder / "tokens.json").write_text(json.dumps({"vocabulary": 70_000, "dtype": "uint32"}))
    task = Language(3, data=str(folder), seed=5, **TINY)
    rows = [task.batch(step, range(3))[0] for step in range(20)]
    assert max(int(row.max()) for row in rows) > 1 << 16
    assert torch.equal(task.batch(13, [2])[0][0], rows[13][2])
    assert torch.equal(Language(3, data=str(folder), seed=5, **TINY).batch(7, [1])[0][0], rows[7][1])
    known = values.tolist()
    window = rows[0][0, 0].tolist()
    assert any(known[k : k + 33] == window for k in range(len(known)))
    assert torch.equal(task.texts[0].test, task.texts[0].validation)  # nanoGPT has no third file


@pytest.mark.parametrize(
    "make",
    [
        lambda separator: GPT(64, layers=2, heads=2, width=16, context=24, separator=separator),
        lambda separator: Llama(64, layers=2, width=16, heads=4, kv_heads=2, inner=32, separator=separator),
    ],
)
def test_a_document_is_predicted_alike_wherever_it_lies(make: Callable[[int | None], torch.nn.Module]) -> None:
    torch.manual_seed(0)
    model, across = make(63).double(), make(None).double()
    across.load_state_dict(model.state_dict())
    one, two = torch.randint(63, (2, 9))
    one[0] = two[0] = 63
    alone = model(one[None])[0]
    packed, swapped = model(torch.cat((two, one))[None])[0], model(torch.cat((one, two))[None])[0]
    for found in (packed[9:], swapped[:9]):  # rotary angles are float32
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-6)
    leaking = across(torch.cat((two, one))[None])[0]
    assert (leaking[9:] - alone).abs().max() > 1e-3  # without a separator they do see each other


def test_a_task_packs_documents_and_learns_them(play: str, tmp_path: Path) -> None:
    tokenise(play, None, tmp_path / "documents", documents="^Speaker")
    task = Language(2, data=str(tmp_path / "documents"), documents=True, **TINY)
    model = task.model()
    (tokens,) = task.batch(0, [0])
    assert model.separator == 256
    assert (tokens == 256).any()
    assert task.loss(model, tokens[0]).item() == pytest.approx(np.log(257), abs=0.5)
    with pytest.raises(ValueError, match=r"documents must be false for .*, which has no separators: tokenise it with"):
        Language(2, data=play, documents=True, **TINY)


def test_runs_are_named_after_the_tokens(play: str, tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    names, digests = [], []
    for documents in ("", "^Speaker"):
        tokenise(play, None, folder, documents=documents)
        config = compose(["task=language", f"task.data={folder}", "workers=2"])
        names.append(run_id(config))
        digests.append(config["task"]["digest"])
        assert digests[-1] == hashlib.sha256((folder / "tokens.json").read_bytes()).hexdigest()
        if documents:
            with pytest.raises(DataError, match="must be the tokens that the run was made with, got others"):
                Language(2, data=str(folder), digest=digests[0], **TINY)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    assert names[0] != names[1]
    plain = compose(["task=language", f"task.data={play}"])
    del plain["task"]["digest"], plain["task"]["documents"], plain["task"]["order"]  # as stores from before have it
    assert run_id(plain) == run_id(compose(["task=language", f"task.data={play}"]))


def test_a_run_of_a_mixture_is_named_after_all_its_texts(
    play: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names, settled = set(), []
    for folder in ("one", "two", "other"):
        tokenise(play, None, tmp_path / folder)
    (tmp_path / "other/tokens.json").write_text((tmp_path / "other/tokens.json").read_text() + " ")
    for data in ("0.7 one + 0.3 two", "0.3 one + 0.7 two", "0.7 one + 0.3 other", "0.7 one + 0.3 " + play, "one"):
        config = compose(["task=language", f"task.data={data}", "workers=2"])
        assert run_id(compose(["task=language", f"task.data={config['task']['data']}", "workers=2"])) == run_id(config)
        names.add(run_id(config))
        settled.append(config["task"])
    assert len(names) == 5
    assert settled[0]["data"] == f"0.7 {tmp_path}/one + 0.3 {tmp_path}/two"
    assert len({task["digest"] for task in settled}) == 4
    Language(2, data=settled[0]["data"], digest=settled[0]["digest"], **TINY)
    (tmp_path / "two/tokens.json").write_text((tmp_path / "other/tokens.json").read_text())
    with pytest.raises(DataError, match="must be the tokens that the run was made with, got others"):
        Language(2, data=settled[0]["data"], digest=settled[0]["digest"], **TINY)


def damaged(folder: Path, facts: dict[str, Any], tokens: bytes = b"\1\0\2\0") -> str:
    folder.mkdir()
    (folder / "tokens.json").write_text(json.dumps(facts))
    for name in ("train", "val"):
        (folder / f"{name}.bin").write_bytes(tokens)
    return str(folder)


@pytest.mark.parametrize(
    ("facts", "tokens", "reason"),
    [
        ({}, b"", "must give a vocabulary and a dtype, uint16 or uint32, got 'None'"),
        ({"vocabulary": 9, "dtype": "int8"}, b"", "got '9' and 'int8'"),
        ({"vocabulary": True}, b"", "must give a vocabulary"),
        ({"vocabulary": 9, "more": " " * (1 << 20)}, b"\1\0", "must give a vocabulary"),  # larger than any that is ours
        ({"vocabulary": 9, "separator": 9}, b"\1\0", "separator in .* must be a token below 9, or null, got '9'"),
        ({"vocabulary": 9, "tokens": [1]}, b"\1\0", "the tokens in .* must be counts by file name"),
        ({"vocabulary": 9}, b"", "must hold some tokens of 2 bytes, got 0 bytes"),
        ({"vocabulary": 9}, b"\1\0\2", "must hold some tokens of 2 bytes, got 3 bytes"),
        ({"vocabulary": 9, "tokens": {"train.bin": 3}}, b"\1\0\2\0", "must hold 3 tokens of 2 bytes, got 4 bytes"),
        ({"vocabulary": 9}, b"\1\0\11\0", "tokens must be below the vocabulary, 9, got 9 in .*train.bin: no model has"),
    ],
)
def test_damaged_tokens_are_refused_in_one_line(
    facts: dict[str, Any], tokens: bytes, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=reason) as refusal:
        load(damaged(tmp_path / "bad", facts, tokens), None)
    assert "\n" not in str(refusal.value)


def test_a_window_longer_than_the_model_knows_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"a window must have at most context = 8 tokens, got 9: .* larger context"):
        GPT(vocabulary=5, layers=1, heads=1, width=4, context=8)(torch.zeros(1, 9, dtype=torch.long))


def test_texts_that_cannot_be_tokenised_are_refused_in_one_line(play: str, tmp_path: Path) -> None:
    noise = tmp_path / "noise.txt"
    noise.write_bytes(bytes(range(256)) * 8)
    made = tokenise(str(noise), None, tmp_path / "bytes")
    assert made.tokens == {"train": 1844, "validation": 102, "test": 102}
    with pytest.raises(ValueError, match=r"the data must be a text, got .*bytes, which is tokenised: give the text"):
        tokenise(str(tmp_path / "bytes"), None, tmp_path / "again", documents="x")
    pytest.importorskip("tokenizers")
    with pytest.raises(DataError, match=r"pairs are merged in UTF-8 text, got .*noise.txt, which is none .*invalid"):
        tokenise(str(noise), None, tmp_path / "pairs", 300)
    assert {path.name for path in tmp_path.iterdir()} == {"play.txt", "noise.txt", "bytes"}


def test_the_command_tells_what_it_made_and_overwrites_nothing(play: str, tmp_path: Path) -> None:
    words = ["data", "tokenize", play, "--to", str(tmp_path / "new"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert facts["vocabulary"] == 256
    assert facts["train tokens"] + facts["validation tokens"] + facts["test tokens"] == len(PLAY.encode())
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2
    assert "--to must be a new folder" in again.stderr
    for wrong, reason in (
        (["--vocabulary", "255"], "--vocabulary must be at least 256"),
        (["--documents", "("], "--documents must be a regular expression, got '('"),
    ):
        refused = CliRunner().invoke(app, [*words[:3], "--to", str(tmp_path / "other"), *wrong])
        assert refused.exit_code == 2
        assert reason in refused.stderr
    nested = CliRunner().invoke(app, [*words[:3], "--to", f"{play}/x"])
    assert nested.exit_code == 2
    assert "--to must be a folder" in nested.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"play.txt", "new"}


def test_the_tokens_of_a_tokenizer_that_was_given_are_its_own(play: str, tmp_path: Path) -> None:
    """Those of the text that it was made from, by file or by folder; documents begin with one of its special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    first, again = tmp_path / "first", tmp_path / "again"
    tokenise(play, None, first, 300)
    made = tokenise(play, None, again, known=first)
    assert (made.vocabulary, made.separator) == (300, None)
    for name in ("train.bin", "val.bin", "tokenizer.json"):
        assert (again / name).read_bytes() == (first / name).read_bytes()
    tokenizer = tokenizers.Tokenizer.from_file(str(first / "tokenizer.json"))
    tokenizer.add_special_tokens(["<begin>", "<end>"])
    tokenizer.add_tokens(["words of"])
    tokenizer.enable_truncation(16)  # neither is obeyed
    tokenizer.enable_padding(length=64)
    tokenizer.save(str(tmp_path / "special.json"))
    plain = {"data": play, "data_dir": None, "known": tmp_path / "special.json"}
    made = tokenise(**plain, to=tmp_path / "documents", documents="^Speaker 3", separator="<end>")
    assert (made.vocabulary, made.separator) == (303, 301)
    ids = [token for name in ("train", "val", "test") for token in read(tmp_path / "documents", f"{name}.bin").tolist()]
    assert ids.count(301) == len(range(3, 400, 7)) + 3, "one for each speech, and one for what comes before in a split"
    assert tokenizer.decode(ids, skip_special_tokens=True) == PLAY
    for wrong, said in (
        ({"documents": "^Speaker"}, r"--separator must be a special token .* got ''; there are <begin> <end>"),
        ({"documents": "^Speaker", "separator": "words of"}, "got 'words of'; there are <begin> <end>"),
        ({"separator": "<eos>"}, "got '<eos>'; there are <begin> <end>"),
        ({"vocabulary": 300}, "--vocabulary must be left out with --tokenizer, which has its own, got 300"),
        ({"known": None, "separator": "<end>"}, "--separator must be a token of --tokenizer, got '<end>' without one"),
        ({"known": tmp_path / "none.json"}, "none.json cannot be read"),
        ({"known": Path(play)}, "play.txt cannot be read"),
    ):
        with pytest.raises((ValueError, DataError), match=said):
            tokenise(**(plain | {"to": tmp_path / "new"} | wrong))
    assert not (tmp_path / "new").exists()


def test_texts_with_documents_mix_if_the_second_has_the_tokenizer_of_the_first(play: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    one, two, other = tmp_path / "one", tmp_path / "two", tmp_path / "other.txt"
    other.write_text(PLAY[: len(PLAY) // 2], encoding="utf-8")
    first = tokenise(play, None, one, 300, documents="^Speaker 3")
    second = tokenise(str(other), None, two, documents="^Speaker 5", known=one)
    assert (first.vocabulary, first.separator) == (second.vocabulary, second.separator) == (301, 300)
    task = Language(2, data=f"1 {one} + 1 {two}", documents=True, order="epoch", **TINY)
    assert [text.separator for text in task.texts] == [300, 300]
    assert all((text.train == 300).any() for text in task.texts)
