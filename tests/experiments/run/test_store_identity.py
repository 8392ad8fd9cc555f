"""A run's name: what decides its result decides the name, and runs of existing stores keep theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.schema import GROUPS, VERSION, ConfigError, built_in, current
from commeff.experiments.config.settings import RUN
from commeff.experiments.grid.plan.cell_list import CellList, changed, read_cells, write_cells
from commeff.experiments.grid.plan.cells import Cell
from commeff.experiments.report.data.commands import settings_of
from commeff.experiments.report.data.grids import derive
from commeff.experiments.report.data.records import read_store
from commeff.experiments.report.data.variants import group
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import run_one

# The keys that may change while the result stays the same, with the reason.
SAME_RESULT = {
    "bucket_mb": "blocks of columns change the schedule of messages, not the numbers",
    "checkpoint_every": "a resumed run ends where an uninterrupted one does",
    "data_dir": "data lie where they lie",
    "compile": "compiled messages are the plain ones",
    "log": "rows are the same wherever they are shown",
    "nproc": "every engine gives the trajectory of one process",
    "profile": "a traced step is the step",
}
WORDS = ("method=choco", "task=digits", "schedule=cosine", "workers=4", "steps=12")

# Names that commeff gave when topologies, compressors and experiments were packages beside it (commit 8f93f18).
BEFORE_THE_MOVE = {
    "choco-digits-1a7debdc42": "method=choco task=digits workers=4 steps=12",
    "psgd-quadratic-e3a5e55b73": "method=psgd task=quadratic workers=4 steps=12",
    "power_sgd-cifar10-c3dfd68c2a": "method=power_sgd task=cifar10 workers=4 steps=12",
    "mem_sgd-digits-532afe523a": "compressor=top_k method=mem_sgd task=digits",
    "dsgd-quadratic-23ddb1f10d": "topology=ring method=dsgd task=quadratic workers=16",
    "choco-digits-7121d1d564": "optimizer=adam method=choco task=digits l2=0.001 seed=3 nproc=2",
    "diloco-digits-8a2f10204c": "schedule=cosine method=diloco task=digits collective=ring",
    "compressed_sgd-digits-d0e4fe6281": "compressor=qsgd method=compressed_sgd task=digits workers=4 steps=12",
    "psgd-leastsquares-bd53977942": "method=psgd task=least_squares workers=4 steps=12",
    "ef21-risk-624c617ece": "method=ef21 task=risk workers=4 steps=12",
}

# Names that commeff gave when these keys were the method's own (commit 687b4b05).
BEFORE_THE_PARTS = {
    "diloco-digits-aef068c81c": "diloco period=8 exchange.delay=2 exchange.mixing=0.5",
    "diloco-digits-7ffa7d6ce5": "diloco begin=100 exchange.bits=8",
    "streaming_diloco-digits-ad03d5afef": "streaming_diloco exchange.bits=4 exchange.ahead=1 host=true",
    "zero_one_adam-digits-f562f949e3": "zero_one_adam updates.freeze=20 updates.kappa=2 meetings.doubling=10",
}


def variants(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a configuration by its dotted key, with the configuration in which it has another value."""
    if isinstance(node, dict):
        for name, value in node.items():
            for key, other in variants(value, f"{path}.{name}".lstrip(".")):
                yield key, node | {name: other}
    elif isinstance(node, bool) or node is None:
        yield path, "other" if node is None else not node
    elif isinstance(node, list):
        yield path, [*node, 1]
    else:
        yield path, node + 1 if isinstance(node, (int, float)) else f"{node}x"


def test_every_key_that_may_change_the_result_changes_the_name() -> None:
    config = compose(WORDS)
    same = {key for key, other in variants(config) if run_id(other) == run_id(config)}
    assert same == {*SAME_RESULT} & {*config}
    keys = {key.split(".")[0] for key in RUN}
    assert {*keys, *GROUPS} == {*config}, "a key of config.yaml that this test does not see"


# The leaves of one method, choco, are among those of the test above.
MANY = pytest.param("method", marks=pytest.mark.slow)


@pytest.mark.parametrize("group", [MANY if group == "method" else group for group in GROUPS])
def test_every_leaf_of_every_part_changes_the_name(group: str) -> None:
    whole = compose(WORDS)
    for name in built_in(group):
        config = whole | {group: compose([*WORDS, f"{group}={name}"], unfinished=True)[group]}
        same = {key for key, part in variants(config[group]) if run_id(config | {group: part}) == run_id(config)}
        assert same <= {"data_dir"}, name


@pytest.mark.parametrize("name", BEFORE_THE_MOVE)
def test_runs_keep_the_names_that_they_had_before_the_packages_moved(name: str) -> None:
    config = compose(BEFORE_THE_MOVE[name].split())
    assert run_id(config) == name
    assert run_id(current(apart(config))) == name


@pytest.mark.parametrize("name", BEFORE_THE_PARTS)
def test_runs_keep_the_names_that_they_had_before_keys_became_parts(name: str) -> None:
    method, *words = BEFORE_THE_PARTS[name].split()
    config = compose([f"method={method}", *(f"method.{word}" for word in words), "task=digits"])
    parts = [config["method"].get(part, {}) for part in ("exchange", "updates", "meetings")]
    flat = {key: value for part in parts for key, value in part.items() if key != "_target_"}
    stored = config | {"method": flat | {key: value for key, value in config["method"].items() if value not in parts}}
    assert (run_id(config), run_id(stored)) == (name, name)
    assert current(stored) == config
    assert current(config) == config


def test_every_choice_keeps_the_name_that_it_had_when_each_was_a_yaml_file() -> None:
    """Of commit 74faf3e, with seed=3 and 16 workers; a choice that is younger is not in the file."""
    names = json.loads((Path(__file__).parent / "run_names.json").read_text(encoding="utf-8"))
    assert len(names) > 150
    for words, name in names.items():
        beside = ["seed=3"] if "workers" in words or "mesh" in words else ["seed=3", "workers=16"]
        assert (words, run_id(compose([*words.split(), *beside], unfinished=True, settled=False))) == (words, name)


def apart(node: Any) -> Any:
    """A configuration as it was written before the move."""
    if not isinstance(node, dict):
        return node
    names = ("commeff.compressors", "commeff.topologies", "commeff.experiments")
    return {
        name: value.removeprefix("commeff.") if name == "_target_" and value.startswith(names) else apart(value)
        for name, value in node.items()
    }


def test_a_store_from_before_the_move_is_read_and_its_runs_are_not_repeated(tmp_path: Path) -> None:
    store, grid = tmp_path / "store", tmp_path / "mine.yaml"
    base = "base: {task: quadratic, workers: 4, steps: 4}\nseeds: [0, 1]\n"
    grid.write_text(base + "grid: [{method: choco, compressor: top_k, topology: ring}]\n")
    for seed in (0, 1):
        words = ["task=quadratic", "workers=4", "steps=4", "method=choco", "compressor=top_k", "topology=ring"]
        config = compose([*words, f"seed={seed}"])
        folder = store / run_id(config)
        run_one(config, folder)
        (folder / "config.yaml").write_text(yaml.safe_dump(apart(config), sort_keys=False))
    before = {path: path.stat().st_mtime_ns for path in store.glob("*/summary.json")}

    result = CliRunner().invoke(app, ["grid", str(grid), "--store", str(store)])
    assert result.exit_code == 0, result.output
    assert "2 finished, 0 to run" in result.stderr
    assert {path: path.stat().st_mtime_ns for path in store.glob("*/summary.json")} == before
    assert "top_k" in (store / "report" / "report.html").read_text()
    result = CliRunner().invoke(app, ["status", str(store), "--json"])
    assert json.loads(result.stdout)["mine"]["states"] == {"done": 2}


def test_a_list_of_cells_from_before_the_move_means_the_same_runs(tmp_path: Path) -> None:
    config = compose(WORDS)
    cell = Cell(1, {}, None, {}, apart(config), tmp_path / "store" / run_id(config))
    write_cells(tmp_path / "cells.jsonl", CellList("mine", "Mine", tmp_path / "store", (cell,)))
    listed = read_cells(tmp_path / "cells.jsonl").cells
    assert listed[0].config == config
    assert changed(listed) == []


def test_runs_of_a_method_that_was_corrected_since_are_kept_apart(tmp_path: Path) -> None:
    """post_local_sgd counted its periods from step 0 until version 2; the name is from then (commit cc30924)."""
    store, grid = tmp_path / "store", tmp_path / "mine.yaml"
    words = ["task=quadratic", "workers=4", "steps=4", "method=post_local_sgd"]
    config = compose(words)
    before = {**config, "method": {key: value for key, value in config["method"].items() if key != VERSION}}
    assert run_id(before) == "post_local_sgd-quadratic-8192182dcc" != run_id(config)

    with pytest.raises(ConfigError, match="post_local_sgd must have version 2, which this commeff has, got 1"):
        build(before)
    run_one(config, store / run_id(before))  # a stand-in for what an old commeff computed
    (store / run_id(before) / "config.yaml").write_text(yaml.safe_dump(before, sort_keys=False))
    grid.write_text("base: {task: quadratic, workers: 4, steps: 4}\ngrid: [{method: post_local_sgd}]\nseeds: [0]\n")
    result = CliRunner().invoke(app, ["grid", str(grid), "--store", str(store)])
    assert result.exit_code == 0, result.output
    assert "0 finished, 1 to run" in result.stderr
    result = CliRunner().invoke(app, ["status", str(store), "--json"])
    states = {name: [cell["run"] for cell in each["cells"]] for name, each in json.loads(result.stdout).items()}
    assert states == {"mine": [run_id(config)], "": [run_id(before)]}

    derived = derive(store, read_store(store))
    assert {cell.run: cell.labels["method.version"] for cell in derived.cells} == {
        run_id(before): "1",
        run_id(config): "2",
    }
    assert len(group(derived, {record.id: record for record in read_store(store)}, "val_loss")) == 2
    assert settings_of(before) is None, "no command of today makes it"
    assert settings_of(config) == ["method=post_local_sgd", "task=quadratic", "workers=4", "steps=4", "seed=0"]


RULE = """
from commeff.compressors import TopK


class Mine(TopK):
    pass  # {}
"""


def test_a_plug_in_that_only_a_rule_names_counts_by_its_source(tmp_path: Path) -> None:
    def name(file: Path, text: str) -> str:
        file.write_text(RULE.format(text))
        choices(str(file))
        config = compose(["method=mem_sgd", "compressor=per_tensor"])
        config["compressor"]["rules"] = [["*.bias", {"_target_": f"{file}:Mine", "k": 1}]]
        return run_id(config)

    first = name(tmp_path / "one.py", "a")
    assert name(tmp_path / "there.py", "a") == first, "where the file lies does not matter"
    assert name(tmp_path / "two.py", "b") != first
