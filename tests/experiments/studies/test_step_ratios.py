"""The steps that methods of a table need, in units of parallel SGD's on the same problem."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.results import CaseResult, Observation
from commeff.experiments.studies.step_ratios import rows


def case(problem: str, method: str, *losses: float, state: str = "done") -> CaseResult:
    curve = pd.DataFrame({"step": [10.0, 20.0, 30.0], "val_loss": losses})
    run = Observation({"val_loss": losses[-1]}, curve, state)
    labels = {"problem": problem}
    return CaseResult(Case(method, labels, {"method": method, "workers": 8}), {0: run}, labels)


def test_each_problem_of_a_table_has_its_own_parallel_sgd_and_what_diverged_is_left_out() -> None:
    cases = [
        case("easy", "psgd", 3.0, 2.0, 1.0),
        case("easy", "local_sgd", 4.0, 3.0, 2.0),
        case("easy", "ef21", 4.0, 3.0, 2.0, state="diverged"),
        case("hard", "psgd", 30.0, 20.0, 10.0),
        case("hard", "local_sgd", 40.0, 35.0, 30.0),
    ]
    tune = SimpleNamespace(by=SimpleNamespace(metrics=("val_loss",)))
    table = SimpleNamespace(tune=tune, called=lambda name: name)
    found = {row["variant"]: row for row in rows("a table", SimpleNamespace(cases=cases, table=table))}
    assert list(found) == ["local_sgd, easy, n = 8", "local_sgd, hard, n = 8"]
    assert [row["steps"] for row in found.values()] == pytest.approx([1.5, 3.0])
    assert [row["parallel SGD"] for row in found.values()] == [1.0, 10.0]
