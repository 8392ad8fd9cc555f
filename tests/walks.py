"""Which of our files a reader walks through: `python -m tests.walks key -v`, or psgd, mem_sgd, dsgd, grid, report,
plan, plan_choco, reproduce, language.

A file is on a walk if one of its functions is called; what runs because a module is imported does not count.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OPTIMISED = 1  # the flag of code that is a function's, and no module's or class's
WORDS = ("task=digits", "workers=4", "task.batch=8")
METHODS = {
    "psgd": ("method=psgd",),
    "mem_sgd": ("method=mem_sgd", "compressor=top_k"),
    "dsgd": ("method=dsgd", "topology=one_peer_exponential"),
}
POLICY = ("model=gpt3-175b", "cluster=a100_selene", "gpus=1024", "tensor=8", "pipeline=16", "recompute=full")
CHOCO = ("method=choco", "compressor=top_k", "compressor.ratio=0.01", "topology=ring")
SPLIT = ("task=language", "model=llama_1m", "mesh.tensor=2", "mesh.pipeline=2", "mesh.shard=2", "zero=1")
GRID = """
base: {task: digits, workers: 4, task.batch: 8, steps: 8, evaluate_every: 2}
seeds: [0, 1]
grid:
  - {name: psgd, method: psgd}
  - {name: mem_sgd, method: mem_sgd, compressor: top_k}
target: {val_accuracy: 0.1}
baseline: {method: psgd}
"""


@cache
def own(name: str) -> str:
    """A file of ours, from the repository's root; "" for any other."""
    path = Path(os.path.realpath(name))
    if name.startswith("<") or not path.is_relative_to(ROOT):
        return ""
    inside = path.relative_to(ROOT)
    return "" if inside.parts[0] == "tests" or inside.parts[0].startswith(".") else str(inside)


@contextmanager
def walked() -> Iterator[dict[str, set[str]]]:
    """The files on the way of what runs inside, from the repository's root, with the functions that are called."""
    found: dict[str, set[str]] = {}
    importing = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += (event == "call") - (event == "return")
        elif event == "call" and not importing and code.co_flags & OPTIMISED and (file := own(code.co_filename)):
            found.setdefault(file, set()).add(code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


def step(method: str, folder: Path) -> dict[str, set[str]]:
    """The third step of training."""
    from commeff import RunSettings, train
    from commeff.experiments.config.build import build
    from commeff.experiments.config.compose import compose

    parts, walk = build(compose([*WORDS, *METHODS[method]])), walked()
    found: list[dict[str, set[str]]] = []

    def progress(step: int, row: dict[str, Any]) -> None:
        if step == 2:
            found.append(walk.__enter__())
        elif step == 3:
            walk.__exit__(None, None, None)

    train(parts.task, parts.strategy, parts.communicator, RunSettings(steps=4, evaluate_every=4), progress=progress)
    return found[0]


def key(folder: Path) -> dict[str, set[str]]:
    """From `compressor=top_k` to the run's bytes, and four steps."""
    from commeff.experiments.config.compose import compose
    from commeff.experiments.run.runner import run_one

    with walked() as found:
        run_one(compose([*WORDS, *METHODS["mem_sgd"], "steps=4"]), folder / "run")
    return found


def command(*words: str) -> dict[str, set[str]]:
    """A command of `commeff`."""
    from commeff.experiments.cli import app

    with walked() as found, suppress(SystemExit):
        app(words, standalone_mode=False)
    return found


def grid(folder: Path) -> dict[str, set[str]]:
    """From a grid file to its cells."""
    (folder / "grid.yaml").write_text(GRID)
    return command("grid", str(folder / "grid.yaml"), "--store", str(folder / "store"), "--dry-run")


def report(folder: Path) -> dict[str, set[str]]:
    """From the runs of that grid to their report."""
    from commeff.experiments.cli import app

    (folder / "grid.yaml").write_text(GRID)
    with suppress(SystemExit):
        app(["grid", str(folder / "grid.yaml"), "--store", str(folder / "store"), "-j", "1"], standalone_mode=False)
    return command("report", str(folder / "store"))


def plan(folder: Path, words: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """What a step will take, before anything runs."""
    return command("plan", *POLICY, *words)


def reproduce(folder: Path) -> dict[str, set[str]]:
    """From a published table to the cells that it would run."""
    return command("reproduce", "ef21_rate", "--dry-run")


def language(folder: Path) -> dict[str, set[str]]:
    """The steps of a language model that eight ranks share, which are played one rank after the other here."""
    (folder / "text.txt").write_text("To be, or not to be, that is the question.\n" * 3000)
    return command("plan", "--run", *SPLIT, "micro_batches=4", "steps=4", f"task.data={folder / 'text.txt'}")


WALKS: dict[str, Callable[[Path], dict[str, set[str]]]] = {
    **{method: partial(step, method) for method in METHODS},
    **{"key": key, "grid": grid, "report": report, "plan": plan, "plan_choco": partial(plan, words=CHOCO)},
    **{"reproduce": reproduce, "language": language},
}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        walk = WALKS[sys.argv[1]](Path(place))
    print(f"{sys.argv[1]}: {len(walk)} files")
    for file in sorted(walk) if "-v" in sys.argv else ():
        print(f"  {file}: {' '.join(sorted(walk[file]))}")
