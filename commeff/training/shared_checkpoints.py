"""Checkpoints of runs whose workers lie on several processes: all write, together and while the run goes on.

    latest.pt, previous.pt    what the first process has, and the names of the files of the others
    step-120.3.pt             what the fourth has

Another mesh goes on from them. With another number of workers, all begin at the mean of the parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from commeff.boxes import Shape
from commeff.communicator.wire.group import Processes
from commeff.files import appearing
from commeff.training.checkpoint import Checkpoints, share_out
from commeff.training.documents import CheckpointRefused, read_document, write_document
from commeff.training.run import Run
from commeff.training.run_state import snapshot


class SharedCheckpoints(Checkpoints):
    """Checkpoints of all processes of a run together, in one folder. All of them make it at once.

    Parameters
    ----------
    whole : Checkpoints
        Where, how often, and whose.
    """

    def __init__(self, whole: Checkpoints) -> None:
        super().__init__(whole.folder, whole.every, whole.run, whole.instead)
        self._processes = Processes.beside()

    def keep(self, run: Run) -> None:
        """Begin to write a checkpoint, when the one before it is there; every process calls it."""
        self.wait()
        self._begin(self._write, snapshot(run), run.method)

    def restore(self, run: Run) -> bool:
        return self._go_on(run, self.run)

    def _write(self, state: dict[str, Any], method: str) -> None:
        """The first process writes last: a checkpoint is there when all of it is."""
        rank, size = self._processes.rank, self._processes.size
        name = self._processes.share(self._free(state["step"]))[0]
        tensors, others = share_out(state["tensors"], self._processes), [f"{name}.{i}.pt" for i in range(1, size)]
        with self._together():
            if rank:
                self.folder.mkdir(parents=True, exist_ok=True)
                with appearing(self.folder / f"{name}.{rank}.pt") as draft:
                    write_document(draft, {"tensors": tensors}, self.run, method)
        with self._together():
            if not rank:
                self.save(state | {"tensors": tensors, "others": others}, method=method)
                self._drop_old()

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Wait until all have done what there is to do; an error of one is one at all of them."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        faults = self._processes.share(f"{type(error).__name__}: {error}" if error else "")
        if error is not None:
            raise error
        for rank, fault in enumerate(faults):
            if fault:
                raise OSError(f"process {rank} could not write its part of a checkpoint: {fault}")

    def _free(self, step: int) -> str:
        """How files of a checkpoint are called: those that are there are never written into."""
        name, more = f"step-{step}", 1
        while any(self.folder.glob(f"{name}.*.pt")):
            more += 1
            name = f"step-{step}-{more}"
        return name

    def _drop_old(self) -> None:
        """Remove what belongs to neither of the last two checkpoints."""
        needed: set[str] = set()
        for path in super()._existing():
            with suppress(Exception):  # a damaged file can raise anything at all
                needed.update(read_document(path, compare=False)["state"].get("others", ()))
        for path in (*self.folder.glob("step-*.*.pt"), *self.folder.glob(".step-*.*.pt.draft")):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _processes_of(self, run: Run) -> Processes:
        return self._processes

    def _shapes(self, run: Run) -> Mapping[str, Shape]:
        layouts = self._processes.share(dict(super()._shapes(run)))
        return {name: tuple(shape) for shapes in layouts for name, shape in shapes.items()}

    def _existing(self) -> list[Path]:
        return [self.folder / name for name in self._processes.share([path.name for path in super()._existing()])[0]]

    def _read(self, path: Path, number: int = 0) -> dict[str, Any]:
        """Each process compares the checksums of some files."""
        return read_document(path, compare=number % self._processes.size == self._processes.rank)

    def _look(self, path: Path, run: str, tensors: bool = True) -> dict[str, Any] | str:
        """What one process cannot read, all pass over; what one refuses, all refuse."""
        document: dict[str, Any] | str = ""
        with self._agreed():
            document = super()._look(path, run, tensors)
        faults = self._processes.share(document if isinstance(document, str) else "")
        return next(filter(None, faults), document)

    @contextmanager
    def understood(self) -> Iterator[None]:
        with self._agreed(), super().understood():
            yield

    @contextmanager
    def _agreed(self) -> Iterator[None]:
        """Refuse at every process what one of them refuses."""
        refusal: CheckpointRefused | None = None
        try:
            yield
        except CheckpointRefused as error:
            refusal = error
        if first := next(filter(None, self._processes.share(str(refusal or ""))), ""):
            raise CheckpointRefused(first) from refusal

    def _warn(self, line: str) -> None:
        if not self._processes.rank:
            super()._warn(line)
