"""`python -m commeff.experiments.published.landscape run|write`: a map of all methods, in pieces that can be resumed.

`run` goes on with whatever is not finished, new methods of the catalogue included; `write` makes the tables that
`commeff advise` reads and the page of results/landscape from what is done, and says what is missing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from commeff.experiments.published.landscape.runs import TaskRuns
from commeff.experiments.published.landscape.spec import HERE, landscape


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m commeff.experiments.published.landscape", description=__doc__)
    field = landscape()
    parser.add_argument("what", choices=("run", "write"))
    parser.add_argument("--task", choices=[*field.tasks], action="append", help="of these alone; all unless given")
    parser.add_argument("--store", type=Path, default=Path("runs/landscape"), help="the folder of runs")
    parser.add_argument("--data", help="the folder of tiny Shakespeare; COMMEFF_DATA unless given")
    parser.add_argument("--jobs", "-j", type=int, default=1, help="runs at a time")
    parser.add_argument("--tables", type=Path, default=HERE / "tables", help="the folder of the tables")
    parser.add_argument("--out", type=Path, default=Path("results/landscape"), help="the folder of the page")
    given = parser.parse_args()
    tasks = [TaskRuns(field, field.tasks[name], given.store, given.data) for name in given.task or field.tasks]
    if given.what == "run":
        for each in tasks:
            for method, reason in each.refused.items():
                print(f"{each.task.name}: {method} is left out: {reason}", file=sys.stderr)
            each.run(given.jobs)
        return
    from commeff.experiments.published.landscape.evidence import collect, save
    from commeff.experiments.published.landscape.page import write

    save(collect(tasks), given.tables)
    for path in write(given.tables, given.out):
        print(path)


if __name__ == "__main__":
    try:
        main()
    except ValueError as refusal:
        print(f"landscape: {refusal}", file=sys.stderr)
        sys.exit(2)
