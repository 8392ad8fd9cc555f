"""Runs that blew up: never done, wherever they are read, and in no headline."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.statistics import Estimate, pareto_front
from commeff.experiments.report.draw import panels, plots
from commeff.experiments.report.draw.figures import look
from commeff.experiments.report.draw.panels import Line, Spot
from commeff.experiments.report.write import table_details
from commeff.experiments.run.progress import Stop
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import RunFolder
from commeff.training.divergence import APART, WORSE
from tests.experiments.report.report_stores import Forged, forge

QUADRATIC = ["task=quadratic", "task.equal_curvature=true", "workers=8", "steps=100"]
LOUD = [*QUADRATIC, "workers=2", "optimizer.lr=2.3"]  # 1 - lr L = -1.3: every step away from the optimum
TORN = [*QUADRATIC, "steps=200", "method=choco", "topology=ring", "compressor=top_k", "method.gamma=1"]


def test_a_loss_out_of_all_proportion_is_no_result(tmp_path: Path) -> None:
    found = run_one(compose(LOUD), tmp_path)
    assert math.isfinite(found["val_loss"])
    assert found["val_loss"] > WORSE * found["start_loss"]
    assert found["state"] == "diverged"
    assert found["reason"].startswith("val_loss ")
    assert RunFolder(tmp_path).state == "diverged"
    assert RunFolder(tmp_path).read("status.json")["reason"] == found["reason"]


def test_workers_that_fall_apart_are_no_result_however_good_their_average(tmp_path: Path) -> None:
    found = run_one(compose(TORN), tmp_path)
    assert found["val_loss"] < found["start_loss"]
    assert found["consensus_distance"] > APART * found["parameter_norm"]
    assert found["state"] == "diverged"
    assert found["reason"].startswith("consensus_distance ")


def test_a_transient_is_forgiven(tmp_path: Path) -> None:
    """A rate too large for twenty steps: far beyond the start, and back."""
    words = ["optimizer=nesterov", "optimizer.lr=2.3", "schedule=multi_step", "schedule.milestones=[20]"]
    words += ["schedule.gamma=0.04", "optimizer.momentum=0", "optimizer.nesterov=false", "evaluate_every=5"]
    found = run_one(compose([*QUADRATIC, "workers=2", "steps=400", *words]), tmp_path)
    losses = [json.loads(line)["val_loss"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert max(losses) > WORSE * found["start_loss"]
    assert found["state"] == "done"
    assert "reason" not in found


@pytest.mark.parametrize("at", [3, 99])
def test_a_resumed_run_gets_the_same_verdict(at: int, tmp_path: Path) -> None:
    stop = Stop()

    def interrupt(step: int, row: dict[str, Any]) -> None:
        stop.requested = step == at

    assert run_one(compose(LOUD), tmp_path / "halted", interrupt, stop)["state"] == "killed"
    found, whole = run_one(compose(LOUD), tmp_path / "halted"), run_one(compose(LOUD), tmp_path / "whole")
    assert found | {"seconds": 0} == whole | {"seconds": 0}


def test_a_grid_and_its_status_say_why(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "base: {task: quadratic, workers: 2, steps: 100}\ngrid: [{optimizer.lr: [9, 0.1]}]\n"
    )
    words = ["grid", str(tmp_path / "g.yaml"), "--store", str(tmp_path / "store"), "-j", "1", "--no-report"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "diverged, val_loss" in result.stderr
    assert "times the" in CliRunner().invoke(app, ["status", str(tmp_path / "store")]).stdout


def older(store: Path, name: str, **end: float) -> None:
    """Let a run that ended as done before there was a rule end like this."""
    path = store / name / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | end))


def test_old_runs_are_judged_by_the_same_rule_and_named_in_no_headline(tmp_path: Path) -> None:
    runs = [Forged(method, seed) for method in ("psgd", "dsgd", "choco") for seed in range(3)]
    store = forge(tmp_path, runs, target={"val_accuracy": 0.5})
    for seed in range(3):  # the cheapest, and the best, if it were believed
        older(store, f"choco-digits-0.1-{seed}", val_loss=1e37, val_accuracy=0.99)
    analysis = analyse(store)
    assert analysis.states == {"done": 6, "diverged": 3}
    (line,) = (line for line in summary.findings(analysis) if "choco" in line)
    assert line == "Named neither best nor cheapest: choco (3 diverged of 3 seeds)."
    (choco,) = (row for row in analysis.rows if row.variant.name.startswith("choco"))
    assert (choco.finals, choco.saving, choco.difference) == ({}, None, None)
    assert choco.reached is not None
    assert (choco.reached.n, choco.reached.of) == (0, 3)
    table = table_details.failure_table(analysis)
    assert table is not None
    assert all(row[3].text.startswith("val_loss 1e+37 at the end") for row in table.rows)
    front = plots.tradeoff(analysis)
    assert front is not None
    assert "choco" not in set(front.data["variant"])


def accuracies(**levels: tuple[float, ...]) -> list[Forged]:
    return [Forged(name, seed, accuracy=level) for name, own in levels.items() for seed, level in enumerate(own)]


def test_what_seeds_do_not_separate_is_said(tmp_path: Path) -> None:
    noisy = accuracies(psgd=(0.90, 0.92, 0.91), dsgd=(0.93, 0.90, 0.92))
    best, cheap, *_ = summary.findings(analyse(forge(tmp_path / "noisy", noisy)))
    assert best.endswith("dsgd and psgd are not separated by 3 seeds.")
    assert cheap.endswith("; 3 seeds do not separate the two and leave room for more than one point.")
    clear = accuracies(psgd=(0.90, 0.91, 0.92), dsgd=(0.895, 0.905, 0.915))
    lines = summary.findings(analyse(forge(tmp_path / "clear", clear)))
    assert not [line for line in lines if "separate" in line or "room" in line]
    single = summary.findings(analyse(forge(tmp_path / "single", accuracies(psgd=(0.9,), dsgd=(0.9,)))))
    assert "are not separated by 1 seed." in single[0]
    assert "1 seed does not separate the two" in single[1]


def test_an_exploding_variant_does_not_squeeze_a_panel() -> None:
    def line(number: int, factor: float, diverged: bool) -> Line:
        steps = pd.Series(range(1, 41))
        values = factor**steps
        means = pd.DataFrame({"step": steps, "x": steps, "y": values, "low": values, "high": values, "n": 3})
        return Line(number, f"v{number}", look(number), means, diverged)

    calm, wild = line(0, 0.9, False), line(1, 1e7, True)
    figure, axes = plt.subplots(2)
    panels.curves(axes[0], [calm], "step", "val_loss")
    panels.curves(axes[1], [calm, wild], "step", "val_loss")
    assert axes[0].get_ylim() == axes[1].get_ylim()
    highest = max(float(max(drawn.get_ydata())) for drawn in axes[1].lines)
    assert axes[1].get_ylim()[1] < highest <= panels.BEYOND
    plt.close(figure)


def test_a_wide_interval_does_not_squeeze_the_tradeoff() -> None:
    spots = [Spot(i, f"v{i}", look(i), 10.0**i, Estimate(1.0 + i / 10, 1e30 * i, 3)) for i in range(3)]
    assert pareto_front([spot.cost for spot in spots], [spot.final.mean for spot in spots], "val_loss") == [0]
    figure, axes = plt.subplots()
    panels.tradeoff(axes, spots, "val_loss", None)
    assert axes.get_ylim()[1] < 2
    plt.close(figure)
