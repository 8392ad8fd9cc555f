"""A run walks through the files of what it does: what is off, or nobody asked for, is not on its way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walks import WALKS, grid, key, step

ROOT = Path(__file__).parents[1]
LEAST = 40  # lines of a file on a walk: what is smaller is a part of its neighbour
NOWHERE = {
    "commeff/communicator/mixing.py",
    "commeff/communicator/wire/shared_memory.py",
    "commeff/core/presence.py",
    "commeff/training/shared_checkpoints.py",
    "commeff/training/stop_vote.py",
    "commeff/transforms/blocks.py",
    "commeff/transforms/clipping.py",
    "commeff/sharding/pieces.py",
    "commeff/transforms/timing.py",
    "experiments/config/loading.py",
    "experiments/config/meshes.py",
    "experiments/config/plugins.py",
    "experiments/run/crew.py",
    "experiments/run/local.py",
    "experiments/run/origins.py",
    "experiments/sinks/rows.py",
}
SMALL = {  # whose neighbours are other walks'
    "experiments/data/texts.py",
    "experiments/reproduce/tables/ef21_rate.py",
    "experiments/tasks/settled.py",
    "experiments/tasks/shapes.py",
}


def check(found: set[str], off: set[str], on: set[str], most: int) -> None:
    assert len(found) <= most, sorted(found)
    assert all((ROOT / file).is_file() for file in off)
    assert on <= found
    assert not off & found
    assert not [file for file in found - SMALL if len((ROOT / file).read_text().splitlines()) < LEAST]


@pytest.mark.parametrize(("method", "mixes", "most"), [("psgd", False, 13), ("mem_sgd", False, 19), ("dsgd", True, 13)])
def test_a_step_plans_a_mixing_only_where_something_is_mixed(
    method: str, mixes: bool, most: int, tmp_path: Path
) -> None:
    own, found = {"commeff/communicator/mixing.py"}, {*step(method, tmp_path)}
    check(found, NOWHERE - own if mixes else NOWHERE, own if mixes else set(), most)


def test_a_plain_run_passes_by_what_it_does_not_use(tmp_path: Path) -> None:
    check({*key(tmp_path)}, NOWHERE, {"compressors/topk.py", "commeff/training/trainer.py"}, 68)


def test_a_grid_that_is_only_listed_is_tried_and_passes_by_what_it_does_not_use(tmp_path: Path) -> None:
    check({*grid(tmp_path)}, NOWHERE, {"experiments/grid/plan/expand.py", "experiments/grid/plan/trial.py"}, 79)


@pytest.mark.parametrize(
    ("walk", "off", "on", "most"),
    [
        ("plan", {*NOWHERE, "commeff/planner/worker_profile.py"}, {"commeff/planner/predict.py"}, 29),
        (
            "plan_choco",
            NOWHERE - {"commeff/communicator/mixing.py", "commeff/transforms/blocks.py"},
            {"commeff/planner/worker_profile.py"},
            80,
        ),
        ("reproduce", NOWHERE | {"experiments/run/runner.py"}, {"experiments/reproduce/judging.py"}, 73),
        ("report", NOWHERE, {"experiments/report/write/table.py"}, 42),
        ("language", {"commeff/training/trainer.py"}, {"commeff/sharding/zero.py", "commeff/sharding/pipeline.py"}, 97),
    ],
)
def test_what_is_foreseen_passes_by_what_trains(
    walk: str, off: set[str], on: set[str], most: int, tmp_path: Path
) -> None:
    check({*WALKS[walk](tmp_path)}, off, on, most)
