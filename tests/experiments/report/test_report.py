"""The report of a store: what is chosen and compared, at whatever stage the runs are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import Analysis, analyse
from commeff.experiments.report.data.commands import settings_of
from commeff.experiments.report.data.grids import derive
from commeff.experiments.report.data.records import read_store
from commeff.experiments.report.draw.networks import networks
from commeff.experiments.report.write import table_details, table_main
from tests.experiments.report.report_stores import ENVIRONMENT, STEPS, WIRE, Forged, forge, half_finished


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analyse(forge(tmp_path_factory.mktemp("half"), half_finished(), target={"val_accuracy": 0.85}))


def texts(analysis: Analysis) -> dict[str, list[str]]:
    """The main table by variant."""
    return {row[0].text: [item.plain for item in row] for row in table_main.main_tables(analysis)[0].rows}


def test_rates_are_chosen_by_validation_never_by_test(tmp_path: Path) -> None:
    runs = [
        Forged("psgd", seed, lr, accuracy=accuracy, test=1 - accuracy)
        for lr, accuracy in (("0.1", 0.8), ("0.2", 0.9), ("0.4", 0.7))
        for seed in (0, 1)
    ]
    forge(tmp_path, runs)
    (variant,) = analyse(tmp_path).variants
    assert variant.chosen.values == {"optimizer.lr": "0.2"}
    assert variant.finals("test_accuracy") == pytest.approx({0: 0.1, 1: 0.1})
    (tmp_path / "grids" / "forged.json").unlink()  # nobody says what to choose by any more
    (variant,) = analyse(tmp_path, metric="test_accuracy").variants
    assert variant.chosen.values == {"optimizer.lr": "0.2"}


def test_rates_are_chosen_by_steps_to_the_target_where_all_seeds_reach_it(tmp_path: Path) -> None:
    ends = {"0.1": (0.6, 0.6, 0.6), "0.2": (0.95, 0.95, 0.5), "0.4": (0.7, 0.7, 0.7)}
    runs = [Forged("psgd", seed, lr, accuracy=end) for lr, each in ends.items() for seed, end in enumerate(each)]
    for by, rate in (("val_accuracy", "0.2"), ("steps_to_target", "0.4")):
        select = {"over": ["optimizer.lr"], "by": by}
        (variant,) = analyse(forge(tmp_path / by, runs, target={"val_accuracy": 0.55}, select=select)).variants
        assert variant.chosen.values == {"optimizer.lr": rate}
    steps = variant.finals("steps_to_target")
    assert list(steps.values()) == pytest.approx([40 * 0.55 / 0.7] * 3)


def test_a_rate_with_missing_seeds_is_chosen_only_if_all_have_some(tmp_path: Path) -> None:
    lucky = [Forged("psgd", 0, "0.2", accuracy=0.99), Forged("psgd", 1, "0.2", "diverged", accuracy=0.1)]
    whole = [Forged("psgd", seed, "0.1", accuracy=0.9) for seed in (0, 1)]
    (variant,) = analyse(forge(tmp_path / "a", lucky + whole)).variants
    assert variant.chosen.values == {"optimizer.lr": "0.1"}
    broken = [whole[0], replace(whole[1], state="failed")]
    (variant,) = analyse(forge(tmp_path / "b", lucky + broken)).variants
    assert variant.chosen.values == {"optimizer.lr": "0.2"}
    assert not variant.chosen.complete


def test_a_best_rate_at_the_edge_of_the_sweep_is_warned_of(tmp_path: Path) -> None:
    def warnings(best: str) -> list[str]:
        runs = [Forged("psgd", 0, lr, accuracy=0.9 if lr == best else 0.8) for lr in ("0.1", "0.2", "0.4")]
        return analyse(forge(tmp_path / best, runs)).warnings

    assert warnings("0.2") == []
    assert "0.1 is the smallest tried" in warnings("0.1")[0]
    assert "0.4 is the largest tried" in warnings("0.4")[0]


def test_a_target_that_all_have_at_their_first_evaluation_is_warned_of(tmp_path: Path) -> None:
    runs = [Forged("psgd", seed, "0.1", accuracy=0.9) for seed in (0, 1)]
    easy, hard = (
        analyse(forge(tmp_path / str(level), runs, target={"val_accuracy": level})).warnings for level in (0.01, 0.8)
    )
    assert easy == ["the first evaluation of each run is at the target: choose another, or a lower evaluate_every="]
    assert hard == []


def test_differences_are_paired_by_seed_and_bytes_compared_with_the_baseline(half: Analysis) -> None:
    rows = {row.variant.name: row for row in half.rows}
    dsgd = rows["dsgd"]
    assert half.baselines == (rows["psgd"].variant,)
    assert rows["psgd"].difference is None
    assert dsgd.difference is not None
    assert dsgd.difference.n == 3
    assert (dsgd.difference.mean, dsgd.difference.half) == pytest.approx((-0.02, 0.0), abs=1e-12)
    assert dsgd.saving == pytest.approx(WIRE["psgd"] / WIRE["dsgd"])


def test_dense_numbers_of_16_bits_are_counted_and_claim_no_accuracy(half: Analysis) -> None:
    table = table_main.main_tables(half)[0]
    last = dict(zip((column.heading for column in table.columns), table.rows[-1], strict=True))
    assert last["wire"].value == STEPS[-1] * WIRE["psgd"] / 2
    assert last["saving"].value == pytest.approx(2.0)
    assert last["val. accuracy"].value is None
    assert any("Counted, not run" in note for note in table.notes)


def test_what_travels_inside_a_worker_has_columns_of_its_own(half: Analysis, tmp_path: Path) -> None:
    assert not {"tensor", "shard"} & {
        column.heading for table in table_main.main_tables(half) for column in table.columns
    }
    store = forge(tmp_path / "inside", [Forged("psgd", seed) for seed in range(2)])
    for path in store.glob("*/summary.json"):
        inside = {"tensor_bytes": 5e6, "tensor_exposed_seconds": 0.25}
        path.write_text(json.dumps(json.loads(path.read_text()) | inside))
    columns = {
        (column.heading, column.under): item
        for table in table_main.main_tables(analyse(store))
        for column, item in zip(table.columns, table.rows[0], strict=True)
    }
    assert columns["tensor", "MB, counted"].value == 5e6
    assert columns["tensor exposed", "s, measured"].value == 0.25


def test_half_a_run_has_no_final_number(half: Analysis) -> None:
    for run in half.runs:
        assert (run.record.final("val_accuracy") == run.record.final("val_accuracy")) == (run.record.state == "done")


def test_the_target_is_reached_on_the_line_between_two_evaluations(half: Analysis) -> None:
    reached = {row.variant.name: row.reached for row in half.rows}
    psgd, choco = reached["psgd"], reached["choco"]
    assert psgd is not None
    assert choco is not None
    steps = sum(STEPS[-1] * 0.85 / end for end in (0.92, 0.93, 0.94)) / 3
    assert (psgd.n, psgd.of, psgd.costs["step"].mean) == (3, 3, pytest.approx(steps))
    assert psgd.costs["wire_bytes"].mean == pytest.approx(steps * WIRE["psgd"])
    assert (choco.n, dict(choco.costs)) == (0, {})


def test_a_rate_with_which_a_seed_misses_the_target_has_no_mean_of_the_steps_to_it(tmp_path: Path) -> None:
    runs = [
        Forged("psgd", seed, lr, accuracy=0.5 if (lr, seed) == ("0.2", 1) else 0.9)
        for lr in ("0.1", "0.2")
        for seed in (0, 1)
    ]
    select = {"over": ["optimizer.lr"], "by": "steps_to_target"}
    table = table_details.sweep_table(analyse(forge(tmp_path, runs, target={"val_accuracy": 0.85}, select=select)))
    assert table is not None
    (_, _, _, mean, chosen), (_, _, _, missed, other) = table.rows
    assert (mean.value, chosen.text) == (pytest.approx(STEPS[-1] * 0.85 / 0.9), "chosen")
    assert (missed.text, missed.value, other.text) == ("1 of 2 reached", None, "")


def test_without_a_target_it_is_what_the_baseline_reaches_less_a_point(tmp_path: Path) -> None:
    analysis = analyse(forge(tmp_path, [Forged("psgd", 0, accuracy=0.9), Forged("dsgd", 0, accuracy=0.95)]))
    assert analysis.target is not None
    assert analysis.target.level == pytest.approx(0.89)
    assert "psgd" in analysis.target.origin
    by_loss = analyse(tmp_path, metric="val_loss").target
    assert by_loss is not None
    assert by_loss.level == pytest.approx(3.0 / STEPS[-1] * 1.01)


def test_runs_that_did_not_end_well_are_listed_with_their_last_words_and_command(half: Analysis) -> None:
    table = table_details.failure_table(half)
    assert table is not None
    lines = {row[0].text: [item.text for item in row] for row in table.rows}
    bad = {run.cell.run: run.record.state for run in half.runs if run.record.state not in ("done", "running", "queued")}
    assert {name: line[1] for name, line in lines.items()} == bad
    failed = next(line for line in lines.values() if line[1] == "failed")
    assert failed[3] == "ValueError: no such <graph>"
    assert failed[4] == f"commeff train method=dsgd optimizer.lr=0.1 seed=1 --store {half.store}"


def test_an_unfinished_grid_says_so_in_numbers(half: Analysis) -> None:
    said = summary.standing(half)
    assert said.startswith("This grid is unfinished: of 18 runs, 11 done, 1 diverged")
    assert sum(half.states.values()) == 18


def test_an_empty_plan_a_single_run_and_a_finished_grid_can_be_told_apart(tmp_path: Path) -> None:
    nothing = analyse(forge(tmp_path / "nothing", [Forged("psgd", seed, state="queued") for seed in (0, 1)]))
    assert "No run is done yet" in summary.standing(nothing)
    assert summary.findings(nothing) == []
    assert texts(nothing)["psgd"] == ["psgd", "0.1", "0 of 2: 2 queued"]
    one = analyse(forge(tmp_path / "one", [Forged("psgd")]))
    assert summary.standing(one) == "The one run is done."
    assert "90.00" in texts(one)["psgd"]


def test_damaged_files_are_listed_and_the_rest_is_read(tmp_path: Path) -> None:
    forge(tmp_path, half_finished())
    good = len(analyse(tmp_path).variants)
    folder = {name: tmp_path / f"psgd-digits-0.1-{i}" / name for i, name in enumerate(("config.yaml", "status.json"))}
    folder["config.yaml"].write_text("a: [1,\n")
    folder["status.json"].write_text("[1]")
    (tmp_path / "psgd-digits-0.2-0" / "metrics.jsonl").write_text('nonsense\n{"step": 1, "val_loss": 2}\n{"st')
    (tmp_path / "psgd-digits-0.2-1" / "summary.json").unlink()
    analysis = analyse(tmp_path)
    assert len(analysis.variants) == good
    faults = sorted(fault.replace("cannot be read: ParserError", "cannot be read\n") for fault in analysis.faults)
    assert [fault.partition("\n")[0] for fault in faults] == [
        "psgd-digits-0.1-0/config.yaml cannot be read",
        "psgd-digits-0.1-1/status.json cannot be read: it holds no names and values",
        "psgd-digits-0.2-0/metrics.jsonl: line 1 cannot be read",
        "psgd-digits-0.2-1/summary.json is missing",
    ]


def test_a_store_without_a_grid_is_labelled_by_what_its_runs_differ_in(tmp_path: Path) -> None:
    for run in (Forged(method, seed, lr) for method in ("psgd", "dsgd") for seed in (0, 1) for lr in ("0.1", "0.2")):
        run.write(tmp_path)
    grid = derive(tmp_path, read_store(tmp_path))
    assert {key for cell in grid.cells for key in cell.labels} == {"method", "topology", "optimizer.lr"}
    analysis = analyse(tmp_path)
    assert [variant.name for variant in analysis.variants] == ["dsgd ring", "psgd"]
    assert all(len(variant.trials) == 2 and len(variant.runs) == 2 for variant in analysis.variants)


def test_settings_lead_back_to_a_configuration() -> None:
    from commeff.experiments.config.compose import compose

    for words in (
        ["method=psgd", "optimizer=nesterov", "optimizer.lr=0.3", "seed=4"],
        ["method=choco", "compressor=qsgd", "topology=torus", "workers=6", "task=quadratic", "steps=9"],
    ):
        config = compose(words)
        settings = settings_of(config)
        assert settings is not None
        assert compose(settings) == config
        assert len(settings) <= len(words) + 5
    assert settings_of({**config, "method": {"_target_": "mine.py:Mine"}}) is None


def test_environments_that_differ_are_shown_and_equal_ones_are_not(tmp_path: Path) -> None:
    runs = [Forged("psgd", 0), Forged("psgd", 1, environment={"torch": "3.0"})]
    table = table_details.environment_table(analyse(forge(tmp_path, runs)))
    assert table is not None
    assert [[item.text for item in row] for row in table.rows] == [
        ["torch", ENVIRONMENT["torch"], "1"],
        ["torch", "3.0", "1"],
    ]
    assert (
        table_details.environment_table(analyse(forge(tmp_path / "same", [Forged("psgd", seed) for seed in (0, 1)])))
        is None
    )


def test_topologies_are_told_by_their_messages_and_mixing(half: Analysis) -> None:
    found, faults = networks(half)
    rows = {row[0].text: [item.text for item in row] for row in table_details.topology_table(found).rows}
    assert faults == []
    assert rows["ring"][1:6] == ["4", "2", "8", "1", "0.3333"]
    assert rows["one_peer_exponential"][1:6] == ["4", "1", "4", "2", "0"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"metric": "bleu"}, "--metric must be one of val_accuracy"),
        ({"baseline": {"method": "adam"}}, "got method=adam"),
        ({"grid": "forgd"}, "did you mean forged"),
    ],
)
def test_what_is_not_there_is_refused(half: Analysis, asked: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        analyse(half.store, **asked)  # type: ignore[arg-type]


def test_a_store_with_two_grids_wants_a_name_and_an_empty_one_wants_runs(tmp_path: Path) -> None:
    forge(tmp_path, [Forged("psgd")])
    other = json.loads((tmp_path / "grids" / "forged.json").read_text())
    (tmp_path / "grids" / "other.json").write_text(json.dumps(other | {"title": "Other"}))
    with pytest.raises(ValueError, match=r"one of the 2 grids of .*; choose from forged, other"):
        analyse(tmp_path)
    assert analyse(tmp_path, grid="other").grid.title == "Other"
    (tmp_path / "grids" / "other.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read as a grid"):
        analyse(tmp_path, grid="other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no runs"):
        analyse(tmp_path / "empty")
    with pytest.raises(ValueError, match="there is no store"):
        analyse(tmp_path / "nowhere")
