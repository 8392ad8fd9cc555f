"""A text, as bytes or tokens: its files, the three splits, each worker's piece, and the windows cut from it.

A tokenised text is a folder of memory-mapped token numbers in nanoGPT's layout, and a tokens.json that describes them.

    tokens.json      vocabulary, dtype, separator, how many tokens each file has, their SHA-256
    train.bin        token numbers one after the other, uint16 or uint32, little-endian, no header
    val.bin, test.bin
    tokenizer.json   where pairs were merged, in the format of the `tokenizers` package

A folder that nanoGPT has prepared is read, too, once it has a tokens.json such as `{"vocabulary": 50257}` beside its
train.bin and val.bin; without a test.bin the test text is the validation text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from commeff import require
from commeff.experiments.data.folder import ENVIRONMENT, DataError
from commeff.experiments.data.manifest import DATA_SETS
from commeff.experiments.data.texts import KNOWN, text_files
from commeff.experiments.data.verify import md5
from commeff.files import regular

HELD_OUT = 20  # validation and test data are the last two twentieths of a text that comes in one file
MANIFEST = "tokens.json"
TOKENIZER = "tokenizer.json"
PLUS = re.compile(r" \+ (?=\s*(?:[-+.\de]+|inf|nan)\s)")  # between the texts of a mixture, with a weight after it
FILES = {"train": "train.bin", "validation": "val.bin", "test": "test.bin"}
DTYPES: Mapping[str, Any] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
LARGEST = 1 << 20  # bytes of a tokens.json
CHUNK = 1 << 24  # tokens looked at in one go


@dataclass(frozen=True, eq=False)
class Text:
    """Training, validation and test text.

    train, validation, test : (tokens,); of a text as it is, its bytes, uint8.
    vocabulary : how many different tokens there can be.
    separator : the token that every document begins with; None where the text is one.
    digest : of a tokenised text, what its run's name has of it.
    tokenizer : SHA-256 of its tokenizer.json; None where there is none.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    vocabulary: int = 256  # all bytes, whether the text has them or not
    separator: int | None = None
    digest: str | None = None
    tokenizer: str | None = None


def load(data: str, data_dir: str | None) -> Text:
    """The splits of a text: one of `KNOWN`, any file, or a folder that `commeff data tokenize` has written: absolute,
    seen from the working directory, or in data_dir.

    wikitext-2 comes in three files. Every other text is cut in text order: the first 90 % are for training, the next
    5 % for validation, the last 5 % for the test. Nothing is shuffled, so neighbouring bytes are in the same split but
    at the two cuts. The data folder is data_dir, by default the environment variable COMMEFF_DATA.
    """
    if (folder := token_folder(data, data_dir)) is not None:
        return mapped(folder)
    paths, remedy = text_files(data, data_dir)
    texts = [read(path, remedy) for path in paths]
    sums = DATA_SETS[data].files.values() if data in KNOWN else ()
    for path, total in zip(paths, sums, strict=False):
        if md5(path) != total:
            raise DataError(f"{path} is no good copy of {data}, its MD5 sum is not {total}: {remedy}")
    return Text(texts[0], texts[1], texts[2]) if len(texts) == 3 else cut(texts[0])


def mixture(data: str) -> tuple[list[str], list[float]]:
    """The texts that `data` names, and their weights. A plus that no weight follows is part of a path.

    >>> mixture("wikitext-2"), mixture("0.7 wikitext-2 + 0.3 my.txt")
    ((['wikitext-2'], [1.0]), (['wikitext-2', 'my.txt'], [0.7, 0.3]))
    """
    if " + " not in data or os.path.exists(os.path.expanduser(data)):
        return [data], [1.0]
    try:
        one, two, *more = (part.split(maxsplit=1) for part in PLUS.split(data))
        weights, texts = zip(*((float(weight), text.strip()) for weight, text in (one, two, *more)), strict=True)
    except ValueError:
        raise require.refusal("data", "be WEIGHT TEXT + WEIGHT TEXT ...", data, "a mixture has weights") from None
    for weight in (*weights, sum(weights)):
        require.positive(f"leave out of data={data} what is not to be drawn", weight=weight)
    return [*texts], [*weights]


def common(texts: Sequence[Text]) -> tuple[int, int | None]:
    """The vocabulary and the separator of the texts of a mixture, which must share them."""
    kinds = {(text.vocabulary, text.separator) for text in texts}
    tokenizers = {text.tokenizer for text in texts} - {None}
    if len(kinds) > 1 or len(tokenizers) > 1:
        got = " and ".join(f"{vocabulary} with {separator}" for vocabulary, separator in sorted(kinds, key=str))
        raise ValueError(
            "texts of a mixture must have the same tokenizer, vocabulary and separator, got "
            f"{got if len(kinds) > 1 else f'{len(tokenizers)} tokenizers'}: tokenise them with one "
            "(commeff data tokenize --tokenizer)"
        )
    return kinds.pop()


def token_folder(data: str, data_dir: str | None) -> Path | None:
    """The folder of a tokenised text; None where the data are none."""
    places = [Path(data).expanduser()]
    if folder := data_dir or os.environ.get(ENVIRONMENT):
        places.append(Path(folder).expanduser() / data)
    return next((place for place in places if data not in KNOWN and tokenised(place)), None)


@dataclass(frozen=True)
class Tokens:
    """The contents of tokens.json.

    vocabulary : how many different tokens there can be.
    dtype : "uint16" or "uint32".
    separator : the token that every document begins with; None where the text is one.
    digest : SHA-256 of tokens.json, which holds those of the files: what a run's name has of them.
    sizes : tokens of each file, as far as it says.
    """

    vocabulary: int
    dtype: str
    separator: int | None
    digest: str
    sizes: Mapping[str, int]


def read_json(path: Path, largest: int, remedy: str) -> tuple[bytes, dict[str, Any] | None]:
    """The content of a JSON file, and its names and values; None where it holds something else, or more bytes than
    `largest`.
    """
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(largest + 1)
        facts = json.loads(content) if len(content) <= largest else None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({' '.join(str(error).split())[:200]}): {remedy}") from None
    return content, facts if isinstance(facts, dict) else None


def tokenised(folder: Path) -> bool:
    """Whether a folder holds a tokenised text."""
    return (folder / MANIFEST).is_file()


def describe(folder: Path) -> Tokens:
    """Read tokens.json; `DataError` in one line where it is invalid."""
    path = folder / MANIFEST
    content, facts = read_json(path, LARGEST, "tokenise the text anew")
    facts = facts or {}
    vocabulary, dtype, separator = facts.get("vocabulary"), facts.get("dtype", "uint16"), facts.get("separator")
    sizes = facts.get("tokens", {})
    if not isinstance(vocabulary, int) or not _whole(vocabulary, 1, 1 << 32) or dtype not in list(DTYPES):
        raise DataError(
            f"{path} must give a vocabulary and a dtype, uint16 or uint32, got {str(vocabulary)[:40]!r} and "
            f"{str(dtype)[:40]!r}: tokenise the text anew"
        )
    if separator is not None and not _whole(separator, 0, vocabulary - 1):
        raise DataError(
            f"the separator in {path} must be a token below {vocabulary}, or null, got {str(separator)[:40]!r}"
        )
    if not isinstance(sizes, dict) or not all(_whole(size, 0, 1 << 62) for size in sizes.values()):
        raise DataError(f"the tokens in {path} must be counts by file name: tokenise the text anew, or leave them out")
    return Tokens(vocabulary, dtype, separator, hashlib.sha256(content).hexdigest(), sizes)


def mapped(folder: Path) -> Text:
    """The tokens of a folder, (tokens,) uint16 or uint32, read from the files as they are used.

    Raises
    ------
    DataError: a file is missing, cut short, or has a token beyond the vocabulary.
    """
    meta = describe(folder)
    paths = {split: folder / name for split, name in FILES.items() if (folder / name).exists() or split != "test"}
    texts = {split: _map(path, meta) for split, path in paths.items()}
    texts = {"test": texts["validation"]} | texts
    file = folder / TOKENIZER
    tokenizer = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
    return Text(**texts, vocabulary=meta.vocabulary, separator=meta.separator, digest=meta.digest, tokenizer=tokenizer)


def _map(path: Path, meta: Tokens) -> Tensor:
    kind = DTYPES[meta.dtype]
    try:
        with open(path, "rb", opener=regular) as file:
            size = os.fstat(file.fileno()).st_size
            count, rest = divmod(size, kind.itemsize)
            if not count or rest or count != meta.sizes.get(path.name, count):
                raise DataError(
                    f"{path} must hold {meta.sizes.get(path.name, 'some')} tokens of {kind.itemsize} bytes, got "
                    f"{size} bytes: it was cut short or belongs to another tokens.json; tokenise the text anew"
                )
            tokens = np.memmap(file, kind, mode="c")  # private: nothing that is written would reach the file
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}): tokenise the text anew") from None
    most = max(int(tokens[start : start + CHUNK].max()) for start in range(0, len(tokens), CHUNK))
    if most >= meta.vocabulary:
        raise DataError(
            f"tokens must be below the vocabulary, {meta.vocabulary}, got {most} in {path}: no model has a row for it; "
            f"correct {MANIFEST}, or tokenise the text anew"
        )
    return torch.from_numpy(tokens)


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def read(path: Path, remedy: str) -> Tensor:
    """The bytes of a file that has some, (bytes,) uint8."""
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): {remedy}") from error
    if not len(content):
        raise DataError(f"{path} is empty: {remedy}")
    return torch.from_numpy(content)


def cut(text: Tensor) -> Text:
    """Training, validation and test text in text order: 90 %, 5 %, 5 %.

    >>> text = cut(torch.arange(47))
    >>> text.train[-1].item(), text.validation.tolist(), text.test.tolist()
    (42, [43, 44], [45, 46])
    """
    size = len(text) // HELD_OUT
    train, validation, test = text.split([len(text) - 2 * size, size, size])
    return Text(train, validation, test)


def pieces(rule: str, length: int, workers: int) -> list[tuple[int, int]]:
    """[start, stop) of the training text of each worker.

    Parameters
    ----------
    rule : "iid", every worker has the whole text; or "contiguous", worker i has the i-th of n nearly equal pieces, so
        the workers differ as the text does.

    >>> pieces("iid", 10, workers=3), pieces("contiguous", 10, workers=3)
    ([(0, 10), (0, 10), (0, 10)], [(0, 3), (3, 6), (6, 10)])
    """
    bounds = [length * worker // workers for worker in range(workers + 1)]
    return require.choose({"iid": [(0, length)] * workers, "contiguous": [*pairwise(bounds)]}, partition=rule)


def windows(text: Tensor, starts: Tensor, context: int) -> Tensor:
    """The context + 1 tokens from each start on, (..., context + 1) int64: inputs and, one further, their targets.

    >>> windows(torch.arange(9), torch.tensor([0, 4]), context=3)
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    return text[starts.unsqueeze(-1) + torch.arange(context + 1)].long()


def spaced(text: Tensor, context: int, most: int) -> Tensor:
    """Windows (count, context + 1) spread evenly over a text, no token being a target twice.

    Parameters
    ----------
    most : most targets taken, though never less than one window.

    >>> spaced(torch.arange(9), context=3, most=100)
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    count = min((len(text) - 1) // context, max(1, most // context))
    return windows(text, torch.arange(count) * (len(text) - 1) // count, context)
