"""What no run can have is refused before anything runs: targets, choices, baselines, booleans in place of numbers."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from commeff.experiments import tasks
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.command import Request, prepare
from commeff.experiments.grid.plan.expand import measured
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.grids import read_grid
from commeff.experiments.run.runner import run_one
from tests.experiments.report.report_stores import Forged, forge

DIGITS = "base: {task: digits, workers: 4, steps: 3}\ngrid: [{method: [psgd, dsgd]}]\n"
QUADRATIC = DIGITS.replace("digits", "quadratic")
SWEPT = QUADRATIC.replace("[psgd, dsgd]", "psgd, steps: [2, 3]")
OWN = "from commeff.experiments.tasks import Digits\n\nclass Own{}(Digits):\n    {}\n"


def refusals(folder: Path, text: str, *plugins: str) -> list[str]:
    """The lines that refuse a grid file; none if it is good."""
    (folder / "g.yaml").write_text(text)
    adopted = [choice for plugin in plugins for choice in choices(plugin)]
    try:
        prepare(Request(folder / "g.yaml", store=folder / "store", plugins=plugins, choices=adopted), rehearsed=False)
    except ConfigError as error:
        return list(error.faults)
    return []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DIGITS + "target: {val_acc: 0.9}", "target: no run of the grid measures val_acc; did you mean val_accuracy?"),
        (DIGITS + "target: {test_accuracy: 0.9}", "target: no run of the grid measures test_accuracy"),
        (QUADRATIC + "target: {val_accuracy: 0.9}", "they measure train_loss, val_loss, distance, "),
        (SWEPT + "select: {over: steps, by: val_accuracy}", "select.by: no run of the grid measures val_accuracy"),
        (DIGITS + "baseline: {method: psdg}", "did you mean psgd?"),
        (DIGITS + "baseline: {methud: psgd}", "did you mean method?"),
        (DIGITS + "baseline: {method: true}", "is no cell of the grid"),
        (DIGITS + "target: true", "target must be one measurement and its level"),
        (DIGITS + "target: {val_accuracy: true}", "target must be one measurement and its level"),
        (DIGITS + "clusters: [ethernet_1g]\nstep_seconds: true", "step_seconds must be a number of at least 0"),
        (DIGITS.replace("steps: 3", "steps: true"), "steps must be a whole number, got True"),
        (DIGITS.replace("steps: 3", "task.alpha: true"), "task.alpha must be a number, got True"),
        (DIGITS.replace("steps: 3", "optimizer.lr: false"), "optimizer.lr must be a number"),
    ],
)
def test_what_no_run_has_is_refused_in_a_line(text: str, words: str, tmp_path: Path) -> None:
    lines = refusals(tmp_path, text + "\n")
    assert len(lines) == 1
    assert words in lines[0]
    assert not (tmp_path / "store").exists()


def test_what_some_run_has_is_a_goal(tmp_path: Path) -> None:
    mixed = "base: {workers: 4, steps: 3}\ngrid: [{method: psgd, task: [digits, quadratic]}]\n"
    assert refusals(tmp_path, mixed + "target: {val_accuracy: 0.9}\n") == []
    assert refusals(tmp_path, QUADRATIC + "target: {distance: 0.1}\n") == []


def test_a_plug_in_that_evaluates_itself_may_measure_anything(tmp_path: Path) -> None:
    same, other = tmp_path / "same_goals.py", tmp_path / "other_goals.py"
    same.write_text(OWN.format("Same", "pass"))
    other.write_text(OWN.format("Other", "def evaluate(self, model):\n        return {'train_loss': 0.0, 'bleu': 1.0}"))
    text = DIGITS.replace("digits", "own_KIND") + "target: {bleu: 0.9}\n"
    assert "measures bleu" in refusals(tmp_path, text.replace("KIND", "same"), str(same))[0]
    assert refusals(tmp_path, text.replace("KIND", "other"), str(other)) == []


def test_the_measurements_named_are_those_of_a_run(tmp_path: Path) -> None:
    """One run of each kind of task that needs no data; and every task that evaluates for itself is in the table."""
    for task in ("digits", "least_squares", "quadratic", "risk"):
        config = compose(["method=psgd", f"task={task}", "workers=2", "steps=1"])
        run_one(config, tmp_path / task)
        rows = [json.loads(line) for line in (tmp_path / task / "metrics.jsonl").read_text().splitlines()]
        assert rows
        sampled = {"epoch"} if task != "digits" else set()  # it has no samples of which an epoch would be made
        assert {*(measured(config) or ())} == rows[-1].keys() - {"step", "lr"} | sampled
    kinds = [kind for kind in vars(tasks).values() if inspect.isclass(kind) and "evaluate" in dir(kind)]
    assert {kind.evaluate for kind in kinds} == {
        each.evaluate
        for each in (
            tasks.Supervised,
            tasks.Language,
            tasks.LeastSquares,
            tasks.Logistic,
            tasks.Quadratic,
            tasks.Risk,
        )
    }


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"metric": "val_acc"}, r"no run has measured it; did you mean val_accuracy\?"),
        ({"baseline": {"method": "psdg"}}, r"did you mean method=psgd\?"),
    ],
)
def test_a_report_says_what_was_meant(asked: dict[str, str], words: str, tmp_path: Path) -> None:
    forge(tmp_path, [Forged("psgd"), Forged("dsgd")])
    with pytest.raises(ValueError, match=words):
        analyse(tmp_path, **asked)  # type: ignore[arg-type]


def test_a_report_warns_of_a_target_that_nothing_measures(tmp_path: Path) -> None:
    store = forge(tmp_path, [Forged("psgd")], target={"val_acc": 0.9})
    (warning,) = analyse(store).warnings
    assert warning == "the target counts to val_acc, which no run measures; did you mean val_accuracy?"
    copy = store / "grids" / "forged.json"
    copy.write_text(copy.read_text().replace("0.9}", "true}", 1))
    with pytest.raises(ValueError, match="a level must be a number, got true or false"):
        read_grid(copy)


def test_a_regression_measures_what_it_says(tmp_path: Path) -> None:
    """Its own measures may be a target; no classes, no accuracy."""
    grid = "base: {task: slope, workers: 2, steps: 3}\ngrid: [{method: psgd}]\n"
    task = Path(__file__).parents[2] / "plugins" / "slope.py"
    assert refusals(tmp_path, grid + "target: {val_distance: 0.2}\n", str(task)) == []
    plain = tmp_path / "plain_slope.py"
    plain.write_text(task.read_text().partition("    def measures")[0].replace("Slope", "PlainSlope"))
    lines = refusals(tmp_path, grid.replace("slope", "plainslope") + "target: {val_accuracy: 0.2}\n", str(plain))
    assert len(lines) == 1
    assert "they measure train_loss, val_loss, minibatch_loss" in lines[0]
