"""A text made into tokens, once, before any run: what `commeff data tokenize` does.

Pairs of bytes are merged (arXiv 1508.07909, GPT-2) by the `tokenizers` package.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff.experiments.data.folder import DataError
from commeff.experiments.tasks.language.text import DTYPES, FILES, MANIFEST, TOKENIZER, load
from commeff.files import appearing, regular

BYTES = 256  # all single bytes are tokens, so every text can be written
PIECE = 1 << 20  # signs that are encoded in one go


@dataclass(frozen=True)
class Tokenised:
    """What was written: how many tokens there can be, how many each split has, and how many bytes of text one holds."""

    folder: Path
    vocabulary: int
    separator: int | None
    tokens: dict[str, int]
    bytes_per_token: float


def tokenise(
    data: str,
    data_dir: str | None,
    to: Path,
    vocabulary: int = BYTES,
    documents: str = "",
    known: Path | None = None,
    separator: str = "",
) -> Tokenised:
    """Write the tokens of a text into the new folder `to`, which appears whole or not at all.

    The splits are those of the text. Pairs are merged by the training text alone, so validation text is new to the
    tokenizer, too.

    Parameters
    ----------
    data, data_dir : of the text, as the language task has them.
    to : a folder that does not exist.
    vocabulary : 256 are the bytes themselves; more are made by merging pairs, as many as the text has. The separator is
        one more.
    documents : a regular expression: a document begins with each line that matches it, and with a separator, a token
        of its own. The text is one document unless given.
    known : a tokenizer.json, or a folder with one, that takes the place of a vocabulary made from the text.
    separator : the text of the special token of that tokenizer with which each document begins; where it has none, the
        separator is one more token.
    """
    begins = _compiled(documents)
    if not BYTES <= vocabulary < 1 << 32:
        raise ValueError(
            f"--vocabulary must be at least {BYTES} and less than 2^32, got {vocabulary}: it has all bytes"
        )
    if os.path.lexists(to):
        raise ValueError(f"--to must be a new folder, got {to}, which is there: nothing is overwritten; choose another")
    if vocabulary > BYTES:
        _package()  # refuse before a long text is read
    tokenizer = _read(known) if known else None
    if tokenizer is None and separator:
        raise ValueError(f"--separator must be a token of --tokenizer, got {separator!r} without one: leave it out")
    if tokenizer is not None and vocabulary > BYTES:
        raise ValueError(f"--vocabulary must be left out with --tokenizer, which has its own, got {vocabulary}")
    begin = _number(tokenizer, separator) if tokenizer is not None and (begins or separator) else None
    texts = load(data, data_dir)
    if texts.digest is not None:
        raise ValueError(
            f"the data must be a text, got {data}, which is tokenised: give the text that it was made from"
        )
    contents = _between_signs([bytes(part.numpy()) for part in (texts.train, texts.validation, texts.test)])
    splits = {split: _divided(content, begins) for split, content in zip(FILES, contents, strict=True)}
    coded: dict[str, list[NDArray[Any]]]
    if vocabulary == BYTES and tokenizer is None:
        coded = {split: [np.frombuffer(text, np.uint8) for text in parts] for split, parts in splits.items()}
    else:
        read = {split: [_decoded(text, data) for text in parts] for split, parts in splits.items()}
        tokenizer = tokenizer or _train(read["train"], vocabulary)
        vocabulary = 1 + max(tokenizer.get_vocab().values())
        coded = {split: [_encode(tokenizer, text) for text in parts] for split, parts in read.items()}
    if begins and begin is None:
        begin, vocabulary = vocabulary, vocabulary + 1
    first = [] if begin is None else [np.array([begin], np.uint32)]
    joined = {
        split: np.concatenate([part for document in parts for part in (*first, document)])
        for split, parts in coded.items()
    }
    more = {
        "source": Path(data).name,
        "bytes": {split: len(content) for split, content in zip(FILES, contents, strict=True)},
    }

    try:
        with appearing(to, shared=True) as draft:
            draft.mkdir(parents=True)
            if tokenizer is not None:
                (draft / TOKENIZER).write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
            _save(draft, vocabulary, begin, joined, more)
    except OSError as error:
        raise DataError(f"{to} cannot be written ({error.strerror or error}): choose another folder") from None
    sizes = {split: len(tokens) for split, tokens in joined.items()}
    return Tokenised(to, vocabulary, begin, sizes, sum(map(len, contents)) / sum(sizes.values()))


def _number(tokenizer: Any, separator: str) -> int | None:
    """The number of the token that documents begin with; None: it is still to be made."""
    special = {token.content: number for number, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    if not special and not separator:
        return None
    if separator not in special:
        raise ValueError(
            f"--separator must be a special token of --tokenizer with --documents, got {separator!r}; there are "
            f"{' '.join(sorted(special)) or 'none'}"
        )
    return special[separator]


def _compiled(documents: str) -> re.Pattern[bytes] | None:
    try:
        return re.compile(documents.encode(), re.MULTILINE) if documents else None
    except re.error as error:
        raise ValueError(f"--documents must be a regular expression, got {documents!r}: {error}") from None


def _between_signs(splits: list[bytes]) -> list[bytes]:
    """The splits with no sign of UTF-8 cut in two: its first bytes come to the rest of it.

    >>> [part.decode() for part in _between_signs(["aé".encode()[:2], "aé".encode()[2:] + b"b"])]
    ['a', 'éb']
    """
    content = b"".join(splits)
    bounds = [0, *accumulate(map(len, splits))]
    moved = [bound - next((k for k in range(4) if not _continues(content, bound - k)), 0) for bound in bounds]
    return [content[a:b] for a, b in pairwise(moved)]


def _continues(content: bytes, place: int) -> bool:
    return 0 < place < len(content) and content[place] & 0xC0 == 0x80


def _divided(content: bytes, begins: re.Pattern[bytes] | None) -> list[bytes]:
    """The documents of a text.

    >>> _divided(b"one\\n= b =\\ntwo\\n= c =\\n", re.compile(b"^= ", re.MULTILINE))
    [b'one\\n', b'= b =\\ntwo\\n', b'= c =\\n']
    """
    starts = {content.rfind(b"\n", 0, match.start()) + 1 for match in begins.finditer(content)} if begins else set()
    return [content[a:b] for a, b in pairwise(sorted({0, *starts, len(content)}))]


def _decoded(text: bytes, data: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"pairs are merged in UTF-8 text, got {data}, which is none ({error.reason}): convert it, or take "
            f"--vocabulary {BYTES}, the bytes themselves"
        ) from None


def _save(
    folder: Path, vocabulary: int, separator: int | None, splits: Mapping[str, NDArray[Any]], more: Mapping[str, Any]
) -> None:
    """Write the files of a tokenised text into a folder that is there; tokens.json comes last.

    Parameters
    ----------
    folder : where.
    vocabulary, separator : as in `Text`.
    splits : the tokens of each of `FILES`.
    more : what else tokens.json says.
    """
    dtype = "uint16" if vocabulary <= 1 << 16 else "uint32"
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


def _package() -> Any:
    """The `tokenizers` package; one line where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise DataError(
            "a vocabulary of merged pairs needs the package tokenizers, which is not installed: "
            "pip install 'commeff[tokenizers]', or take --vocabulary 256, the bytes themselves"
        ) from None
    return tokenizers


def _train(documents: Sequence[str], vocabulary: int) -> Any:
    """A tokenizer of at most `vocabulary` tokens, the most frequent pairs of `documents` merged one after the other.

    Parameters
    ----------
    documents : the training text, which alone decides.
    vocabulary : more than the bytes; a short text has fewer pairs to merge.
    """
    tokenizers = _package()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=min(vocabulary, BYTES + sum(len(text.encode()) for text in documents)),  # a merge needs two bytes
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for text in documents for piece in _pieces(text)), trainer)
    return tokenizer


def _read(path: Path) -> Any:
    """The tokenizer of a tokenizer.json, or of the folder that holds one."""
    path = path.expanduser()
    file = path / TOKENIZER if path.is_dir() else path
    tokenizers = _package()
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package's errors have no kind of their own
        raise DataError(f"{file} cannot be read ({' '.join(str(error).split())[:200]}): get it anew") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _encode(tokenizer: Any, text: str) -> NDArray[np.uint32]:
    """The tokens of one document, (tokens,)."""
    encoded = tokenizer.encode_batch_fast(list(_pieces(text)), add_special_tokens=False)
    return np.concatenate([np.zeros(0, np.uint32), *(np.array(piece.ids, np.uint32) for piece in encoded)])


def _pieces(text: str) -> Iterable[str]:
    """A text in pieces that end with a line, where lines are shorter than a piece.

    >>> "".join(_pieces("one\\ntwo")), list(_pieces("")), len(list(_pieces("line\\n" * 2**20)))
    ('one\\ntwo', [], 6)
    """
    start = 0
    while start < len(text):
        stop = min(start + PIECE, len(text))
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop
