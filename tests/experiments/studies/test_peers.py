"""Our methods beside other libraries': what is installed is the same, what is not is said."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from commeff.experiments.reproduce import command
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


def test_reproduce_says_them_and_fails_where_one_differs(found: list[Compared], tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(report, "compared", lambda: found)
    done = command.reproduce(command.Arguments("peers", out=tmp_path))
    assert (done.exit_code, len(done.lines)) == (0, len(found))
    monkeypatch.setattr(report, "compared", lambda: [replace(found[0], difference=1.0)])
    done = command.reproduce(command.Arguments("peers", out=tmp_path))
    assert done.exit_code == 3
    assert done.lines[0].startswith("differs: psgd and torch")


def test_peers_take_no_settings() -> None:
    with pytest.raises(ValueError, match="peers has no settings, no plug-ins and one scale, full, got --scale smoke"):
        command.Arguments("peers", "smoke").check()
    with pytest.raises(ValueError, match=r"full, got --plugin mine\.py; leave it out"):
        command.Arguments("peers", plugins=["mine.py"]).check()
    assert command.tables()[-1]["name"] == "peers"
