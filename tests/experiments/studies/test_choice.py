"""The study of what `commeff gain` chooses for a task that its evidence has not seen."""

from __future__ import annotations

import pandas as pd
import pytest

from commeff.experiments.studies.choice import METHODS, PSGD, decisions, priced

pytestmark = pytest.mark.slow
RULES = ["gain", "always psgd", "always local SGD", "chance"]


@pytest.fixture(scope="module")
def rows():
    return priced(10)


def steps(*needed: dict[str, float]) -> pd.DataFrame:
    """Tasks a, b, ... where a method needs so many of psgd's steps, 3 where nothing is said."""
    tasks = pd.Index([*"abcde"][: len(needed)], name="task")
    return pd.DataFrame([dict.fromkeys(METHODS, 3.0) | {PSGD: 1.0} | each for each in needed], tasks)


def test_where_tasks_are_alike_nothing_is_regretted(rows):
    alike = {"DiLoCo, H = 30": 1.5, "local SGD, H = 8": 1.1}
    found = pd.DataFrame(decisions(steps(alike, alike, alike), rows, 10))
    assert (found["gain"] == 0).all()
    assert (found["gain takes"] == found["best"]).all()
    assert (found[RULES[1:]].min(axis=1) > 0).any()


def test_what_needs_too_many_steps_on_one_task_is_not_taken_on_another(rows):
    slow, fast = dict.fromkeys(METHODS, 1e3), dict.fromkeys(METHODS, 1.0)
    found = pd.DataFrame(decisions(steps(slow, fast, fast), rows, 10)).set_index("task")
    assert list(found["gain takes"] == PSGD) == [False, True, True]
    assert found.loc["a", "gain"] > 10
    assert found.loc["b", "gain"] == found.loc["b", "always psgd"] > 0
