"""What `commeff plan --run` says of a run's memory at its peak, against what the operating system measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.compressors import Layout
from commeff.experiments.cli import app
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.planning.peak import most_bytes
from commeff.profiling import profile
from tests import owned

RUN = """
import resource, sys
from commeff.experiments.config.compose import compose
from commeff.experiments.run.runner import run_one
run_one(compose(sys.argv[2:]), sys.argv[1])
print(1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
LARGE = "task=quadratic task.equal_curvature=true"
DIGITS = "task=digits task.hidden=6500 workers=32 steps=4"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in the units of Linux")
@pytest.mark.parametrize(
    "words",
    [
        f"{LARGE} task.dimension=500000 workers=16 steps=2",
        f"{LARGE} task.dimension=100000 workers=128 steps=4 task.dtype=float32 method=local_sgd",
        f"{LARGE} task.dimension=1000000 workers=16 steps=4 task.sigma=1 optimizer=momentum",
        DIGITS,
        f"{DIGITS} method=mem_sgd",
        f"{DIGITS} method=dsgd",
        f"{DIGITS} method=choco",
    ],
)
def test_the_peak_is_that_of_the_process(tmp_path: Path, words: str) -> None:
    plan = [sys.executable, "-m", "commeff", "plan", "--run", "--json", *words.split()]
    told = json.loads(owned.run(plan, check=True).stdout)
    run = [sys.executable, "-c", RUN, str(tmp_path / "run"), *words.split()]
    measured = int(owned.run(run, check=True).stdout.split()[-1])
    assert told["predicted"]["held_bytes"] < told["predicted"]["peak_bytes"] == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(("every", "least"), [(0, 3), (1, 4)])
def test_a_run_copies_its_rows_once_for_a_checkpoint(every: int, least: int) -> None:
    config = compose(["task=quadratic", "task.dimension=131072", "workers=16", "steps=2", f"checkpoint_every={every}"])
    parts = build(config)
    found = profile(parts.strategy, Layout.flat(131072), 16)
    rows = 16 * 131072 * 8
    most = most_bytes(config, parts.task, parts.strategy, found, held=sys.maxsize)
    assert least * rows < most < (least + 0.5) * rows  # parameters, gradients and the copy; what a step makes beside it


@pytest.mark.parametrize("option", [["--search"], ["--largest"], ["--method", "dp"], ["--top", "3"]])
def test_a_run_is_no_search(option: list[str]) -> None:
    result = CliRunner().invoke(app, ["plan", "--run", *option])
    assert result.exit_code == 2
    assert "--run must be given without options of other questions" in result.output
