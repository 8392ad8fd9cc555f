"""A text, as bytes or tokens: its files, the three splits, each worker's piece, and the windows cut from it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from commeff import require
from commeff.experiments.data.folder import ENVIRONMENT, DataError
from commeff.experiments.data.manifest import DATA_SETS
from commeff.experiments.data.texts import KNOWN, text_files
from commeff.experiments.data.verify import md5
from commeff.experiments.tasks.language.tokens import describe, mapped, tokenised

HELD_OUT = 20  # validation and test data are the last two twentieths of a text that comes in one file

Pieces = list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Text:
    """Training, validation and test text.

    train, validation, test : (tokens,); of a text as it is, its bytes, uint8.
    vocabulary : how many different tokens there can be.
    separator : the token that every document begins with; None where the text is one.
    digest : of a tokenised text, what its run's name has of it.
    """

    train: Tensor
    validation: Tensor
    test: Tensor
    vocabulary: int = 256  # all bytes, whether the text has them or not
    separator: int | None = None
    digest: str | None = None


def load(data: str, data_dir: str | None) -> Text:
    """The splits of a text: one of `KNOWN`, any file, or a folder that `commeff data tokenize` has written: absolute,
    seen from the working directory, or in data_dir.

    wikitext-2 comes in three files. Every other text is cut in text order: the first 90 % are for training, the next
    5 % for validation, the last 5 % for the test. Nothing is shuffled, so neighbouring bytes are in the same split but
    at the two cuts. The data folder is data_dir, by default the environment variable COMMEFF_DATA.
    """
    if (folder := token_folder(data, data_dir)) is not None:
        meta = describe(folder)
        return Text(**mapped(folder), vocabulary=meta.vocabulary, separator=meta.separator, digest=meta.digest)
    paths, remedy = text_files(data, data_dir)
    texts = [read(path, remedy) for path in paths]
    sums = DATA_SETS[data].files.values() if data in KNOWN else ()
    for path, total in zip(paths, sums, strict=False):
        if md5(path) != total:
            raise DataError(f"{path} is no good copy of {data}, its MD5 sum is not {total}: {remedy}")
    return Text(texts[0], texts[1], texts[2]) if len(texts) == 3 else cut(texts[0])


def token_folder(data: str, data_dir: str | None) -> Path | None:
    """The folder of a tokenised text; None where the data are none."""
    places = [Path(data).expanduser()]
    if folder := data_dir or os.environ.get(ENVIRONMENT):
        places.append(Path(folder).expanduser() / data)
    return next((place for place in places if data not in KNOWN and tokenised(place)), None)


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


def iid(length: int, workers: int) -> Pieces:
    """Every worker has the whole text.

    >>> iid(10, workers=3)
    [(0, 10), (0, 10), (0, 10)]
    """
    return [(0, length)] * workers


def contiguous(length: int, workers: int) -> Pieces:
    """Worker i has the i-th of n nearly equal pieces of the text, so the workers differ as the text does.

    >>> contiguous(10, workers=3)
    [(0, 3), (3, 6), (6, 10)]
    """
    bounds = [length * worker // workers for worker in range(workers + 1)]
    return list(pairwise(bounds))


def pieces(rule: str, length: int, workers: int) -> Pieces:
    """[start, stop) of the training text of each worker, by the rule called `rule`."""
    rules: dict[str, Callable[[int, int], Pieces]] = {"iid": iid, "contiguous": contiguous}
    return require.choose(rules, partition=rule)(length, workers)


def windows(text: Tensor, starts: Tensor, context: int) -> Tensor:
    """The context + 1 tokens from each start on, (..., context + 1) int64: inputs and, one further, their targets.

    >>> windows(torch.arange(9), torch.tensor([0, 4]), context=3)
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    return text[starts.unsqueeze(-1) + torch.arange(context + 1)].long()


def spaced(text: Tensor, context: int, most: int | None = None) -> Tensor:
    """Windows (count, context + 1) spread evenly over a text, no token being a target twice.

    Parameters
    ----------
    most : most targets taken, though never less than one window; None: as many windows as the text holds.

    >>> spaced(torch.arange(9), context=3)
    tensor([[0, 1, 2, 3],
            [4, 5, 6, 7]])
    """
    count = (len(text) - 1) // context
    if most is not None:
        count = min(count, max(1, most // context))
    return windows(text, torch.arange(count) * (len(text) - 1) // count, context)
