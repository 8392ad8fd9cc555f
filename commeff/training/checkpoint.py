"""Checkpoints of a run: everything that decides the future, in one file written by rename, and the one before it.

A file holds tensors, numbers, text and containers of them, and is read as such: nothing in it is ever executed. It says
in which format it is written, which run it is of, and what that run's method is.
"""

from __future__ import annotations

import logging
import os
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from commeff import require
from commeff.files import appearing, regular
from commeff.training.resharding import gather_rows, shard_rows, to_device

if TYPE_CHECKING:
    from commeff.training.run import Run

LOG = logging.getLogger(__name__)
FORMAT = 3  # 1 did not say whose it was, 2 had all rows of the ledger


class CheckpointRefused(ValueError):
    """A checkpoint that the run must not go on from: of another run or format, or no file of ours at all."""


class Checkpoints:
    """`folder/latest.pt`, replaced as a whole every `every` steps (0: only when a run is stopped).

    The one that it replaces stays as `previous.pt`: a disk can damage a file that was written well. What is damaged is
    passed over; what is whole but of another run, or holds more than data, is refused.

    Parameters
    ----------
    folder : path
        Where they lie.
    every : int
        Steps between two of them.
    run : str
        Whose they are. Unless given, `save` and `load` are told by their caller.

    Examples
    --------
    >>> import tempfile
    >>> checkpoints = Checkpoints(tempfile.mkdtemp(), every=10)
    >>> checkpoints.load() is None, checkpoints.due(9), checkpoints.due(10)
    (True, False, True)
    >>> checkpoints.save({"step": 10}); checkpoints.save({"step": 20})
    >>> checkpoints.load()
    {'step': 20}
    >>> _ = checkpoints.path.write_bytes(b"torn")
    >>> checkpoints.load()
    {'step': 10}
    """

    def __init__(self, folder: str | Path, every: int = 0, run: str = "") -> None:
        require.at_least(0, "0 is none before the end", every=every)
        self.path, self.previous, self.every = Path(folder) / "latest.pt", Path(folder) / "previous.pt", every
        self.run = run

    def due(self, step: int) -> bool:
        """Whether a checkpoint belongs after `step` steps."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: dict[str, Any], run: str = "", method: str = "") -> None:
        """Write the state so that a crash at any point leaves a whole file.

        Parameters
        ----------
        state : what to keep: tensors, numbers, text, and dicts, lists and tuples of them.
        run, method : whose state it is, unless the run has been named already, and what its method is, in words.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appearing(self.path) as draft:
            write_document(draft, state, self.run or run, method)
            if self.path.exists():
                os.replace(self.path, self.previous)

    def keep(self, run: Run) -> None:
        """Save a run, that of all workers at rank 0; every process calls it."""
        several = run.communicator.transport.size > 1
        state = gather_rows(run.state_dict(), run.communicator) if several else run.state_dict()
        if state is not None:
            self.save(state, run.identity, run.method)

    def restore(self, run: Run) -> bool:
        """Let a run go on from the last checkpoint, if there is one, and say whether; every process calls it."""
        state = self.load(run.identity)
        if state is not None:
            with self.understood():
                own = shard_rows(state, run.communicator)
                run.load_state_dict(to_device(own, run.replicas.parameters.device))
        return state is not None

    def wait(self) -> None:
        """Until what is being saved is there, if it is not yet; every process calls it."""

    def check(self) -> None:
        """Refuse what `load` would refuse, without taking it into memory."""
        self._newest(self.run, mapped=True)

    def step(self) -> int | None:
        """Of the last checkpoint, without taking it into memory; None before the first."""
        state = self._newest(self.run, mapped=True)
        return None if state is None else int(state["step"])

    def load(self, run: str = "") -> dict[str, Any] | None:
        """The last saved state, None before the first. A damaged one is told of, and the one before it is taken.

        Parameters
        ----------
        run : whose it must be, unless the run has been named already; "": anybody's.
        """
        return self._newest(self.run or run)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Refuse a state that lacks something, or has another form, where it is taken over."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, zipfile.BadZipFile) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise CheckpointRefused(
                f"checkpoint {self.path} must hold the state of this run, got another form ({reason}); "
                f"delete {self.path.parent} to start anew"
            ) from error

    def _newest(self, run: str, mapped: bool = False) -> dict[str, Any] | None:
        faults: list[str] = []
        for path in filter(Path.exists, (self.path, self.previous)):
            state = self._look(path, run, mapped)
            if isinstance(state, str):
                faults.append(state)
                continue
            if faults and not mapped:
                LOG.warning("%s; going on from %s", faults[0], path.name)
            return state
        if faults:
            raise CheckpointRefused(f"{' and '.join(faults)}; delete {self.path.parent} to start anew")
        return None

    def _look(self, path: Path, run: str, mapped: bool = False) -> dict[str, Any] | str:
        """The state in a file, or why it cannot be read; one that must not be gone on from is refused."""
        try:
            document = read_document(path, mapped)
        except CheckpointRefused as refusal:
            raise CheckpointRefused(f"checkpoint {path} {refusal}; delete {path.parent} to start anew") from None
        except Exception as error:  # a damaged file can raise anything at all
            return f"checkpoint {path} cannot be read ({' '.join(str(error).split())})"
        if run and document["run"] != run:
            whose = f"must be of the run {run}, got one of {document['run'] or 'a run without a name'}"
            raise CheckpointRefused(f"checkpoint {path} {whose}; delete {path.parent} to start anew")
        state: dict[str, Any] = document["state"]
        return state


@contextmanager
def ended(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Whatever happens inside, what is being saved is there, or has failed, when it is over."""
    if checkpoints is None:
        yield
        return
    try:
        yield
    except BaseException:
        with suppress(Exception):
            checkpoints.wait()
        raise
    checkpoints.wait()


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


def read_document(path: Path, mapped: bool) -> dict[str, Any]:
    """A checkpoint of our format whose checksums are right, which torch does not look at."""
    with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise CheckpointRefused("is compressed, as commeff writes none")  # a small file could fill the memory
        if damaged := archive.testzip():
            raise ValueError(f"the checksum of {damaged} is wrong")
    try:
        document = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError:
        raise CheckpointRefused("holds more than tensors, numbers and text: commeff wrote no such file") from None
    kind = document.get("format", 1) if isinstance(document, dict) else None
    if kind != FORMAT:
        raise CheckpointRefused(
            f"must have format {FORMAT}, got {kind}: another version of commeff wrote it, which can go on from it"
        )
    texts = all(isinstance(document.get(name), str) for name in ("run", "method"))
    if not texts or not isinstance(document.get("state"), dict):
        raise CheckpointRefused("must hold a run, its method and its state, got something else")
    return dict(document)


def plain(node: Any, where: str = "state") -> Any:
    """The same as what can be read without executing anything: no types but Python's own, and tensors."""
    if isinstance(node, Tensor):
        return node.detach()
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
