"""Byte-level pairs (arXiv 1508.07909, GPT-2): a vocabulary made from the text itself by the `tokenizers` package.

    train(documents, vocabulary)    a tokenizer of this text
    read(path)                      one that somebody else has trained: a tokenizer.json
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commeff.experiments.data.folder import DataError

BYTES = 256  # all single bytes are tokens, so every text can be written
PIECE = 1 << 20  # signs that are encoded in one go


def package() -> Any:
    """The `tokenizers` package; one line where it is not installed."""
    try:
        import tokenizers
    except ImportError:
        raise DataError(
            "a vocabulary of merged pairs needs the package tokenizers, which is not installed: "
            "pip install 'commeff[tokenizers]', or take --vocabulary 256, the bytes themselves"
        ) from None
    return tokenizers


def train(documents: Sequence[str], vocabulary: int) -> Any:
    """A tokenizer of at most `vocabulary` tokens, the most frequent pairs of `documents` merged one after the other.

    Parameters
    ----------
    documents : the training text, which alone decides.
    vocabulary : more than the bytes; a short text has fewer pairs to merge.
    """
    tokenizers = package()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=min(vocabulary, BYTES + sum(len(text.encode()) for text in documents)),  # a merge needs two bytes
        initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((piece for text in documents for piece in pieces(text)), trainer)
    return tokenizer


def read(path: Path) -> Any:
    """The tokenizer of a tokenizer.json, or of the folder that holds one."""
    path = path.expanduser()
    file = path / "tokenizer.json" if path.is_dir() else path
    tokenizers = package()
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the package's errors have no kind of their own
        raise DataError(f"{file} cannot be read ({' '.join(str(error).split())[:200]}): get it anew") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(tokenizer: Any, text: str) -> NDArray[np.uint32]:
    """The tokens of one document, (tokens,)."""
    encoded = tokenizer.encode_batch_fast(list(pieces(text)), add_special_tokens=False)
    return np.concatenate([np.zeros(0, np.uint32), *(np.array(piece.ids, np.uint32) for piece in encoded)])


def pieces(text: str) -> Iterable[str]:
    """A text in pieces that end with a line, where lines are shorter than a piece.

    >>> "".join(pieces("one\\ntwo")), list(pieces("")), len(list(pieces("line\\n" * 2**20)))
    ('one\\ntwo', [], 6)
    """
    start = 0
    while start < len(text):
        stop = min(start + PIECE, len(text))
        if stop < len(text):
            stop = text.rfind("\n", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop


def save(tokenizer: Any, path: Path) -> None:
    """The file by which it can be loaded again."""
    path.write_text(tokenizer.to_str(pretty=True) + "\n", encoding="utf-8")
