"""Published figures on networks: SimGrid's, and the lecture's gossip table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from commeff.experiments.published.networks import contention, gossip
from commeff.experiments.published.networks import report as networks
from tests.counting import calls


@pytest.mark.parametrize("figure", contention.FIGURES, ids=lambda f: f"{f.hosts}-{f.case}-{f.network}")
def test_simgrid_is_met_within_one_percent_at_little_cost(figure: contention.SimulatedFigure) -> None:
    ours, count = calls(lambda: figure.ours)
    assert count < 200_000  # a fifth of a second
    assert ours == pytest.approx(figure.simulated, rel=0.01)


def test_another_tree_does_not_give_the_figures() -> None:
    """The leaf of 16 hosts and 4 uplinks is read off the figures, so other 4:1 trees must miss some of them."""
    simulated = [figure.simulated for figure in contention.FIGURES if "distance" in figure.case]
    for hosts, uplinks in ((8, 2), (32, 8), (16, 8), (64, 16)):
        tree = contention.FatTree((hosts,), (uplinks,), contention.HOP)
        ours = [1e3 * seconds for seconds in contention.gossip_rounds(256, tree)]
        assert ours != pytest.approx(simulated, rel=0.01)


def test_two_constants_give_nine_of_ten_gossip_figures_within_fifteen_percent() -> None:
    constants = gossip.fit()
    errors = [gossip.modelled(row, constants) / row.value - 1 for row in gossip.PRINTED]
    assert len(errors) == 10
    assert sum(abs(error) <= 0.15 for error in errors) >= 9
    assert 0 < constants.bandwidth < 25e9 / 8
    assert 0 < gossip.share_of_peak(constants) < 1


def test_the_fit_finds_constants_that_made_the_figures() -> None:
    truth = gossip.FittedConstants(image=4e-3, bandwidth=1.5e9)
    made = [replace(row, value=gossip.modelled(row, truth)) for row in gossip.PRINTED]
    found = gossip.fit(rows=made)
    assert (found.image, found.bandwidth) == pytest.approx((truth.image, truth.bandwidth), rel=1e-4)


def test_bert_hours_have_at_most_the_ratio_of_their_communication() -> None:
    """So the printed pair, whose ratio is 1.94 on eight servers, is out of reach."""
    reduce, one_peer = gossip.BERT
    constants = gossip.fit()
    for recipe in gossip.PRETRAININGS:
        ratio = gossip.bert(reduce, constants, recipe) / gossip.bert(one_peer, constants, recipe)
        assert 1 < ratio < 2 * 7 / 8 < reduce.value / one_peer.value


def test_the_command_writes_tables_that_say_where_they_come_from(tmp_path: Path) -> None:
    written = networks.write(tmp_path)
    assert [path.name for path in written] == ["gossip.csv", "gossip.md", "simgrid.csv", "simgrid.md"]
    table = pd.read_csv(tmp_path / "gossip.csv")
    assert (table["status"] == "fitted").sum() == 10
    assert set(table["made by"]) == {networks.COMMAND}
    assert "within 15 %" in (tmp_path / "gossip.md").read_text()
    assert len(pd.read_csv(tmp_path / "simgrid.csv")) == len(contention.FIGURES)
