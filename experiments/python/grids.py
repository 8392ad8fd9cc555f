"""`commeff.grid`: what `commeff grid` does, from Python, with a file or with a dict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from commeff.experiments.grid.plan.spec import words_of
from commeff.experiments.python.children import command
from commeff.experiments.python.results import Runs
from commeff.experiments.run.store import stamp
from commeff.files import rewrite, unlinked


def grid(
    file: str | Path | Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    store: str | Path | None = None,
    jobs: int | None = None,
    plugins: Sequence[str] = (),
    progress: bool = True,
) -> pd.DataFrame:
    """Run the cells of a grid, side by side, and give a row for each: labels, seed, state and the numbers at the end.

        commeff.grid("experiments/grids/demo.yaml", {"steps": 50})
        cells = [{"method": "psgd"}, {"method": "dsgd", "topology": ["ring", "exponential"]}]
        commeff.grid({"base": {"workers": 8}, "seeds": [0, 1, 2], "grid": cells}, name="try")

    The same call again skips what is finished and goes on with the rest; an interrupt stops with checkpoints. Curves
    and figures: `commeff.load(store)`; the report: `commeff report STORE`.

    Parameters
    ----------
    file : str, Path or Mapping
        A grid file, or what one says, as in `commeff grid --help`.
    settings : Mapping, optional
        Keys that go into its base.
    name : str, optional
        What a grid that is no file is called; also the default store's name.
    store : str or Path, optional
        One folder a run; runs/NAME unless given.
    jobs : int, optional
        Processes at a time; one a core unless given.
    plugins : sequence of str
        Files or modules of your own, whose parts may be named.
    progress : bool
        Whether to say which cells have ended, and how.

    Raises
    ------
    ValueError
        The grid, or a cell of it, cannot be run; a line for each reason.
    """
    if isinstance(file, Mapping):
        if name is None:
            raise ValueError("name must be given for a grid that is no file, got none: its store keeps it by its name")
        store = Path(store or Path("runs") / name)
        path = _written(file, name, store)
    else:
        path = Path(file)
        if name is not None:
            raise ValueError(f"name must be left out for a grid file, got {name!r}: it is called {path.stem}")
    words = words_of(settings or {})
    options = [] if store is None else ["--store", str(store)]
    options += [] if jobs is None else ["--jobs", str(jobs)]
    options += [word for plugin in plugins for word in ("--plugin", plugin)]
    command("grid", str(path), *words, *options, "--no-report", shown=progress)
    return Runs(store or Path("runs") / path.stem, path.stem).cells


def _written(content: Mapping[str, Any], name: str, store: Path) -> Path:
    """The grid as a file in its store, so that a command makes it again."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"name must be that of a file, without folders, got {name!r}")
    stamp(store)
    unlinked(store / "grids").mkdir(exist_ok=True)
    path = store / "grids" / f"{name}.yaml"
    rewrite(path, yaml.safe_dump(dict(content), sort_keys=False), shared=True)
    return path
