"""A tokenised text: memory-mapped files of token numbers in nanoGPT's layout, and a tokens.json that describes them.

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from commeff.experiments.data.folder import DataError
from commeff.files import regular

MANIFEST = "tokens.json"
TOKENIZER = "tokenizer.json"
FILES = {"train": "train.bin", "validation": "val.bin", "test": "test.bin"}
DTYPES: Mapping[str, Any] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
LARGEST = 1 << 20  # bytes of a tokens.json
CHUNK = 1 << 24  # tokens looked at in one go


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


def tokenised(folder: Path) -> bool:
    """Whether a folder holds a tokenised text."""
    return (folder / MANIFEST).is_file()


def describe(folder: Path) -> Tokens:
    """Read tokens.json; `DataError` in one line where it is invalid."""
    path = folder / MANIFEST
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(LARGEST + 1)
        facts = json.loads(content) if len(content) <= LARGEST else None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{path} cannot be read ({' '.join(str(error).split())[:200]}): tokenise the text anew"
        ) from None
    facts = facts if isinstance(facts, dict) else {}
    vocabulary, dtype, separator = facts.get("vocabulary"), facts.get("dtype", "uint16"), facts.get("separator")
    sizes = facts.get("tokens", {})
    if not isinstance(vocabulary, int) or not _whole(vocabulary, 1, 1 << 32) or dtype not in list(DTYPES):
        raise DataError(
            f"{path} must give a vocabulary and a dtype, uint16 or uint32, got {str(vocabulary)[:40]!r} and "
            f"{str(dtype)[:40]!r}: tokenise the text anew, or correct it"
        )
    if separator is not None and not _whole(separator, 0, vocabulary - 1):
        raise DataError(
            f"the separator in {path} must be a token below {vocabulary}, or null, got {str(separator)[:40]!r}: "
            "correct it"
        )
    if not isinstance(sizes, dict) or not all(_whole(size, 0, 1 << 62) for size in sizes.values()):
        raise DataError(f"the tokens in {path} must be counts by file name: tokenise the text anew, or leave them out")
    return Tokens(vocabulary, dtype, separator, hashlib.sha256(content).hexdigest(), sizes)


def mapped(folder: Path) -> dict[str, Tensor]:
    """The tokens of each split, (tokens,) uint16 or uint32, read from the files as they are used.

    Raises
    ------
    DataError: a file is missing, cut short, or has a token beyond the vocabulary.
    """
    meta = describe(folder)
    paths = {split: folder / name for split, name in FILES.items() if (folder / name).exists() or split != "test"}
    texts = {split: _map(path, meta) for split, path in paths.items()}
    return {"test": texts["validation"]} | texts


def _map(path: Path, meta: Tokens) -> Tensor:
    kind = DTYPES[meta.dtype]
    try:
        with open(path, "rb", opener=regular) as file:
            size = os.fstat(file.fileno()).st_size
            if (
                size == 0
                or size % kind.itemsize
                or size // kind.itemsize != meta.sizes.get(path.name, size // kind.itemsize)
            ):
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


def dtype_for(vocabulary: int) -> str:
    """The smaller of the two kinds of numbers that holds every token.

    >>> dtype_for(65536), dtype_for(65537)
    ('uint16', 'uint32')
    """
    return "uint16" if vocabulary <= 1 << 16 else "uint32"


def save(
    folder: Path, vocabulary: int, separator: int | None, splits: Mapping[str, NDArray[Any]], more: Mapping[str, Any]
) -> None:
    """Write the files of a tokenised text into a folder that is there; tokens.json comes last.

    Parameters
    ----------
    folder : where.
    vocabulary, separator : as in `Tokens`.
    splits : the tokens of each of `FILES`.
    more : what else tokens.json says.
    """
    dtype = dtype_for(vocabulary)
    sums, sizes = {}, {}
    for split, tokens in splits.items():
        content = np.ascontiguousarray(tokens, DTYPES[dtype])
        with open(folder / FILES[split], "wb", opener=regular) as file:
            content.tofile(file)
        sums[FILES[split]] = hashlib.sha256(content.data).hexdigest()
        sizes[FILES[split]] = len(content)
    facts = {"vocabulary": vocabulary, "dtype": dtype, "separator": separator, "tokens": sizes, "sha256": sums, **more}
    with open(folder / MANIFEST, "w", encoding="utf-8", opener=regular) as file:
        file.write(json.dumps(facts, indent=2) + "\n")


def _whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
