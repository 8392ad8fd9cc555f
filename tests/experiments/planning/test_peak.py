"""What `commeff plan --run` says of a run's memory at its peak, against what the operating system measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from typer.testing import CliRunner

from commeff.compressors import Layout
from commeff.experiments.cli import app
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.planning import forecast as forecasting
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.planning.peak import most_bytes
from commeff.profiling import profile
from commeff.sharding.recompute import RECOMPUTATIONS
from tests import owned

RUN = """
import resource, sys
from commeff.experiments.config.compose import compose
from commeff.experiments.run.runner import run_one
config = compose(sys.argv[2:])
run_one(config, sys.argv[1])
who = resource.RUSAGE_SELF if config["nproc"] == 1 else resource.RUSAGE_CHILDREN
print(1024 * resource.getrusage(who).ru_maxrss)
"""
LARGE = "task=quadratic task.equal_curvature=true"
DIGITS = "task=digits task.hidden=6500 workers=32 steps=4"
LLAMA = "task=language task.data=FOLDER/text model=llama_15m task.context=64 task.batch=4 task.probe=512 steps=2"


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
        f"{LLAMA} mesh.tensor=2",
        f"{LLAMA} mesh.shard=2 zero=2 optimizer=adamw",
        f"{LLAMA} mesh.shard=2 zero=3",
        f"{LLAMA} mesh.pipeline=2 micro_batches=4",
    ],
)
def test_the_peak_is_that_of_the_process(tmp_path: Path, words: str) -> None:
    (tmp_path / "text").write_bytes(bytes(range(256)) * 4000)
    words = words.replace("FOLDER", str(tmp_path))
    plan = [sys.executable, "-m", "commeff", "plan", "--run", "--json", *words.split()]
    told = json.loads(owned.run(plan, check=True).stdout)
    run = [sys.executable, "-c", RUN, str(tmp_path / "run"), *words.split()]
    measured = int(owned.run(run, check=True).stdout.split()[-1])
    assert told["predicted"]["held_bytes"] < told["predicted"]["peak_bytes"] == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(("every", "least"), [(0, 3), (1, 4)])
def test_a_run_copies_its_rows_once_for_a_checkpoint(every: int, least: int) -> None:
    config = compose(["task=quadratic", "task.dimension=262144", "workers=16", "steps=2", f"checkpoint_every={every}"])
    parts = build(config)
    found = profile(parts.strategy, Layout.flat(262144), 16)
    rows = 16 * 262144 * 8
    most = most_bytes(config, parts.task, parts.strategy, found, held=sys.maxsize)
    assert least * rows < most < (least + 0.5) * rows  # parameters, gradients and the copy; what a step makes beside it


def test_a_rank_of_a_mesh_has_its_share_at_its_peak_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam's two moments of d float32 are dealt to two ranks: held between steps, and so at the peak."""
    monkeypatch.setattr(forecasting, "resident", lambda: (0, 0))
    words = "task=digits task.hidden=4096 task.batch=4 steps=2 optimizer=adamw mesh.shard=2"
    zero_0, zero_1 = (forecast(compose([*words.split(), f"zero={stage}"])) for stage in (0, 1))
    saved = zero_0.states - zero_1.states
    assert zero_0.peak is not None
    assert zero_1.peak is not None
    assert zero_0.peak - zero_1.peak >= saved > 0
    assert zero_1.peak > zero_1.states


def small_peak(folder: Path, words: str) -> int:
    (folder / "text").write_bytes(bytes(range(256)) * 20)
    small = f"task=language task.data={folder}/text model=llama_1m task.context=64 task.batch=32 task.probe=2 steps=2"
    told = forecast(compose([*small.split(), *words.split()]))
    assert told.peak is not None
    assert told.peak > told.states
    return told.peak


@pytest.mark.skipif(
    torch.__version__.startswith("2.12.") and torch.version.cuda is not None and not torch.cuda.is_available(),
    reason="stages without memory ask for a GPU's random state in torch 2.12 built for CUDA",
)
def test_schedules_and_shards_hold_what_they_must(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All micro-batches are in flight with GPipe, at most as many as stages with 1F1B; shards are parts of a model."""
    monkeypatch.setattr(forecasting, "resident", lambda: (0, 0))
    staged = "mesh.pipeline=2 micro_batches=8 schedule="
    flying = {kind: small_peak(tmp_path, f"{staged}{kind}") for kind in ("gpipe", "1f1b", "interleaved")}
    assert flying["gpipe"] > 2 * flying["1f1b"]
    assert flying["1f1b"] < flying["interleaved"] < flying["gpipe"]
    whole, parts = (small_peak(tmp_path, f"mesh.shard=2 micro_batches={n}") for n in (1, 8))
    assert parts < whole
    stages = [small_peak(tmp_path, f"mesh.shard=4 zero={zero} micro_batches=2 optimizer=adamw") for zero in range(4)]
    assert stages[:3] == sorted(stages[:3], reverse=True)
    assert stages[3] == pytest.approx(stages[1], rel=0.03)  # all layers are gathered until the last micro-batch


def test_no_stages_are_played_where_processes_are_joined(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(bytes(range(256)) * 20)
    small = f"task=language task.data={tmp_path}/text model=llama_40k task.context=16 task.batch=4 task.probe=2 steps=2"
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        assert forecast(compose([*small.split(), "mesh.pipeline=2", "micro_batches=2"])).peak is None
        assert dist.get_backend() == "gloo"
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("kind", RECOMPUTATIONS)
def test_runs_are_foreseen_with_each_recomputation(kind: str, tmp_path: Path) -> None:
    assert small_peak(tmp_path, f"mesh.tensor=2 recompute={kind}") <= small_peak(tmp_path, "mesh.tensor=2")


@pytest.mark.parametrize("option", [["--search"], ["--largest"], ["--method", "dp"], ["--top", "3"]])
def test_a_run_is_no_search(option: list[str]) -> None:
    result = CliRunner().invoke(app, ["plan", "--run", *option])
    assert result.exit_code == 2
    assert "--run must be given without options of other questions" in result.output
