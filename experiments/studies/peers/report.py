"""`commeff reproduce peers`: other libraries beside ours, half a minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from commeff import Communicator
from commeff.experiments.measure.forks import on_forks
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.studies.peers import graphs, hooks, outer, server
from commeff.experiments.studies.peers.problem import STEPS, WORKERS, Compared

COMMAND = "commeff reproduce peers"
PAGE = """# Our methods beside other libraries'

Written by `{command}` at commit {commit} on {cpu}. Measured: both libraries train the same network of 548 parameters
in float64 on the same minibatches, on the same {workers} processes over gloo, {steps} steps. `difference` is the
largest over all parameters and workers, relative to how far parameters have moved; of robust rules and graphs, of a
number of the result. Libraries that are not installed are not run: `pip install torchft` and, since it pins what others
need, flwr in a folder of its own (`pip install --target`). Bluefog's rules are written out from its source, worker by
worker: it needs MPI.

{peers}
"""


def compared() -> list[Compared]:
    """All comparisons, those on processes made on forks of this one."""

    def on_each(communicator: Communicator) -> list[Compared]:
        return [*hooks.comparisons(), *outer.comparisons(), *server.comparisons()]

    return [*on_forks(WORKERS, WORKERS, on_each), *graphs.comparisons()]


def words(found: Sequence[Compared]) -> list[str]:
    """A line for each comparison."""
    return [
        f"{each.verdict}: {each.ours} and {each.library}'s {each.theirs}"
        + ("" if each.difference is None else f": {each.difference:.0e}")
        + (f" ({each.remark})" if each.difference is None else "")
        for each in found
    ]


def write(found: Sequence[Compared], out: Path) -> Path:
    """peers.csv and peers.md, whose path it gives."""
    frame = pd.DataFrame([asdict(each) | {"verdict": each.verdict} for each in found])
    shown = [
        {
            "library": each.library,
            "ours": each.ours,
            "theirs": each.theirs,
            "difference": "" if each.difference is None else f"{each.difference:.0e}",
            "verdict": each.verdict,
            "remark": each.remark,
        }
        for each in found
    ]
    words = {"command": COMMAND, "workers": WORKERS, "steps": STEPS}
    return Page("peers", PAGE, [Table.of(shown, name="peers", data=frame)], words=words, digits=2).write(out)[0]


def reproduce(out: Path) -> tuple[Path, list[str], int]:
    """Compare all and write the page: its path, a line for each comparison, and 3 where something differs, else 0."""
    found = compared()
    return write(found, out), words(found), 3 if any(each.verdict == "differs" for each in found) else 0
