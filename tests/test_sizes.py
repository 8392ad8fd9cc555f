"""How large each room is: a change that makes one larger raises its number here, with the reason in its commit."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = {  # of Python, with docstrings
    "topologies": 2265,
    "compressors": 5554,
    "commeff/adapters": 1301,
    "commeff/cluster": 2196,
    "commeff/communicator": 2254,
    "commeff/core": 2482,
    "commeff/laws": 1028,
    "commeff/methods": 2919,
    "commeff/optimizers": 1248,
    "commeff/sharding": 4383,
    "commeff/planner": 3806,
    "commeff/profiling": 876,
    "commeff/replicas": 847,
    "commeff/training": 2203,
    "commeff/transforms": 4155,
    "experiments/catalogue": 543,
    "experiments/cli": 2236,
    "experiments/config": 2749,
    "experiments/data": 558,
    "experiments/grid": 2819,
    "experiments/measure": 776,
    "experiments/planning": 1980,
    "experiments/python": 515,
    "experiments/report": 6007,
    "experiments/reproduce": 5393,
    "experiments/run": 2607,
    "experiments/sinks": 247,
    "experiments/tasks": 4530,
}
NOT_INSTALLED = {"experiments/studies"}
SMALL = {"commeff": 800, "experiments": 200, "experiments/conf": 10}  # files that are in no room


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
