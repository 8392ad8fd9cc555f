"""How large each room is: a change that makes one larger raises its number here, with the reason in its commit."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = {  # of Python, with docstrings
    "topologies": 2277,
    "compressors": 5765,
    "commeff/adapters": 1459,
    "commeff/cluster": 2314,
    "commeff/communicator": 2293,
    "commeff/core": 2347,
    "commeff/laws": 1140,
    "commeff/methods": 2908,
    "commeff/optimizers": 1210,
    "commeff/sharding": 4402,
    "commeff/planner": 4496,
    "commeff/profiling": 991,
    "commeff/replicas": 862,
    "commeff/training": 2443,
    "commeff/transforms": 4024,
    "experiments/catalogue": 695,
    "experiments/cli": 2674,
    "experiments/config": 3133,
    "experiments/data": 546,
    "experiments/exercises": 645,
    "experiments/grid": 2606,
    "experiments/measure": 1037,
    "experiments/planning": 3864,
    "experiments/python": 712,
    "experiments/report": 6668,
    "experiments/reproduce": 5314,
    "experiments/run": 2752,
    "experiments/sinks": 207,
    "experiments/tasks": 4951,
}
NOT_INSTALLED = {"experiments/studies"}
SMALL = {"commeff": 1087, "experiments": 209, "experiments/conf": 1}  # files that are in no room


def lines(files: list[Path]) -> int:
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


@pytest.mark.parametrize("room", LINES)
def test_a_room_is_no_larger_than_it_was(room: str) -> None:
    assert 0 < lines([*(ROOT / room).rglob("*.py")]) <= LINES[room]


@pytest.mark.parametrize("place", SMALL)
def test_files_outside_rooms_are_few(place: str) -> None:
    assert 0 < lines([*(ROOT / place).glob("*.py")]) <= SMALL[place]


def test_every_room_has_a_size() -> None:
    packages = {file.parent for place in ("commeff", "experiments") for file in (ROOT / place).glob("*/__init__.py")}
    rooms = {str(folder.relative_to(ROOT)) for folder in packages if not folder.is_symlink()}
    assert rooms - NOT_INSTALLED - {*SMALL} == {*LINES} - {"topologies", "compressors"}
