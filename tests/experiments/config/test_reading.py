"""Reading never executes: whatever a store, a list of cells or a grid file names, only known parts are built."""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner, Result

from commeff.cluster.places import read_place
from commeff.experiments.cli import app
from commeff.experiments.config import build, registry
from commeff.experiments.config.compose import compose
from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.plugins import choices
from commeff.experiments.config.registry import UnknownPart, known, locate, targets_in
from commeff.experiments.config.schema import GROUPS, built_in, node
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.report.data.records import read_record
from commeff.experiments.report.data.wallclock import Modeller, wallclock
from commeff.experiments.report.draw import figures
from commeff.experiments.report.draw.figures import Figure, Panel
from commeff.experiments.report.draw.networks import networks
from commeff.experiments.report.write import page, writing
from commeff.experiments.report.write.table_details import command_of
from commeff.experiments.run.naming import run_id
from tests.experiments.report.report_stores import Forged, forge

ROOT = Path(__file__).parents[3]
SENTINEL = "executed.txt"
FILE = """
from pathlib import Path
from commeff import Strategy
from commeff.topologies import Topology, ring

Path(__file__).with_name("executed.txt").write_text("executed when loaded")

def poisoned_graph(n: int) -> Topology:
    return ring(n)

def poisoned_method(optimizer) -> Strategy:
    raise RuntimeError

def wipe(path="nothing"):
    Path(__file__).with_name("wiped.txt").write_text("")
"""


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """A Python file that leaves a sentinel beside it when it is executed."""
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / "poison.py").write_text(FILE)
    return folder / "poison.py"


def calls(evil: Path) -> dict[str, Any]:
    """Nodes that would do something, were they built as hydra builds them."""
    touch = f"touch {evil.with_name(SENTINEL)}"
    system: dict[str, Any] = {"_target_": "os.system", "command": touch}
    return {
        "system": system,
        "eval": {"_target_": "builtins.eval", "_args_": [f"__import__('os').system({touch!r})"]},
        "file": {"_target_": f"{evil}:poisoned_graph", "n": 4},
        "module": {"_target_": f"{evil.stem}.poisoned_graph", "n": 4},
        "named module": {"_target_": f"{evil.stem}:poisoned_graph", "n": 4},
        "through a package": {"_target_": "commeff.methods.os.system", "command": touch},
        "inner": {"_target_": "commeff.topologies.lazy", "topology": system},
        "list": {"_target_": "commeff.topologies.from_matrices", "matrices": [system]},
        "partial": {**system, "_partial_": True},
        "locate": {"_target_": "hydra.utils.instantiate", "config": system},
        "no text": {"_target_": ["os.system", touch]},
        "no target": {"_args_": [touch], "_convert_": "all"},
        "interpolation": "${oc.env:HOME}",
        "argument": {"_target_": "commeff.topologies.ring", "n": "${oc.decode:${oc.env:HOME}}"},
    }


KINDS = tuple(calls(Path("x.py")))
SOME = ("system", "file", "list", "no text", "interpolation")


@cache
def good() -> dict[str, Any]:
    """A configuration of a run."""
    return compose(["method=choco", "compressor=top_k", "task=quadratic", "workers=4"])


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("part", GROUPS)
def test_nothing_unknown_is_built(part: str, name: str, evil: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(evil.parent))
    with pytest.raises((ValueError, TypeError)):
        build.build(good() | {part: calls(evil)[name]})
    assert [path.name for path in evil.parent.iterdir()] == [evil.name]
    assert evil.stem not in sys.modules


@dataclass(frozen=True)
class Poisoned:
    """A store whose runs each have one part of their config.yaml replaced: their names, by part and kind of node."""

    store: Path
    evil: Path
    runs: dict[tuple[str, str], str]

    @property
    def clean(self) -> bool:
        """Whether nothing was executed."""
        return [path.name for path in self.evil.parent.iterdir()] == [self.evil.name]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Poisoned:
    evil = tmp_path_factory.mktemp("evil") / "poison_store.py"
    evil.write_text(FILE)
    store, runs = tmp_path_factory.mktemp("store"), {}
    run = Forged("dsgd", settings=("optimizer.lr=0.1", "topology=ring", "task.hidden=16"))
    one = tmp_path_factory.mktemp("one")
    run.write(one)
    whole = yaml.safe_load((one / run.name / "config.yaml").read_text())
    others = ("method", "task", "optimizer", "hydra/launcher")
    pairs = [("topology", kind) for kind in KINDS] + [(part, kind) for part in others for kind in SOME]
    for seed, (part, kind) in enumerate(pairs):
        name = f"dsgd-digits-{seed}"
        shutil.copytree(one / run.name, store / name)
        (store / name / "config.yaml").write_text(yaml.safe_dump({**whole, "seed": seed, part: calls(evil)[kind]}))
        runs[part, kind] = name
    return Poisoned(store, evil, runs)


def test_what_a_command_does_not_know_is_a_line_and_nothing_is_built(poisoned: Poisoned) -> None:
    analysis = analyse(poisoned.store)
    place = read_place({"cluster": "ethernet_1g", "step_seconds": 0.01})
    modeller, by_run = Modeller(), {run.cell.run: run for run in analysis.runs}
    for (part, kind), name in poisoned.runs.items():
        config = by_run[name].record.config
        if part != "hydra/launcher":  # which means nothing at all
            with pytest.raises((ValueError, TypeError, AttributeError, KeyError)):
                modeller.timeline(config, place, 3)
        elif kind != "interpolation":
            assert modeller.timeline(config, place, 3).step > 0
    unknown = {line.split(": ", 1)[1] for line in analysis.unknown}
    found = {str(target) for kind in KINDS for target in targets_in(calls(poisoned.evil)[kind]) if not known(target)}
    assert len(unknown) == len(found) > 5
    assert all("is unknown here: " in line and "\n" not in line for line in analysis.unknown)
    _, faults = networks(analysis)
    assert faults
    assert poisoned.clean


def test_a_report_goes_on_with_what_it_can_show(
    poisoned: Poisoned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "write", lambda figure, folder, settings: None)  # no PDF, no PNG
    one = tmp_path / "store"
    shutil.copytree(poisoned.store / poisoned.runs["topology", "file"], one / "dsgd-digits-0")
    told = invoke("report", one, "--cluster", "ethernet_1g", "--out", tmp_path / "out")
    assert told.exit_code == 0, told.output
    line = f"'{poisoned.evil}:poisoned_graph' is unknown here: name its file or module with --plugin if you trust it"
    assert told.stderr == f"commeff: dsgd-digits-0: {line}\n"
    assert "poisoned_graph&#x27; is unknown here: name its file" in (tmp_path / "out" / "report.html").read_text()
    assert poisoned.clean


def test_the_file_of_a_plug_in_may_lie_elsewhere(poisoned: Poisoned, tmp_path: Path) -> None:
    """`/there/mine.py` of a colleague is the `mine.py` that this command was given; nothing else comes of that path."""
    mine, target = tmp_path / "poison_moved.py", "/there/poison_moved.py:poisoned_graph"
    mine.write_text(FILE)
    assert not known(target)
    assert choices(str(mine))
    assert build.topology({"topology": {"_target_": target, "n": 6}}).n == 6
    assert not known(target.replace("graph", "tree"))
    assert source_digest(target) == source_digest(f"{mine}:poisoned_graph")


BOMB = "b0: &b0 [x, x, x, x]\n" + "".join(f"b{i}: &b{i} [{', '.join([f'*b{i - 1}'] * 9)}]\n" for i in range(1, 10))


@pytest.mark.parametrize(
    "text",
    [
        "method: !!python/object/apply:os.system ['touch SENTINEL']\n",
        "method: !!python/name:os.system\n",
        "topology: &a {_target_: commeff.topologies.lazy, topology: *a}\n",
        BOMB,
        "topology: " + "[" * 5000,
        "method: " + "[" * 40 + "]" * 40,
    ],
)
def test_yaml_that_is_no_plain_data_is_a_fault(text: str, tmp_path: Path) -> None:
    run = Forged("psgd")
    run.write(tmp_path)
    (tmp_path / run.name / "config.yaml").write_text(text.replace("SENTINEL", str(tmp_path / SENTINEL)))
    record = read_record(tmp_path / run.name)
    assert (record.config, record.state) == ({}, "done")
    assert [fault.split(" ")[0] for fault in record.faults] == [f"{run.name}/config.yaml"]
    assert not (tmp_path / SENTINEL).exists()


@pytest.mark.parametrize(
    "node", [{"_target_": "commeff.compressors.TernGrad"}, {"_target_": "commeff.methods.psgd", "_partial_": True}]
)
def test_a_known_part_in_the_wrong_place_is_a_line(node: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="topology must be one, got a "):
        build.topology({"topology": node})


def test_a_run_without_a_configuration_has_no_modelled_seconds(tmp_path: Path) -> None:
    runs = [Forged("psgd", seed, settings=("task.hidden=16",)) for seed in range(2)]
    forge(tmp_path, runs, target={"val_accuracy": 0.5})
    (tmp_path / runs[1].name / "config.yaml").write_text("no mapping")
    analysis = analyse(tmp_path)
    clock = wallclock(analysis, read_place({"cluster": "ethernet_1g", "step_seconds": 0.01}), Modeller())
    assert [*clock.rows[0].seconds_to_target] == [0]


@pytest.mark.parametrize("name", ["main.csv", "report.md", "f.pdf", "f.png", "f.csv"])
def test_a_report_writes_through_no_link(name: str, tmp_path: Path) -> None:
    folder, victim, data = tmp_path / "report", tmp_path / "victim", pd.DataFrame({"a": [1]})
    folder.mkdir()
    (folder / name).symlink_to(victim)

    def write() -> None:
        figures.write_csv(data, folder / "main.csv")
        page.write_text(folder / "report.md", "text")
        figures.write(Figure("f", "", "", [Panel("f", lambda axes: None, 2.0, 2.0)], 1, data), folder)

    with pytest.raises(OSError, match="is a link"):
        write()
    assert not victim.exists()


def test_a_grid_copy_puts_no_option_into_a_command(evil: Path, tmp_path: Path) -> None:
    store = forge(tmp_path / "store", [Forged("psgd", state="failed")])
    copy = store / "grids" / "forged.json"
    grid = json.loads(copy.read_text())
    settings = [f"--plugin={evil}", "-h", "method=psgd", "task.hidden=${oc.env:HOME}"]
    cell = grid["cells"][0] | {"settings": settings, "_target_": "os.system"}
    copy.write_text(json.dumps(grid | {"plugins": [str(evil)], "cells": [cell]}))
    analysis = analyse(store)
    assert command_of(analysis.runs[0], analysis) == (
        f"commeff train method=psgd 'task.hidden=${{oc.env:HOME}}' --store {store}"
    )
    told = invoke("status", store)
    assert told.exit_code == 0, told.output
    assert not evil.with_name(SENTINEL).exists()


@pytest.mark.parametrize("cells", [[{}], ["os.system"], 3, [{"run": ["a"]}], [{"run": "../x", "labels": [1]}]])
def test_a_damaged_grid_copy_does_not_end_status(cells: Any, tmp_path: Path) -> None:
    store = forge(tmp_path / "store", [Forged("psgd")])
    (store / "grids" / "forged.json").write_text(json.dumps({"cells": cells}))
    told = invoke("status", store, "--json")
    assert told.exit_code == 0, told.output
    assert len(json.loads(told.stdout)[""]["cells"]) == 1


# Lists of cells


Change = Callable[[dict[str, Any]], dict[str, Any]]


def listed(tmp_path: Path, change: Change, **head: Any) -> Path:
    """A list of one cell, with something put in its place."""
    config = compose(["method=dsgd", "topology=ring", "task=quadratic", "workers=4", "steps=2"])
    line = {"run": run_id(config), "number": 1, "labels": {}, "name": None, "checkpoint": 0, "config": config}
    line |= {"settings": {"method": "dsgd"}, "apart": {}}
    first = {"version": 2, "name": "g", "title": "g", "plugins": [], "store": str(tmp_path / "store")} | head
    path = tmp_path / "cells.jsonl"
    path.write_text(f"{json.dumps(first)}\n{json.dumps(line | change(config))}\n")
    return path


@pytest.mark.parametrize("name", ["system", "file", "inner", "no text"])
@pytest.mark.parametrize("part", ["topology", "method"])
def test_a_list_of_cells_is_data(part: str, name: str, evil: Path, tmp_path: Path) -> None:
    cells = listed(tmp_path, lambda config: {"config": config | {part: calls(evil)[name]}}, plugins=[str(evil)])
    for option in ("--collect", "--dry-run", "--no-report"):
        told = invoke("grid", cells, option)
        assert told.exit_code == 2, told.output
        assert told.stderr.startswith("commeff: cells.jsonl: ")
        assert "is unknown here" in told.stderr
        assert len(told.stderr.splitlines()) == 1
    assert not evil.with_name(SENTINEL).exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "change",
    [{"run": "../../away"}, {"run": "/away"}, {"run": ".."}, {"settings": {"--plugin": "x.py"}}, {"config": []}],
)
def test_a_cell_stays_in_its_store_and_gives_no_options(change: dict[str, Any], tmp_path: Path) -> None:
    told = invoke("grid", listed(tmp_path, lambda config: change), "--collect")
    assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1), told.output
    assert "is damaged" in told.stderr


# What a user types, or a grid file that they run


@pytest.mark.parametrize(
    "word",
    [
        "task.seed=${oc.env:HOME}",
        "data_dir=${oc.env:HOME}",
        "data_dir=x${oc.${seed}:HOME}",
        "data_dir=${oc.decode:1}",
        "optimizer.betas={_target_: os.system, command: 'touch SENTINEL'}",
        "method=os.system",
        "method._target_=os.system",
        "hydra.launcher=x",
        "hydra/launcher=x",
        "+method._args_=[1]",
    ],
)
def test_a_grid_file_names_known_parts_only(word: str, tmp_path: Path) -> None:
    key, _, value = word.replace("SENTINEL", str(tmp_path / SENTINEL)).partition("=")
    base = {"task": "quadratic", "workers": 4, "steps": 2, "optimizer": "adam", "method": "psgd", key: value}
    file = tmp_path / "g.yaml"
    file.write_text(yaml.safe_dump({"base": base, "grid": [{"seed": 0}]}))
    told = invoke("grid", file, "--dry-run", "--store", tmp_path / "store")
    assert (told.exit_code, told.stdout) == (2, ""), told.output
    assert all(line.startswith("commeff: cell 1 (") for line in told.stderr.splitlines())
    assert not (tmp_path / SENTINEL).exists()
    assert not (tmp_path / "store").exists()


def test_a_grid_file_has_no_key_for_plug_ins(evil: Path, tmp_path: Path) -> None:
    file = tmp_path / "g.yaml"
    file.write_text(f"plugins: [{evil}]\ngrid: [{{method: psgd}}]\n")
    told = invoke("grid", file, "--dry-run")
    assert (told.exit_code, told.stderr) == (2, "commeff: g.yaml has no use for 'plugins'\n")
    assert not evil.with_name(SENTINEL).exists()


# The registry


def test_every_file_of_the_configuration_names_what_is_known() -> None:
    used = {target for group in GROUPS for name in built_in(group) for target in targets_in(node(group, name))}
    assert all(known(target) for target in used)
    torch = {f"{place}.{name}" for place, names in registry.TORCH.items() for name in names}
    assert torch == {target for target in used if target.startswith("torch.")}


def test_of_a_plug_in_only_what_it_offers_is_known(tmp_path: Path) -> None:
    file = tmp_path / "offering.py"
    file.write_text(FILE.replace("poisoned", "offered") + "\nfrom os import system\n")
    assert choices(str(file))
    assert locate(f"{file}:offered_graph")(4).n == 4
    for name in ("wipe", "system", "Path", "ring", "no_such"):
        with pytest.raises(UnknownPart):
            locate(f"{file}:{name}")


def test_of_a_package_only_its_public_names_are_known() -> None:
    for place in registry.OURS:
        module = import_module(place)
        private = [name for name, value in vars(module).items() if callable(value) and name not in module.__all__]
        assert not [name for name in private if known(f"{place}.{name}")]
        assert all(known(f"{place}.{name}") for name in module.__all__ if callable(getattr(module, name)))
    for target in ("torch.optim.LBFGS", "torch.optim.lr_scheduler.LambdaLR", "torch.load", "torch.optim.SGD.step"):
        assert not known(target)


def test_a_long_name_is_not_printed_whole() -> None:
    assert len(str(UnknownPart("x" * 10**6))) < 400


def test_two_files_that_are_called_alike_stand_for_none_elsewhere(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "alike.py").write_text(FILE.replace("poisoned", "alike"))
    elsewhere = "/there/alike.py:alike_graph"
    choices(str(tmp_path / "one" / "alike.py"))
    assert known(elsewhere)
    choices(str(tmp_path / "two" / "alike.py"))
    assert not known(elsewhere)
    assert known(f"{tmp_path / 'two' / 'alike.py'}:alike_graph")


LOADERS = {  # who may turn words into code, and why
    "commeff/__init__.py": "its own rooms, by a constant table",
    "experiments/cli/__init__.py": "the commands of a checkout, which a wheel lacks",
    "experiments/studies/commands.py": "a room of ours, by the name of a command",
    "experiments/config/registry.py": "packages of a constant table",
    "experiments/config/loading.py": "plug-ins that a user has named or installed",
    "experiments/reproduce/reading.py": "the tables that come with commeff, or that the command line names",
    "experiments/sinks/rows.py": "finds the package of a sink",
    "experiments/config/signature.py": "evaluates annotations by a constant table, or of code that is imported already",
}
LOADING = {
    "import_module",
    "exec_module",
    "spec_from_file_location",
    "find_spec",
    "__import__",
    "run_path",
    "run_module",
    "eval",
    "exec",
    "get_method",
    "get_class",
    "get_object",
}


def loads(source: str) -> set[str]:
    """Calls in a source that turn words into code; `model.eval()` takes no words."""
    found = set()
    if not re.search(rf"\b({'|'.join(LOADING)})\(", source):
        return found
    for call in (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call)):
        name = getattr(call.func, "id", getattr(call.func, "attr", ""))
        if name in LOADING and (isinstance(call.func, ast.Name) or name not in ("eval", "exec")):
            found.add(name)
    return found


def test_words_become_code_in_few_places() -> None:
    rooms = ("commeff", "experiments", "topologies", "compressors")
    files = {path.resolve() for room in rooms for path in (ROOT / room).rglob("*.py")}
    found = {str(path.relative_to(ROOT)) for path in files if loads(path.read_text(encoding="utf-8"))}
    assert found == set(LOADERS)
    assert loads("import hydra\nhydra.utils.get_method(config['x'])") == {"get_method"}


def test_plug_ins_are_loaded_by_who_was_given_them() -> None:
    """`loading.load` executes a file: only what is named on the command line or installed comes to it."""
    importers = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "experiments").rglob("*.py")
        if "config.loading import" in path.read_text(encoding="utf-8")
        for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(each, ast.ImportFrom) and each.module == "commeff.experiments.config.loading"
        if any(alias.name == "load" for alias in each.names)
    }
    assert importers == {"experiments/config/plugins.py", "experiments/config/check.py"}
