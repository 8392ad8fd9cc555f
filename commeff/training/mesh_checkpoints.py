"""Checkpoints of runs whose workers lie on several processes: one folder a step, written by all of them together.

    step-120/run.pt        what is equal on every process: the clock, schedules, the last row; whose it is
    step-120/*.distcp      tensors, by worker, path in the strategy and tensor of the model, in torch's format
    latest, previous       names of folders, replaced by rename when all is written

Another mesh goes on from it. With another number of workers, all begin at the mean of the parameters.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from commeff.compressors import Layout
from commeff.files import appearing, regular, write
from commeff.parallelism.boxes import Whereabouts
from commeff.parallelism.saved import Held
from commeff.parallelism.stored import Foreign, Savers, Stored, wait
from commeff.training.checkpoint import CheckpointRefused, Checkpoints, plain, read_document, write_document
from commeff.training.own_state import Found, OwnState, mean_row

if TYPE_CHECKING:
    from commeff.training.run import Run

LOG = logging.getLogger(__name__)

DOCUMENT = "run.pt"


class MeshCheckpoints(Checkpoints):
    """Checkpoints of all processes of a run together, written while it goes on. All of them make it at once.

    Parameters
    ----------
    whole : Checkpoints
        Where, how often, and whose.
    instead : str, optional
        What to do where they are refused; unless given, delete them.
    """

    def __init__(self, whole: Checkpoints, instead: str = "") -> None:
        super().__init__(whole.path.parent, whole.every, whole.run)
        self._folder, self._ranks = whole.path.parent, Savers()
        self._instead = instead or f"delete {self._folder} to start anew"
        self._writing: Future[Any] | None = None

    def keep(self, run: Run) -> None:
        """Begin to write a checkpoint, when the one before it is there; every process calls it."""
        self.wait()
        self._writing = self._ranks.write(*self._collected(run))

    def keep_now(self, run: Run) -> None:
        """Write a checkpoint, and start no thread for it."""
        self._ranks.write_now(*self._collected(run))

    def _collected(self, run: Run) -> tuple[Path, dict[str, Held], Callable[[], None]]:
        """Where a checkpoint goes, what this process has of it, and what is done once it is written."""
        held, values = OwnState(run, self._ranks).collected()
        step, state, method = Path(self._ranks.first(str(_free(self._folder, run.step)))), plain(values), run.method

        def finished() -> None:
            with appearing(step / DOCUMENT) as draft:
                write_document(draft, state, self.run, method)
            _point(self._folder, step.name)

        return step, held, finished

    def wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            wait(writing)

    def restore(self, run: Run) -> bool:
        """Let a run go on from the last checkpoint, if there is one, and say whether; every process calls it.

        A damaged one is told of, and the one before it is taken.
        """
        own, faults = OwnState(run, self._ranks), list[str]()
        for step in map(Path, self._ranks.first([*map(str, pointed(self._folder))])):
            found, outcome = self._look_at(step, own)
            outcomes = self._ranks.all(outcome)
            if refusals := [text for kind, text in outcomes if kind == "refused"]:
                raise CheckpointRefused(f"checkpoint {step} {refusals[0]}; {self._instead}")
            damages = [text for kind, text in outcomes if kind == "damaged"]
            if found is not None and not damages:
                if faults and not self._ranks.rank:
                    LOG.warning("%s; going on from %s", faults[0], step.name)
                own.take(found)
                return True
            faults.append(f"checkpoint {step} cannot be read ({damages[0]})")
        if faults:
            raise CheckpointRefused(f"{' and '.join(faults)}; {self._instead}")
        return False

    def _look_at(self, step: Path, own: OwnState) -> tuple[Found | None, tuple[str, str]]:
        """What this process needs of a checkpoint, and whether that is fine, damaged or to be refused."""
        try:
            document = _document(step, self.run)
            return own.read(Stored(step), document["state"], document["method"]), ("fine", "")
        except (CheckpointRefused, Foreign) as refusal:
            return None, ("refused", " ".join(str(refusal).split()))
        except Exception as error:  # a damaged file can raise anything at all
            return None, ("damaged", " ".join(f"{type(error).__name__}: {error}".split()))


def check(whole: Checkpoints) -> None:
    """Refuse, before a run's processes meet, what they would refuse as another run's.

    Parameters
    ----------
    whole : Checkpoints
        Where, and whose.
    """
    _newest(whole)


def last_step(whole: Checkpoints) -> int:
    """The step of the last checkpoint there is, by tensor or of whole workers."""
    document = _newest(whole)
    return int(document["state"]["run"]["step"]) if document else whole.step() or 0


def _newest(whole: Checkpoints) -> dict[str, Any] | None:
    """What is equal on every process in the last checkpoint that can be read; None if there is none by tensor."""
    folder, faults = whole.path.parent, []
    for step in pointed(folder):
        try:
            return _document(step, whole.run, mapped=True)
        except (CheckpointRefused, Foreign) as refusal:
            raise CheckpointRefused(f"checkpoint {step} {refusal}; delete {folder} to start anew") from None
        except Exception as error:  # a damaged file can raise anything at all
            faults.append(f"checkpoint {step} cannot be read ({' '.join(str(error).split())})")
    if faults:
        raise CheckpointRefused(f"{' and '.join(faults)}; delete {folder} to start anew")
    return None


def _document(step: Path, run: str, mapped: bool = False) -> dict[str, Any]:
    document = read_document(step / DOCUMENT, mapped)
    if run and document["run"] != run:
        raise Foreign(f"must be of the run {run}, got one of {document['run'] or 'a run without a name'}")
    return document


def pointed(folder: Path) -> list[Path]:
    """The folders of the last checkpoint and of the one before it, as far as there are any."""
    found = []
    for name in ("latest", "previous"):
        if (folder / name).exists():
            with open(folder / name, encoding="utf-8", opener=regular) as file:
                found.append(folder / Path(file.read(100)).name)
    return found


def mean_model(folder: Path, layout: Layout) -> tuple[Tensor, int] | None:
    """The mean (d,) of all workers' parameters in the last checkpoint of a run on a mesh, and its step.

    Parameters
    ----------
    folder : path
        Of the run's checkpoints; None is given if there is none of a mesh.
    layout : Layout
        Of the whole model.
    """
    for step in pointed(folder)[:1]:
        state = read_document(step / DOCUMENT, mapped=False)["state"]
        return mean_row(Stored(step), Whereabouts.of(layout), state["workers"])[0], state["run"]["step"]
    return None


def _free(folder: Path, step: int) -> Path:
    """Where a checkpoint of a step goes: one that is there is never written into."""
    name, more = folder / f"step-{step}", 1
    while name.exists():
        more += 1
        name = folder / f"step-{step}-{more}"
    return name


def _point(folder: Path, name: str) -> None:
    """Make a checkpoint the last one, the last one the one before, and drop all others."""
    with appearing(folder / "latest") as draft:
        write(draft, name)
        if (folder / "latest").exists():
            os.replace(folder / "latest", folder / "previous")
    kept = pointed(folder)
    for step in folder.glob("step-*"):
        if step not in kept:
            shutil.rmtree(step, ignore_errors=True)
