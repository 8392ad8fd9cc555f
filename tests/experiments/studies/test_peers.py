"""Our methods beside other libraries': what is installed is the same, what is not is said."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from commeff.experiments.studies.peers import graphs, report
from commeff.experiments.studies.peers.problem import Compared


@pytest.fixture(scope="module")
def found() -> list[Compared]:
    return report.compared()


def test_every_method_is_the_others(found: list[Compared]) -> None:
    assert {each.verdict for each in found} <= {"the same", "not run"}
    assert sum(each.library.startswith("torch ") for each in found) == 5
    for each in found:
        assert each.difference is not None or "pip install" in each.remark


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graphs.FIXED, "ring", (graphs.topologies.complete, graphs.ring, "RingGraph"))
    verdicts = {each.ours: each.verdict for each in graphs.comparisons()}
    assert verdicts.pop("topologies.ring(n)") == "differs"
    assert set(verdicts.values()) == {"the same"}


def test_the_page_has_them_all(found: list[Compared], tmp_path) -> None:
    report.write(found, tmp_path)
    table = pd.read_csv(tmp_path / "peers.csv")
    assert table["ours"].tolist() == [each.ours for each in found]
    page = (tmp_path / "peers.md").read_text()
    assert page.count("\n| torch ") == 5


def test_the_command_says_them_and_fails_where_one_differs(found, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.argv", ["report", "--out", str(tmp_path)])
    monkeypatch.setattr(report, "compared", lambda: found)
    assert report.main() == 0
    assert len(capsys.readouterr().out.splitlines()) == len(found) + 1
    monkeypatch.setattr(report, "compared", lambda: [replace(found[0], difference=1.0)])
    assert report.main() == 3
    assert capsys.readouterr().out.startswith("differs: psgd and torch")
