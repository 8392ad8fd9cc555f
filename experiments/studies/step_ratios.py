"""`python -m commeff.experiments.studies.step_ratios`: results/converged/steps.csv and steps.md, the steps that each
method of the converged tables needs, in units of parallel SGD's.

Reads the records beside the pages and trains nothing. `COMMEFF_DATA` says where the data lie.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.reproduce.command import Arguments, reproduce
from commeff.experiments.reproduce.results import CaseResult, Results

COMMAND = "python -m commeff.experiments.studies.step_ratios"
TABLES = ("diloco_trend", "diloco_momentum", "top_k_fashion", "gossip_fashion", "five_tasks")
ALIKE = ("problem", "model", "task.partition", "task.alpha")  # what a method and its parallel SGD have in common
FOLDER = Path("results/converged")
PAGE = """# Steps to the same loss, in units of parallel SGD's

Written by `{command}` at commit {commit} from the records beside the pages of this folder.

All runs of a table that train the same model see equally many samples. A run ends at some validation loss or
accuracy, the quantity by which its table chooses rates. `steps` is T / t: parallel SGD's run on the same model and data
has T steps, and was as good at step t. Values are means over seeds. Between two evaluations parallel SGD's curve is
taken to be straight. A method that ends better than parallel SGD has 1. A method is left out if a run of it diverged.
Runs that two tables share stand once.

At t the learning rate of parallel SGD has not fallen to its end yet. A run of parallel SGD that is planned for t steps
would end better, so `steps` is a lower bound.

{steps}
"""


def ratio(own: pd.Series, plain: pd.Series, higher: bool) -> float:
    """T / t of a method's curve and of parallel SGD's, which are indexed by the step.

    >>> own, plain = (pd.Series(losses, [10, 20, 30]) for losses in ([4.0, 3.0, 2.0], [3.0, 2.0, 1.0]))
    >>> ratio(own, plain, False), ratio(plain, own, False)
    (1.5, 1.0)
    """
    sign = 1 if higher else -1
    reached = np.interp(sign * own.iloc[-1], (sign * plain).cummax(), plain.index.to_numpy(dtype=float))
    return float(plain.index[-1] / reached)


def curve(case: CaseResult, metric: str) -> pd.Series:
    """The mean over seeds."""
    return pd.concat([run.column(metric) for run in case.runs.values()]).groupby("step")[metric].mean()


def subject(settings: Mapping[str, Any]) -> list[str]:
    """What a method trains, where a table has several problems or models."""
    return [str(settings[key]) for key in ("problem", "model") if key in settings][:1]


def rows(table: str, results: Results) -> Iterator[dict[str, Any]]:
    """One for each method of a table of which every run ended."""
    assert results.table.tune is not None
    (metric,) = results.table.tune.by.metrics
    said = [{**case.labels, **case.case.settings} for case in results.cases]
    places = [tuple(settings.get(key) for key in ALIKE) for settings in said]
    is_plain = [settings["method"] == "psgd" and "accumulate" not in settings for settings in said]
    plain = {place: case for place, case, yes in zip(places, results.cases, is_plain, strict=True) if yes}
    for case, settings, place in zip(results.cases, said, places, strict=True):
        if case is plain[place] or any(run.state != "done" for run in case.runs.values()):
            continue
        name = results.table.called(case.case.name)
        own, other = (curve(of, metric) for of in (case, plain[place]))
        yield {
            "table": table,
            "variant": ", ".join([name, *subject(settings), f"n = {settings['workers']}"]),
            "metric": metric,
            "seeds": len(case.runs),
            "parallel SGD": other.iloc[-1],
            "own": own.iloc[-1],
            "steps": ratio(own, other, higher_is_better(metric)),
        }


def recorded(table: str) -> Results:
    """The results of a table whose records lie beside its page."""
    with TemporaryDirectory() as folder:
        records = Path(shutil.copy(FOLDER / table / "runs.tar.xz", folder))
        done = reproduce(Arguments(table, store=Path(folder) / "store", out=Path(folder) / "page", records=records))
        assert done.results is not None, done.lines
        return done.results


def main() -> None:
    """Write the page."""
    every = pd.DataFrame([row for table in TABLES for row in rows(table, recorded(table))])
    every = every.drop_duplicates(["parallel SGD", "own"]).to_dict("records")
    forms = {"parallel SGD": ".4f", "own": ".4f", "steps": ".2f"}
    Page("steps", PAGE, [Table.of(every, name="steps", forms=forms)], words={"command": COMMAND}).write(FOLDER)


if __name__ == "__main__":
    main()
