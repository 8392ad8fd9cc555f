"""Documents: files of tensors, numbers, text and containers of them, of which nothing is executed when they are read.

A document says in which format it is written, which run it is of, and what that run's method is. Tensors are in it by
name, each as the boxes of it that its writer had.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from commeff.boxes import Boxes
from commeff.files import regular

FORMAT = 4  # 1 did not say whose it was, 2 had all rows of the ledger, 3 had no names of tensors
OTHER_FORMAT = f"must have format {FORMAT}, got {{}}: another version of commeff wrote it, which can go on from it"


class CheckpointRefused(ValueError):
    """A checkpoint that the run must not go on from: of another run or format, or no file of ours at all."""


def write_document(path: Path, state: dict[str, Any], run: str, method: str) -> None:
    """Write a state, and whose it is; the caller removes what an error has left.

    Parameters
    ----------
    path : where.
    state : tensors, numbers, text, and dicts, lists and tuples of them.
    run, method : whose state it is, and what its method is, in words.
    """
    document = {"format": FORMAT, "run": run, "method": method, "state": plain(state)}
    try:
        with open(path, "wb", opener=regular) as file:
            torch.save(document, file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        if isinstance(error.__context__, OSError):  # torch then complains of the file that it could not finish
            raise error.__context__ from None
        raise


def read_document(path: Path, compare: bool = True) -> dict[str, Any]:
    """A checkpoint of our format, not yet in memory, whose checksums are right, which torch does not look at."""
    with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise CheckpointRefused("is compressed, as commeff writes none")  # a small file could fill the memory
        if compare and (damaged := archive.testzip()):
            raise ValueError(f"the checksum of {damaged} is wrong")
    try:
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError:
        raise CheckpointRefused("holds more than tensors, numbers and text: commeff wrote no such file") from None
    kind = document.get("format", 1) if isinstance(document, dict) else None
    if kind != FORMAT:
        raise CheckpointRefused(OTHER_FORMAT.format(kind))
    texts = all(isinstance(document.get(name), str) for name in ("run", "method"))
    if not texts or not isinstance(document.get("state"), dict):
        raise CheckpointRefused("must hold a run, its method and its state, got something else")
    return dict(document)


def join(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The boxes of several processes as one's."""
    joined: dict[str, Any] = {}
    for part in parts:
        for name, (shape, boxes) in part.items():
            joined.setdefault(name, [shape, []])[1].extend(boxes)
    return joined


def plain(node: Any, where: str = "state") -> Any:
    """The same as what can be read without executing anything: Python's own types, tensors, and boxes as lists."""
    if isinstance(node, Tensor):
        return node.detach().cpu()
    if isinstance(node, Boxes):
        return plain(node.plain(), where)
    if isinstance(node, Mapping):
        return {plain(name, where): plain(value, f"{where}/{name}") for name, value in node.items()}
    if isinstance(node, (list, tuple)):
        values = [plain(value, f"{where}/{i}") for i, value in enumerate(node)]
        return values if isinstance(node, list) else tuple(values)
    for kind in (bool, int, float, str):  # a NumPy float64 is a float, too
        if isinstance(node, kind):
            return kind(node)
    if node is None:
        return None
    if isinstance(node, np.generic):
        return plain(node.item(), where)
    raise TypeError(f"{where} must be a tensor, number or text, got {type(node).__name__}: a checkpoint is only data")
