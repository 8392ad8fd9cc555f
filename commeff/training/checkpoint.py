"""Checkpoints of a run: everything that decides the future, in a file written by rename, and the one before it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commeff import require
from commeff.boxes import Boxes, Shape
from commeff.communicator.wire.group import Processes
from commeff.core.saving import ELSE
from commeff.files import appearing
from commeff.training.documents import OTHER_FORMAT, CheckpointRefused, join, plain, read_document, write_document
from commeff.training.run import Run
from commeff.training.run_state import OtherRun, read_state, snapshot

LOG = logging.getLogger(__name__)
OLD = "latest"  # in a folder of format 3 of several processes


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
        Whose they are. Unless given, `save` is told by its caller, and `load` takes anybody's.
    instead : str
        What to do where they are refused; unless given, delete them.

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

    def __init__(self, folder: str | Path, every: int = 0, run: str = "", instead: str = "") -> None:
        require.at_least(0, "0 is none before the end", every=every)
        self.folder, self.every, self.run = Path(folder), every, run
        self.path, self.previous = self.folder / "latest.pt", self.folder / "previous.pt"
        self.instead = instead or f"delete {self.folder} to start anew"
        self._writing: tuple[ThreadPoolExecutor, Future[None]] | None = None

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
        """Copy a run, once the checkpoint before it is there, and begin to write the copy; every process calls it.

        Rank 0 gathers and writes that of all workers: its disk may be its own.
        """
        self.wait()
        state, processes = snapshot(run), self._processes_of(run)
        everybody = processes.gather(plain(share_out(state["tensors"], processes)))
        if everybody is not None:
            joined = {name: Boxes(*boxes) for name, boxes in join(everybody).items()}
            # Blocks inside a tensor whose optimizers have not begun yet have nothing of it.
            state["tensors"] = {name: Boxes.of(b.whole()) if b.complete else b for name, b in joined.items()}
            self._begin(self.save, state, run.identity, run.method)

    def _begin(self, write: Callable[..., None], *given: Any) -> None:
        """Write in a thread of this checkpoint's own, which `wait` ends: between two of them there is none."""
        thread = ThreadPoolExecutor(1)
        self._writing = thread, thread.submit(write, *given)

    def wait(self) -> None:
        """Until what is being written is there, or raise why it is not; every process calls it."""
        if self._writing is not None:
            thread, written = self._writing
            with thread:  # also after an interrupt: Python cannot end while torch writes
                written.exception()
            self._writing = None
            written.result()

    def restore(self, run: Run) -> bool:
        """Let a run go on from the last checkpoint, if there is one, and say whether; every process calls it."""
        return self._go_on(run, self.run or run.identity)

    def _go_on(self, run: Run, whose: str) -> bool:
        document = self.document(whose)
        if document is None:
            return False
        shapes = self._shapes(run)
        with self.understood():
            go_on, unused = read_state(run, document["state"], document["method"], shapes)
        for name in sorted(set.intersection(*map(set, self._processes_of(run).share([*unused])))):
            raise CheckpointRefused(f"checkpoint {self.path} must not hold {name}: {ELSE}; {self.instead}")
        go_on()
        return True

    def _processes_of(self, run: Run) -> Processes:
        transport = run.communicator.transport
        return Processes(transport.group, transport.size == 1)

    def _shapes(self, run: Run) -> Mapping[str, Shape]:
        """Of the whole tensors of a run's model."""
        return run.replicas.where.shapes

    def check(self) -> None:
        """Refuse what `load` would refuse, as far as that shows without its tensors."""
        self._newest(self.run, tensors=False)

    def step(self) -> int | None:
        """Of the last checkpoint, without taking it into memory; None before the first."""
        document = self._newest(self.run, tensors=False)
        return None if document is None else int(document["state"]["step"])

    def load(self) -> dict[str, Any] | None:
        """The last saved state, None before the first. A damaged one is told of, and the one before it is taken."""
        document = self.document(self.run)
        return document and document["state"]

    def document(self, run: str) -> dict[str, Any] | None:
        """The same, which must be of this run unless that is "", and whose it is."""
        return self._newest(run)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Refuse a state that lacks something, or has another form, where it is taken over."""
        try:
            yield
        except OtherRun as error:
            raise CheckpointRefused(f"checkpoint {self.path} {error}; {self.instead}") from None
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise CheckpointRefused(
                f"checkpoint {self.path} must hold the state of this run, got another form ({reason}); {self.instead}"
            ) from error

    def _newest(self, run: str, tensors: bool = True) -> dict[str, Any] | None:
        faults: list[str] = []
        for path in self._existing():
            document = self._look(path, run, tensors)
            if isinstance(document, str):
                faults.append(document)
                continue
            if faults and tensors:
                self._warn(f"{faults[0]}; going on from {path.name}")
            return document
        if faults:
            raise CheckpointRefused(f"{' and '.join(faults)}; {self.instead}")
        return None

    def _existing(self) -> list[Path]:
        """The last one and the one before it, as far as there are any."""
        paths = [path for path in (self.path, self.previous) if path.exists()]
        return paths or [path for path in [self.folder / OLD] if path.exists()]

    def _warn(self, line: str) -> None:
        LOG.warning(line)

    def _look(self, path: Path, run: str, tensors: bool = True) -> dict[str, Any] | str:
        """The document in a file, or why it cannot be read; one that must not be gone on from is refused."""
        try:
            if path.name == OLD:
                raise CheckpointRefused(OTHER_FORMAT.format(3))
            document = self._read(path)
            if tensors:
                self._read_others(document["state"])
        except CheckpointRefused as refusal:
            raise CheckpointRefused(f"checkpoint {path} {refusal}; {self.instead}") from None
        except Exception as error:  # a damaged file can raise anything at all
            return f"checkpoint {path} cannot be read ({' '.join(str(error).split())})"
        if run and document["run"] != run:
            whose = f"must be of the run {run}, got one of {document['run'] or 'a run without a name'}"
            raise CheckpointRefused(f"checkpoint {path} {whose}; {self.instead}")
        return document

    def _read(self, path: Path, number: int = 0) -> dict[str, Any]:
        """The document in a file of a checkpoint: the first one, or one of others."""
        return read_document(path)

    def _read_others(self, state: dict[str, Any]) -> None:
        """Add the boxes that other processes have written."""
        names = [Path(name).name for name in state.pop("others", ())]
        others = [self._read(self.folder / name, i)["state"] for i, name in enumerate(names, start=1)]
        if others:
            state["tensors"] = join([state["tensors"], *(other["tensors"] for other in others)])


@contextmanager
def ended(checkpoints: Checkpoints | None) -> Iterator[None]:
    """Whatever happens inside, what is being saved is there, or has failed, when it is over."""
    if checkpoints is None:
        yield
        return
    try:
        yield
        checkpoints.wait()
    except BaseException:
        try:
            checkpoints.wait()
        except Exception as error:
            LOG.warning("a checkpoint could not be written: %s", error)
        raise


def share_out(tensors: Mapping[str, Boxes], processes: Processes) -> dict[str, Boxes]:
    """The boxes of which this process is in charge, where several have the same. All of them call it."""
    places = [[name, list(offsets)] for name, boxes in tensors.items() for offsets in boxes.boxes]
    holders: dict[tuple[str, Shape], list[int]] = {}
    for rank, keys in enumerate(processes.share(places)):
        for name, offsets in keys:
            holders.setdefault((name, tuple(offsets)), []).append(rank)
    mine: dict[str, Boxes] = {}
    for i, ((name, offsets), ranks) in enumerate(holders.items()):
        if ranks[i % len(ranks)] == processes.rank:
            mine.setdefault(name, Boxes(tensors[name].shape)).put(offsets, tensors[name].boxes[offsets])
    return mine
