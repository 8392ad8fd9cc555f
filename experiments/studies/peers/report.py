"""`python -m commeff.experiments.studies.peers.report`: other libraries beside ours, half a minute."""

from __future__ import annotations

import argparse
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

COMMAND = "python -m commeff.experiments.studies.peers.report"
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


def words(comparisons: Sequence[Compared]) -> list[str]:
    """A line for each comparison."""
    return [
        f"{row.verdict}: {row.ours} and {row.library}'s {row.theirs}"
        + ("" if row.difference is None else f": {row.difference:.0e}")
        + (f" ({row.remark})" if row.difference is None else "")
        for row in comparisons
    ]


def write(comparisons: Sequence[Compared], out: Path) -> Path:
    """Write peers.csv and peers.md; the path of the latter."""
    frame = pd.DataFrame([asdict(row) | {"verdict": row.verdict} for row in comparisons])
    shown = frame[["library", "ours", "theirs", "difference", "verdict", "remark"]].copy()
    shown["difference"] = ["" if row.difference is None else f"{row.difference:.0e}" for row in comparisons]
    table = Table.of(shown.to_dict("records"), name="peers", data=frame)
    words = {"command": COMMAND, "workers": WORKERS, "steps": STEPS}
    return Page("peers", PAGE, [table], words=words, digits=2).write(out)[0]


def main() -> int:
    """Write the page from the command line; 3 where something differs, else 0."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/peers"), help="the folder to write into")
    out, comparisons = parser.parse_args().out, compared()
    print("\n".join([*words(comparisons), str(write(comparisons, out))]))
    return 3 if any(row.verdict == "differs" for row in comparisons) else 0


if __name__ == "__main__":
    raise SystemExit(main())
