"""What is chosen, what is warned of, and that variants try as many values at every scale; no run is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.quantities import final, quantity, to
from commeff.experiments.reproduce.results import CaseResult, Observation, Results
from commeff.experiments.reproduce.table import PublishedTable, read_table
from commeff.experiments.reproduce.tuning import Tuning, choices_of
from tests.experiments.reproduce.test_reproduce import TUNE, commeff, written

LOST = math.inf


def tried(by: str, values: Mapping[str, Sequence[float]]) -> tuple[str, list[str]]:
    """What is chosen of these rates, each with the metric of its seeds, and what is warned of."""
    tuning = Tuning("optimizer.lr", final(by))
    found = []
    for rate, numbers in values.items():
        states = ["diverged" if math.isinf(number) else "done" for number in numbers]
        seen = {n: Observation({by: v}, state=s) for n, (v, s) in enumerate(zip(numbers, states, strict=True))}
        labels = {"optimizer.lr": rate}
        found.append(CaseResult(Case("a", labels, labels), seen, labels))
    (choice,) = choices_of(Results(cast(PublishedTable, SimpleNamespace(tune=tuning)), found))
    return choice.best.labels["optimizer.lr"], choice.warnings


@pytest.mark.parametrize("by", ["val_loss", "val_accuracy"])
def test_a_run_that_diverged_is_never_the_best(by: str) -> None:
    assert tried(by, {"1": [0.5, 0.6], "2": [LOST, LOST], "3": [0.5, LOST], "0.5": [0.5, 0.5]})[0] in ("1", "0.5")


def test_the_edge_is_named_by_its_side() -> None:
    three = {"0.1": [1.0], "0.2": [2.0], "0.3": [3.0]}
    assert tried("val_loss", three)[1] == ["a: best optimizer.lr 0.1 is the smallest tried; try more on that side"]
    assert tried("val_accuracy", three)[1] == ["a: best optimizer.lr 0.3 is the largest tried; try more on that side"]
    assert tried("val_loss", {"0.1": [2.0], "0.2": [1.0], "0.3": [3.0]})[1] == []


def test_of_two_values_each_is_an_edge_and_of_one_none() -> None:
    assert "smallest" in tried("val_loss", {"0.1": [1.0], "0.2": [2.0]})[1][0]
    assert "largest" in tried("val_loss", {"0.1": [2.0], "0.2": [1.0]})[1][0]
    assert tried("val_loss", {"0.1": [1.0]})[1] == []


def test_nothing_but_diverged_runs_is_said_and_is_no_edge() -> None:
    lost = tried("val_loss", {"0.1": [LOST], "0.2": [LOST]})
    assert lost == ("0.1", ["a: diverged at all values of optimizer.lr; 0.1 stands for them"])


def test_a_quantity_chooses_what_gets_there_first_and_not_what_ends_lowest() -> None:
    from pandas import DataFrame

    curves = {"0.1": [3.0, 2.0, 0.5], "0.2": [3.0, 0.9, 0.8], "0.4": [3.0, 2.0, 1.5]}
    found = []
    for rate, values in curves.items():
        seen = {0: Observation({"val_loss": values[-1]}, DataFrame({"step": [1, 2, 3], "val_loss": values}))}
        found.append(CaseResult(Case("a", {"optimizer.lr": rate}, {}), seen, {"optimizer.lr": rate}))
    tuning = Tuning("optimizer.lr", to("val_loss", 1.0, of="step"))
    (choice,) = choices_of(Results(cast(PublishedTable, SimpleNamespace(tune=tuning)), found))
    assert (choice.best.labels["optimizer.lr"], choice.means[:2]) == ("0.2", [3.0, 2.0])
    assert math.isnan(choice.means[2])


def test_a_function_of_the_case_knows_the_seed_of_the_run() -> None:
    table = cast(PublishedTable, SimpleNamespace(cases=[]))
    case = CaseResult(Case("a", {"lr": "0.5"}, {}), {3: Observation({}), 4: Observation({})}, {})
    assert quantity(lambda c: c["seed"] * c["lr"]).by_seed(Results(table, [case]), case) == {3: 1.5, 4: 2.0}


def test_a_label_is_found_by_the_end_of_its_key_and_not_of_its_name() -> None:
    case = Case("a", {"flr": "1", "optimizer.lr": "2"}, {})
    assert (case.label("lr"), case.label("flr"), case.label("r"), case.label("name")) == ("2", "1", None, "a")


GRID = [
    {"name": "a", "method": "psgd", "optimizer.lr": [0.05, 0.1, 0.2]},
    {"name": "b", "method": "psgd", "optimizer.lr": [0.01, 0.02, 0.04]},
]
KEPT = {"keep": {"optimizer.lr": [0.05, 0.01, 0.02]}}
WORDS = "tune: at scale full a tries 1 of optimizer.lr (0.05), b tries 2 (0.01, 0.02): give each method as many"
SAID = f"commeff: mine.py: {WORDS}"


@pytest.mark.parametrize("asked", ["full", "smoke"])
def test_what_a_scale_keeps_must_be_as_many_values_for_each(asked: str, tmp_path: Path) -> None:
    file = written(tmp_path, grid=GRID, tune=TUNE, claims=["loss(r.a) < loss(r.b)"], scales={"full": KEPT})
    code, told = commeff(file, "--scale", asked, "--dry-run")
    assert (code, told.strip()) == (2, SAID), told


def test_a_value_counts_once_however_it_is_written(tmp_path: Path) -> None:
    grid = [GRID[0], GRID[1] | {"optimizer.lr": [0.01, 0.02, "1e-2"]}]
    code, told = commeff(written(tmp_path, grid=grid, tune=TUNE, claims=["loss(r.a) < loss(r.b)"]), "--dry-run")
    assert (code, "b tries 2 of optimizer.lr (1e-2, 0.02), a tries 3" in told) == (2, True), told


def test_a_scale_may_keep_one_value_of_each(tmp_path: Path) -> None:
    smoke = {"keep": {"optimizer.lr": [0.05, 0.02]}}
    file = written(tmp_path, grid=GRID, tune=TUNE, claims=["loss(r.a) < loss(r.b)"], scales={"smoke": smoke})
    table = read_table(Path(file), "smoke")
    assert [case.labels["optimizer.lr"] for case in table.cases] == ["0.05", "0.02"]
