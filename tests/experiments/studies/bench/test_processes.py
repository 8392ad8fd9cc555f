"""`commeff bench processes`: blocks that begin together, contestants that do the same work, and the figures."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from torch import nn
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.measure.forks import on_forks, time_in_turns
from commeff.experiments.studies.bench import hosting, processes
from commeff.experiments.studies.bench.processes import compare, contestants, exposed
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import TimedModel
from commeff.experiments.tasks.language import Language

pytestmark = pytest.mark.slow  # of a study, which nobody installs

SMALL = TimedModel("small", lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)), (4, 8))


def test_a_block_takes_as_long_as_at_the_slowest_process():
    def measure(communicator):
        def slow_elsewhere():
            time.sleep(0.03 * dist.get_rank())

        return time_in_turns({"nothing": lambda: None, "slow elsewhere": slow_elsewhere}, rounds=3, calls=2)

    seconds = on_forks(2, 2, measure)
    assert {name: len(rounds) for name, rounds in seconds.items()} == {"nothing": 3, "slow elsewhere": 3}
    assert min(seconds["slow elsewhere"]) >= 0.06  # though rank 0, whose answer this is, did nothing


@pytest.mark.parametrize("wrong", [lambda: os._exit(9), lambda: [][0]])
def test_a_process_that_fails_ends_the_others_and_is_named(wrong):
    def measure(communicator):
        if dist.get_rank() == 1:
            wrong()
        dist.barrier()

    with pytest.raises(RuntimeError, match=r"process \d"):
        on_forks(2, 2, measure)
    assert not multiprocessing.active_children()


def test_what_averages_gradients_exactly_takes_the_steps_of_ddp():
    def losses(communicator):
        return {name: [float(step()) for _ in range(3)] for name, step in contestants(SMALL, 2).items()}

    found = on_forks(2, 2, losses)
    for name in ("DDP, once more", "one all-reduce by hand", "psgd"):
        assert found[name] == pytest.approx(found["DDP"], rel=1e-5), name
    assert found["local"] != pytest.approx(found["DDP"], rel=1e-5)
    assert len({rounds[0] for rounds in found.values()}) == 1  # all begin at the same parameters, on the same batch


def test_what_slows_a_whole_round_does_not_change_the_communication_exposed():
    seconds = {"local": [1.0, 1.1, 0.9], "DDP": [1.5, 1.7, 1.6], "it": [1.2, 1.1, 1.3]}
    slowed = {name: [t * load for t, load in zip(rounds, (1, 5, 2), strict=True)] for name, rounds in seconds.items()}
    assert exposed(slowed, "it") == pytest.approx(exposed(seconds, "it"))


def test_communication_is_outside_every_limit_where_ddp_has_none():
    value = exposed({"local": [1.0], "DDP": [0.9], "it": [0.8]}, "it")
    assert not MeasuredRatio("", "", value, at_most=1e9).good


def test_every_limit_is_checked_on_every_model_and_number_of_processes():
    figures = compare(SMALL, n=2, rounds=1, steps=1)
    limits = sorted(figure.at_most for figure in figures if figure.at_most is not None)
    assert limits == sorted([*processes.LIMITS.values(), *[1.0] * len(processes.LOW_RANK)])


def test_two_processes_take_the_steps_of_one():
    task = Language(4, data=hosting.__file__, layers=1, heads=2, width=8, context=8, batch=2, dtype="float64")
    assert hosting.digits(task, steps=2) > 10
    assert hosting.speed(task, rounds=1, steps=1) > 0


def test_bench_writes_its_figures_and_ends_with_3_when_one_is_outside(monkeypatch, tmp_path: Path):
    figures = [MeasuredRatio("it", "good", 1.0, at_most=2.0), MeasuredRatio("it", "bad", 3.0, at_most=2.0)]
    monkeypatch.setattr(processes, "run", lambda: figures)
    result = CliRunner().invoke(app, ["bench", "processes", "--csv", str(tmp_path / "figures.csv")])
    assert result.exit_code == 3
    assert [line.split()[-1] for line in result.stdout.splitlines()] == ["2", "OUTSIDE"]
    assert len((tmp_path / "figures.csv").read_text().splitlines()) == 3


def test_a_process_that_dies_is_one_line_on_stderr_and_what_was_measured_is_kept(monkeypatch, tmp_path: Path):
    def run():
        yield MeasuredRatio("it", "good", 1.0)
        raise RuntimeError("process 1 died with exit code -9")

    monkeypatch.setattr(processes, "run", run)
    result = CliRunner().invoke(app, ["bench", "processes", "--csv", str(tmp_path / "figures.csv")])
    assert result.exit_code == 1
    assert result.stderr == "commeff: process 1 died with exit code -9\n"
    assert len((tmp_path / "figures.csv").read_text().splitlines()) == 2
