"""What a report says beside its numbers: what is ranked, over how many seeds, whose seconds, and where it ran."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.draw import plots
from commeff.experiments.report.write import table_details, table_main
from tests.experiments.report.report_stores import Forged, forge

ALONE = {"world_size": 1, "restarts": 0}


def notes(analysis: Analysis) -> str:
    return " ".join(table_main.main_tables(analysis)[0].notes)


def member(rank: int, host: str, pid: int) -> dict[str, object]:
    return {"rank": rank, "host": host, "pid": pid, "cores": 2}


def test_one_value_of_what_is_tuned_is_ranked_for_each_variant(tmp_path: Path) -> None:
    """The mean over seeds ranks: the luckiest single run of psgd, and its other rate, are in no ranking."""
    runs = [
        Forged(method, seed, lr, accuracy=level + (0.15 if (method, lr, seed) == ("psgd", "0.2", 0) else 0.0))
        for method, lr, level in (("psgd", "0.1", 0.8), ("psgd", "0.2", 0.7), ("dsgd", "0.1", 0.82))
        for seed in (0, 1)
    ]
    analysis = analyse(forge(tmp_path, runs))
    assert [(row.variant.name, row.variant.chosen.values["optimizer.lr"]) for row in analysis.rows] == [
        ("psgd", "0.1"),
        ("dsgd", "0.1"),
    ]
    (champion,) = analysis.champions.values()
    assert champion.name == "dsgd"
    assert "Of up to 2 values tried of optimizer.lr a line has the one with the best mean" in notes(analysis)
    assert "over all 2 variants" in notes(analysis)
    assert summary.findings(analysis)[0].startswith("Best mean validation accuracy of 2 variants: dsgd")


def test_methods_that_have_more_chances_are_named(tmp_path: Path) -> None:
    runs = [Forged(method, seed, lr) for method in ("psgd", "dsgd") for lr in ("0.1", "0.2") for seed in (0, 1)]
    forge(tmp_path, [run for run in runs if (run.method, run.lr) != ("psgd", "0.2")], select=None)
    analysis = analyse(tmp_path)
    assert len(analysis.rows) == 3, "nobody asked for a choice, so every rate is a line"
    assert "(dsgd 2), and so more chances to be the best" in notes(analysis)
    assert "values tried" not in notes(analysis)


def test_runs_on_one_machine_ran_in_one_place_whatever_their_process_ids(tmp_path: Path) -> None:
    runs = [
        Forged("psgd", seed, environment={**ALONE, "restarts": seed, "members": [member(0, "here", 100 + seed)]})
        for seed in (0, 1)
    ]
    assert table_details.environment_table(analyse(forge(tmp_path, runs))) is None


def test_hosts_that_differ_are_shown(tmp_path: Path) -> None:
    two = [member(0, "a", 1), member(1, "a", 2), member(2, "b", 3)]
    runs = [
        Forged("psgd", 0, environment={"world_size": 3, "members": two}),
        Forged("psgd", 1, environment={"world_size": 3, "members": [member(rank, "a", rank) for rank in range(3)]}),
    ]
    table = table_details.environment_table(analyse(forge(tmp_path, runs)))
    assert table is not None
    assert [[item.text for item in row] for row in table.rows] == [["hosts", "a (2), b (1)", "1"], ["hosts", "–", "1"]]


@pytest.mark.parametrize(("size", "workers", "clock"), [(1, "4 simulated", "simulated"), (2, "4 on 2", "processes")])
def test_seconds_are_of_those_who_ran(size: int, workers: str, clock: str, tmp_path: Path) -> None:
    runs = [Forged("psgd", seed, environment={"world_size": size}) for seed in (0, 1)]
    analysis = analyse(forge(tmp_path, runs))
    assert dict(summary.facts(analysis))["workers"].startswith(workers)
    curves = plots.convergence(analysis)
    assert curves is not None
    (said,) = re.findall(r"Seconds are measured[^.]*\.", notes(analysis))
    assert clock in said
    assert (said in curves.caption) == (size > 1), "seconds of workers that take turns are not drawn"
    assert any(panel.name.startswith("seconds-") for panel in curves.panels) == (size > 1)


def test_every_figure_says_over_how_many_seeds(tmp_path: Path) -> None:
    runs = [Forged("psgd", seed) for seed in range(3)] + [Forged("dsgd", 0)]
    captions = {figure.name: figure.caption for figure in plots.figures(analyse(forge(tmp_path, runs)))}
    assert captions.keys() == {"convergence", "consensus", "pareto"}
    assert all("n = 1 to 3" in caption for caption in captions.values()), captions


def test_a_variant_is_not_compared_with_a_baseline_on_another_task(tmp_path: Path) -> None:
    runs = [Forged(method, seed, accuracy=0.9) for method in ("psgd", "dsgd") for seed in (0, 1)]
    for run in runs:
        run.write(tmp_path)
        path = tmp_path / run.name / "config.yaml"
        if run.method == "dsgd":
            config = yaml.safe_load(path.read_text())
            config["task"]["_target_"] = "commeff.experiments.tasks.CIFAR10"
            path.write_text(yaml.safe_dump(config))
    analysis = analyse(tmp_path)
    assert [row.difference for row in analysis.rows] == [None, None]
    assert [row.saving for row in analysis.rows if row.variant.has({"method": "dsgd"})] == [None]
    assert "numbers compare within one only" in notes(analysis)


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="a store must be a folder that holds one folder a run"):
        analyse(tmp_path / "file")
