"""The resume law: stopped after any step and gone on with in a new process, a run ends bit by bit where it would have
ended.

The task has every kind of state there is: a shuffling sampler, BatchNorm buffers, dropout, momentum and a schedule.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from threading import Event
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods, topologies
from commeff.compressors import QSGD, Compressor, TopK
from commeff.core import scheduled
from commeff.experiments.tasks import Digits
from commeff.experiments.tasks.digits import load_digits
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import read_document
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from commeff.transforms import Doubling, Thinning
from tests import owned

WORKERS, STEPS = 2, 6
MIDDLE, ENDS = 4, (1, 5)  # steps after which a run is stopped
PARTS = 12  # of all methods: what one test takes
SCHEDULE = partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[2, 5], gamma=0.5)
PLAIN = partial(torch.optim.SGD, lr=0.05)
OPTIMIZER = scheduled(partial(PLAIN, momentum=0.9), SCHEDULE)
WITHOUT_MOMENTUM = {"zero_one_adam": scheduled(PLAIN, SCHEDULE)}
FUNCTIONS = inspect.getmembers(methods, inspect.isfunction)
CATALOGUE = {name: f for name, f in FUNCTIONS if get_type_hints(f).get("return") is Strategy}


@cache
def variants():
    """name -> build() for every method, with a deterministic and a random compressor and every literal choice."""
    found = {}
    for name, method in CATALOGUE.items():
        hints = get_type_hints(method)
        compressors = [TopK(ratio=0.1), QSGD(levels=3)] if Compressor in hints.values() else [None]
        literals = {key: get_args(hint) for key, hint in hints.items() if get_origin(hint) is Literal}
        for compressor in compressors:
            for choice in next(iter(literals.values()), (None,)):
                optimizer = WITHOUT_MOMENTUM.get(name, OPTIMIZER)
                given = {"optimizer": optimizer, "compressor": compressor, "period": 3}
                given |= {"warmup": 2, "updates": Thinning(2, 1), "meetings": Doubling(1, 2)}
                given |= {"topology": topologies.lazy(topologies.ring(WORKERS))} | dict.fromkeys(literals, choice)
                wanted = {key: value for key, value in given.items() if key in inspect.signature(method).parameters}
                if takes(partial(method, **wanted)):
                    found[f"{name} {type(compressor).__name__} {choice}"] = partial(method, **wanted)
    assert {name.split()[0] for name in found} == CATALOGUE.keys()
    return found


def takes(build) -> bool:
    """Whether the method can send by that compressor: some are refused as biased."""
    x = torch.zeros(WORKERS, 12)
    try:
        build().start(x, Layout.of([("matrix", (3, 3)), ("vector", (3,))]), Communicator(workers=WORKERS))
    except ValueError as error:
        if "biased" not in str(error):
            raise
        return False
    return True


class Late(Checkpoints):
    """Writes each one when the next is due or the run is over: what training shared with it is written over by then."""

    def __init__(self, *given):
        super().__init__(*given)
        self._awaited = Event()

    def save(self, *given):
        assert self._awaited.wait(owned.PATIENCE)
        super().save(*given)

    def wait(self):
        self._awaited.set()
        super().wait()
        self._awaited.clear()


def run(name: str, folder: Path, stop: int | None = None, kind: type[Checkpoints] = Checkpoints):
    steps_taken = iter(range(STEPS + 1))
    task = Digits(WORKERS, seed=1, model="mlp", hidden=8, norm="batch", dropout=0.2, batch=8)
    return train(
        task,
        variants()[name](),
        Communicator(workers=WORKERS, seed=2),
        RunSettings(steps=STEPS, evaluate_every=3),
        recorder=Recorder(folder),
        checkpoints=kind(folder, MIDDLE),
        should_stop=lambda: next(steps_taken) == stop,
    )


def content(folder: Path):
    """Everything a run leaves behind, but for the seconds it took."""
    rows = [{key: value for key, value in row.items() if key != "seconds"} for row in Recorder(folder).rows()]
    return rows, state(folder / "latest.pt")


def state(path: Path):
    return {key: value for key, value in read_document(path)["state"].items() if key not in ("seconds", "row")}


def same(left, right, where=""):
    assert type(left) is type(right), where
    if isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            same(left[key], right[key], f"{where}/{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), where
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            same(a, b, f"{where}/{i}")
    elif isinstance(left, torch.Tensor):
        assert torch.equal(left, right), where
    else:
        assert left == right, where


@pytest.mark.parametrize("part", range(PARTS))
def test_a_stopped_run_ends_where_it_would_have(part, tmp_path):
    """Two forks of this process have what it was before either of them."""
    load_digits(torch.float32)  # here, not in every fork
    names = [*variants()][part::PARTS]
    in_a_fork(begin, tmp_path, MIDDLE, names)
    in_a_fork(end, tmp_path, MIDDLE, names)
    for name in names:
        agree(tmp_path, MIDDLE, name)
        middle, late = (state(tmp_path / f"{name}-{kind}" / "previous.pt") for kind in (MIDDLE, "whole"))
        same(middle, late, name)


@pytest.mark.slow
@pytest.mark.parametrize("stop", ENDS)
def test_a_new_interpreter_ends_it_too(stop, tmp_path):
    """It imports torch, and has other hashes."""
    in_a_fork(begin, tmp_path, stop, variants())
    owned.run([sys.executable, "-m", "tests.laws.test_resume", str(tmp_path), str(stop)], check=True)
    for name in variants():
        agree(tmp_path, stop, name)


def in_a_fork(work, top: Path, stop: int, names: Iterable[str]) -> None:
    process = owned.process(work, (top, stop, names))
    process.start()
    process.join()
    assert process.exitcode == 0


def begin(top: Path, stop: int, names: Iterable[str]) -> None:
    for name in names:
        run(name, top / f"{name}-whole", kind=Late)
        assert run(name, top / f"{name}-{stop}", stop)["state"] == "stopped"


def end(top: Path, stop: int, names: Iterable[str]) -> None:
    for name in names:
        assert run(name, top / f"{name}-{stop}")["state"] == "done"


def agree(top: Path, stop: int, name: str) -> None:
    whole = content(top / f"{name}-whole")
    assert whole[0][-1]["step"] == STEPS
    same(content(top / f"{name}-{stop}"), whole, name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    end(Path(sys.argv[1]), int(sys.argv[2]), variants())
