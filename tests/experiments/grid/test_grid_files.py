"""Grid files: what they mean, and that bad ones are refused before anything runs, with all their faults."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.grid.plan.cells import check_space
from commeff.experiments.grid.plan.expand import expand, rehearse
from commeff.experiments.grid.plan.spec import read_grid
from commeff.experiments.grid.plan.trial import step_seconds
from commeff.experiments.run.store import VERSION, check_version

BASE = "base: {task: quadratic, workers: 4, steps: 3}\n"
PSGD = "grid: [{method: psgd}]\n"


def written(folder: Path, text: str, name: str = "mine.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def settings(folder: Path, text: str, *overrides: str) -> list[dict[str, str]]:
    grid = read_grid(written(folder, text), overrides)
    return [dict(cell.settings) for cell in expand(grid, folder / "store")[0]]


def test_a_grid_is_a_union_of_products_times_seeds_less_what_is_excluded(tmp_path: Path) -> None:
    text = (
        BASE + "seeds: [3, 5]\ngrid:\n  - {method: psgd, optimizer.lr: [0.1, 0.2]}\n"
        "  - {method: [dsgd, gossip_pga], topology: [ring, exponential]}\n"
        "exclude:\n  - {method: gossip_pga, topology: [ring, complete]}\n"
    )
    found = settings(tmp_path, text)
    wanted = [
        ("psgd", "0.1"),
        ("psgd", "0.2"),
        ("dsgd", "ring"),
        ("dsgd", "exponential"),
        ("gossip_pga", "exponential"),
    ]
    assert [(s["method"], s.get("optimizer.lr") or s["topology"], s["seed"]) for s in found] == [
        (method, other, seed) for seed in ("3", "5") for method, other in wanted
    ]
    assert all(s["task"] == "quadratic" and s["workers"] == "4" for s in found)


def test_what_two_products_share_runs_once(tmp_path: Path) -> None:
    text = (
        BASE + "grid:\n  - {method: [psgd, local_sgd]}\n  - {method: psgd}\n  - {method: local_sgd, method.period: 8}\n"
    )
    assert len(settings(tmp_path, text)) == 2


def test_a_list_in_a_list_is_one_value(tmp_path: Path) -> None:
    text = BASE + "grid: [{method: psgd, optimizer: adam, optimizer.betas: [[0.9, 0.99], [0.5, 0.9]]}]\n"
    assert [s["optimizer.betas"] for s in settings(tmp_path, text)] == ["[0.9,0.99]", "[0.5,0.9]"]


def test_words_on_the_command_line_go_into_the_base(tmp_path: Path) -> None:
    assert [s["steps"] for s in settings(tmp_path, BASE + PSGD, "steps=7")] == ["7"]


def test_labels_are_what_differs(tmp_path: Path) -> None:
    text = BASE + "seeds: [0, 1]\ngrid:\n  - {method: psgd, optimizer.lr: [0.1, 0.2]}\n  - {method: local_sgd}\n"
    cells = expand(read_grid(written(tmp_path, text)), tmp_path / "store")[0]
    assert [dict(cell.labels) for cell in cells[:3]] == [
        {"method": "psgd", "optimizer.lr": "0.1"},
        {"method": "psgd", "optimizer.lr": "0.2"},
        {"method": "local_sgd", "optimizer.lr": ""},
    ]
    assert [cell.title for cell in cells[1:3]] == ["psgd lr=0.2 seed 0", "local_sgd seed 0"]


FAULTY = [  # the file, and what is said of it, every line
    (BASE + PSGD + "seed: [0]\n", ["no use for 'seed'; did you mean seeds?"]),
    (BASE + PSGD + "seeds: [0, 0]\n", ["seed 0 given twice"]),
    (BASE + PSGD + "seeds: [0]\nseeds: [1]\n", ["seeds given twice"]),
    (BASE + PSGD + "seeds: 3\n", ["seeds must be a list of whole numbers"]),
    ("base: {seed: 3}\n" + PSGD + "seeds: [0]\n", ["seeds given twice: in seeds and as seed in base"]),
    (BASE + "seeds: [1]\ngrid: [{method: psgd, seed: [0, 1]}]\n", ["as seed in entry 1 of the grid"]),
    (BASE + PSGD + "exclude: [{method: psgd}]\n", ["exclude removes all 1 cells"]),
    (BASE + PSGD + "exclude: [{method: dsgd}]\n", ["entry 1 removes nothing: no cell has method=dsgd"]),
    (BASE, ["has no grid"]),
    ("[1, 2]", ["holds no settings"]),
    ("base: {task: [\n", ["is no YAML"]),
    (BASE + "grid: [{method: []}]\n", ["sweeps method over nothing"]),
    (BASE + "grid: [{method: [psgd, psgd]}]\n", ["method=psgd twice"]),
    (BASE + "grid: [{method: psgd, optimizer: {lr: 0.1}}]\n", ["write dotted keys, such as optimizer"]),
    (BASE + PSGD + "select: {over: optimizer.lr, by: val_loss}\n", ["which no entry of the grid sweeps"]),
    (BASE + PSGD + "select: {over: optimizer.lr, by: steps_to_target}\n", ["steps_to_target needs a target"]),
    (BASE + "grid: [{method: psgd, steps: [2, 3]}]\nselect: {over: steps, by: test_loss}\n", ["choose by the test"]),
    (BASE + PSGD + "target: {val_loss: .nan}\n", ["target must be one measurement"]),
    (BASE + PSGD + "baseline: {}\n", ["is no cell of the grid"]),
    (BASE + "grid: [{method: psgd, optimizer.lr: &a [*a]}]\n", ["holds itself"]),
    (BASE + PSGD + "target: high\n", ["target must be one measurement"]),
    (BASE + PSGD + "baseline: {method: dsgd}\n", ["is no cell of the grid"]),
    (BASE + "grid: [{method: [psgd, chocco]}, {method: dsgd, topology: torus, workers: 7}]\n",
     ["cell 2 (task=quadratic workers=4 steps=3 method=chocco): no method 'chocco'; did you mean choco?", "rectangle"]),
    (BASE + "grid: [{method: psgd, optimiser.lr: [0.1, 0.2]}]\n", ["cell 1 and 1 more", "did you mean optimizer.lr?"]),
    (BASE + "grid: [{method: mem_sgd, compressor.k: 5000}]\n", ["5000"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FAULTY)
def test_a_bad_grid_is_refused_and_nothing_is_written(text: str, said: list[str], tmp_path: Path) -> None:
    file = written(tmp_path, text)
    result = CliRunner().invoke(app, ["grid", str(file), "--store", str(tmp_path / "store")])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert all(line.startswith("commeff: ") for line in result.stderr.splitlines())
    for words in said:
        assert words in result.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = BASE + "grid:\n" + "".join(f"  - {{method: psgd, optimizer.lr: 0.{i + 1}}}\n" for i in range(36))
    text += "  - {method: psgd, speed: 3}\n  - {method: local_sgd, method.period: 0}\n"
    newer = tmp_path / "store"
    newer.mkdir()
    (newer / "store.json").write_text(json.dumps({"version": VERSION + 1}))
    options = ["--store", str(newer), "-j", "0", "--timeout", "-1", "--max-failures", "-1"]
    result = CliRunner().invoke(app, ["grid", str(written(tmp_path, text)), *options])
    assert result.exit_code == 2
    for words in (
        "-j must be",
        "--timeout must be",
        "--max-failures must be",
        "cell 37 (",
        "'speed'",
        "cell 38 (",
        "update commeff",
    ):
        assert words in result.stderr
    assert [path.name for path in newer.iterdir()] == ["store.json"]
    (newer / "store.json").unlink()
    (newer / "store.json").mkdir()
    with pytest.raises(ConfigError, match=r"store\.json must be a file, got a folder"):
        check_version(newer)


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b"])
def test_a_shard_is_one_of_some(shard: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["grid", str(written(tmp_path, BASE + PSGD)), "--shard", shard, "--dry-run"])
    assert result.exit_code == 2
    assert "i from 1 to n" in result.stderr


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = CliRunner().invoke(app, ["grid", str(written(tmp_path, BASE + PSGD)), "--store", str(tmp_path / "taken")])
    assert result.exit_code == 2
    assert "choose another --store" in result.stderr
    below = str(tmp_path / "taken" / "below")
    result = CliRunner().invoke(app, ["grid", str(written(tmp_path, BASE + PSGD)), "--store", below])
    assert result.exit_code == 2
    assert "taken is no folder" in result.stderr


def test_a_disk_without_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters count, not the memories of the method alone, and of the cells only those asked for."""
    text = "base: {task: quadratic, task.dimension: 1000, workers: 4, steps: 3}\n" + PSGD
    ((cell,), _) = rehearse(expand(read_grid(written(tmp_path, text)), tmp_path / "store")[0])
    assert 4 * 1000 * 8 <= cell.checkpoint < 5 * 1000 * 8
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2 * cell.checkpoint))
    check_space(tmp_path / "store", [cell], jobs=1)
    with pytest.raises(ConfigError, match="free some space"):
        check_space(tmp_path / "store", [cell], jobs=2)


def test_anchors_can_be_merged(tmp_path: Path) -> None:
    text = "base: {task: quadratic}\ngrid:\n  - &one {method: psgd, steps: 3}\n  - {<<: *one, workers: 4}\n"
    assert [s.get("workers") for s in settings(tmp_path, text)] == [None, "4"]


def test_an_override_of_what_the_grid_sweeps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="entry 1 of the grid sets it; change the file"):
        read_grid(written(tmp_path, BASE + PSGD), ["method=dsgd"])


def test_what_a_grid_costs_is_said_before_any_cell_has_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By a few steps of each kind of cell, of which nothing stays, not even that they are too few for a period."""
    text = "base: {task: quadratic, workers: 4, steps: 3000}\nseeds: [0, 1]\n"
    file = written(tmp_path, text + "grid: [{method: [psgd, local_sgd]}]\n")
    result = CliRunner().invoke(app, ["grid", str(file), "--store", str(tmp_path / "store"), "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    assert "judged by a few steps of 2 kinds of cells" in result.stderr
    rows = json.loads(result.stdout)
    assert [row["what"] for row in rows] == [f"{m} seed {s}" for s in "01" for m in ("psgd", "local_sgd")]
    assert all(row["seconds"] > 0 for row in rows)
    assert rows[0]["seconds"] == rows[2]["seconds"]
    assert not (tmp_path / "store").exists()
    assert not caplog.messages


def test_a_run_that_goes_on_from_another_is_tried_too(tmp_path: Path) -> None:
    words = ["train", "task=quadratic", "workers=4", "steps=9", "--store", str(tmp_path / "store")]
    assert CliRunner().invoke(app, words).exit_code == 0
    (run,) = (tmp_path / "store").glob("psgd-*")
    file = written(tmp_path, f"base: {{task: quadratic, workers: 4, steps: 20, resume_from: {run}}}\n{PSGD}")
    result = CliRunner().invoke(app, ["grid", str(file), "--store", str(tmp_path / "other"), "--dry-run"])
    assert "judged by a few steps of 1 kind of cells" in result.stderr, result.output


def test_a_step_costs_its_share_of_an_evaluation_and_nothing_of_the_warm_up() -> None:
    assert step_seconds([0.0, 10.0, 11.0, 12.0, 16.0], every=10) == pytest.approx(1.3)
    assert step_seconds([0.0, 10.0, 11.0, 13.0], every=10) == pytest.approx(1.5), "it was stopped"
    assert step_seconds([0.0, 10.0], every=10) == 10.0


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ("optimizer.lr: [0.1, 0.2]", "base.optimizer.lr is a list, and lists of base are not swept: give it to the"),
        ("topology: [ring, star]", "base.topology is a list"),
        ("seed: [0, 1]", "base.seed is a list, and lists of base are not swept: write seeds:"),
    ],
)
def test_a_list_in_the_base_is_refused_in_words(base: str, says: str, tmp_path: Path) -> None:
    file = written(tmp_path, f"base: {{task: quadratic, {base}}}\ngrid: [{{method: dsgd}}]\n")
    result = CliRunner().invoke(app, ["grid", str(file), "--dry-run"])
    assert result.exit_code == 2
    assert says in result.stderr
    list_valued = written(tmp_path, "base: {task: quadratic, log: [tensorboard]}\ngrid: [{method: psgd}]\n")
    assert not read_grid(list_valued).unswept(["log: tensorboard is not installed"])


def test_cells_of_one_name_are_told_apart_by_what_varies(tmp_path: Path) -> None:
    entries = "grid: [{name: ours, method: local_sgd, method.period: [2, 4], optimizer.lr: 0.1}, {method: psgd}]\n"
    cells = expand(read_grid(written(tmp_path, BASE + entries)), tmp_path / "store")[0]
    assert [cell.title for cell in cells] == ["ours period=2 seed 0", "ours period=4 seed 0", "psgd seed 0"]
