"""What a table that trains nothing has measured is kept in its store, and measured again where that is damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.local.scheduler import Limits
from commeff.experiments.reproduce.measures import KINDS, measured
from commeff.experiments.reproduce.runs import TableRun
from commeff.experiments.reproduce.table import read_table
from tests.experiments.reproduce.reproduced import write_table

TABLE = {
    "paper": "nobody",
    "measure": "consensus",
    "base": {"task": "quadratic", "workers": 4},
    "grid": [{"name": "a", "method": "dsgd", "topology": "ring"}],
    "show": ["rho"],
    "claims": ["final('rho')(r.a) < 2"],
}
SCALES = ("smoke", "reduced", "full")
NUMBERS = {"rho": 0.5, "up": math.inf, "down": -math.inf, "none": math.nan}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configurations that were measured."""
    found = list[Any]()

    def measure(config: Any) -> dict[str, float]:
        found.append(config)
        return NUMBERS

    monkeypatch.setitem(KINDS, "consensus", measure)
    return found


def results(folder: Path) -> tuple[dict[str, float], list[dict[str, str]]]:
    found = measured(TableRun(read_table(Path(write_table(folder, TABLE))), folder / "store", Limits(jobs=1)))
    (case,) = found.cases
    return dict(next(iter(case.runs.values())).finals), [*found.machines]


def test_numbers_without_end_are_read_as_they_were_measured(calls: list[Any], tmp_path: Path) -> None:
    for _ in range(2):
        found, _ = results(tmp_path)
        assert repr({name: found[name] for name in NUMBERS}) == repr(NUMBERS)
    assert len(calls) == len({json.dumps(config) for config in calls})
    (file, *_) = (tmp_path / "store" / "measured").iterdir()
    assert "NaN" not in file.read_text()
    assert "Infinity" not in file.read_text()


@pytest.mark.parametrize(
    ("topology", "drawn"),
    [
        ({"topology": "ring"}, False),
        ({}, False),
        ({"topology": "lazy", "topology.topology": "torus"}, False),
        ({"topology": "base_graph", "topology.k": [1, 2]}, False),
        ({"topology": "erdos_renyi"}, True),
        ({"topology": ["ring", "erdos_renyi"]}, True),
        ({"topology": "lazy", "topology.topology": "erdos_renyi"}, True),
    ],
)
def test_a_graph_that_is_drawn_is_drawn_three_times_before_anything_is_said_of_it(
    topology: dict[str, Any], drawn: bool, tmp_path: Path
) -> None:
    content = TABLE | {"grid": [{"name": "a", "method": "dsgd", **topology}]}
    table = read_table(Path(write_table(tmp_path, content)))
    assert (table.exact, table.seeds) == (not drawn, (0, 1, 2) if drawn else (0,))
    write_table(tmp_path, content | {"seeds": [7]})
    if drawn:
        with pytest.raises(ConfigError, match="at least 3 seeds are needed at scale full"):
            read_table(tmp_path / "mine.py")
    else:
        assert read_table(tmp_path / "mine.py").seeds == (7,)


def test_what_a_scale_runs_decides_whether_a_graph_is_drawn(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    mixed = {"name": "a", "method": "dsgd", "topology": ["ring", "erdos_renyi"]}
    for measure in ("consensus", "modelled"):
        content: dict[str, Any] = TABLE | {"measure": measure, "cluster": "ethernet_1g"}
        changed = {"smoke": {"topology": "erdos_renyi"}, "reduced": {"topology": "torus"}}
        write_table(tmp_path, content | {"grid": [{"name": "a", "method": "dsgd"}], "scales": changed})
        assert [read_table(file, scale).exact for scale in SCALES] == [False, True, True]
        keep = {"keep": {"topology": "ring"}}
        write_table(tmp_path, content | {"grid": [mixed], "scales": {"smoke": keep, "reduced": keep}})
        tables = [read_table(file, scale) for scale in SCALES]
        assert [(table.exact, len(table.seeds)) for table in tables] == [(True, 1), (True, 1), (False, 3)]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content | {"numbers": 5},
        lambda content: content | {"numbers": {}},
        lambda content: content | {"numbers": {"rho": None}},
        lambda content: content | {"numbers": {"rho": "half"}},
        lambda content: content | {"numbers": {"rho": [1]}},
        lambda content: content | {"machine": 5},
        lambda content: content | {"machine": {}},
        lambda content: {"numbers": NUMBERS},
        lambda content: [],
    ],
)
def test_what_is_damaged_is_measured_again(damage: Callable[[Any], Any], calls: list[Any], tmp_path: Path) -> None:
    before = results(tmp_path)
    for file in (tmp_path / "store" / "measured").iterdir():
        file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    count = len(calls)
    assert repr(results(tmp_path)) == repr(before)
    assert len(calls) == 2 * count
