"""Our methods beside other libraries': what is installed is the same, what is not is said."""

from __future__ import annotations

import pandas as pd
import pytest

from commeff.experiments.published.peers import graphs
from commeff.experiments.published.peers.__main__ import compared, write
from commeff.experiments.published.peers.problem import Compared


@pytest.fixture(scope="module")
def found() -> list[Compared]:
    return compared()


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
    write(found, tmp_path)
    table = pd.read_csv(tmp_path / "peers.csv")
    assert table["ours"].tolist() == [each.ours for each in found]
    page = (tmp_path / "peers.md").read_text()
    assert page.count("\n| torch ") == 5
