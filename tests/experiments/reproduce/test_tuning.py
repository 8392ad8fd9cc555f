"""Tuning on seeds of its own: the choice is the argmin, only what is chosen is reported, a failed run ends it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from commeff.experiments.grid import command as grids
from commeff.experiments.run.runner import run_one
from commeff.experiments.run.store import FINISHED, RunFolder
from tests.experiments.reproduce.reproduced import Code, write_table
from tests.experiments.reproduce.test_reproduce import commeff, run_here

RATES = (0.01, 0.1, 0.5, 1e5)
TABLE: dict[str, object] = {
    "half": Code("lambda c: c['steps'] / 2"),
    "paper": "nobody",
    "base": {"task": "quadratic", "workers": 4, "steps": 12, "evaluate_every": 4},
    "grid": [
        {"name": "a", "method": "psgd", "optimizer.lr": [*RATES]},
        {"name": "b", "method": "dsgd", "topology": ["ring", "exponential"], "optimizer.lr": [*RATES]},
    ],
    "tune": {"over": "optimizer.lr", "by": "val_loss", "seeds": [100, 101], "settings": {"steps": Code("half")}},
    "show": ["val_loss"],
    "claims": """    for at in r.each("topology"):
        yield claim(within(loss(at.a), loss(at.b), 1), "near")
""",
    "figure": {"x": "step", "y": "val_loss"},
}


def written(folder: Path, **changes: object) -> str:
    return write_table(folder, TABLE | changes)


def runs(store: Path) -> list[tuple[dict[str, str], float]]:
    """The configuration of every run, and its validation loss at the end; infinite where it diverged."""
    found = []
    for folder in (path.parent for path in store.glob("*-*/summary.json")):
        summary = json.loads((folder / "summary.json").read_text())
        config = yaml.safe_load((folder / "config.yaml").read_text())
        labels = {key: str(config.get(key)) for key in ("seed", "steps")} | {"lr": f"{config['optimizer']['lr']:g}"}
        parts = [str(config[part].get("_target_", "")) for part in ("method", "topology") if part in config]
        labels["variant"] = " ".join(part.rsplit(".")[-1] for part in parts)
        found.append((labels, summary["val_loss"] if summary["state"] == "done" else float("inf")))
    return found


def page(store: Path, name: str = "report.md") -> str:
    return (store / "pages" / "full" / name).read_text()


def test_the_best_rate_of_its_own_seeds_runs_with_those_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    file, store = written(tmp_path), tmp_path / "store"
    code, told = commeff(file, "--store", str(store), "--dry-run")
    assert code == 0
    assert "to choose optimizer.lr: 24 cells, 0 finished, 24 to run" in told
    assert "with the chosen values: 9 cells, 0 finished, 9 to run" in told
    code, told = commeff(file, "--store", str(store))
    assert code == 0, told
    every = runs(store)
    tried = [(labels, loss) for labels, loss in every if labels["seed"] in ("100", "101")]
    reported = {tuple(labels[key] for key in ("variant", "seed", "lr", "steps")) for labels, _ in every} - {
        tuple(labels[key] for key in ("variant", "seed", "lr", "steps")) for labels, _ in tried
    }
    variants = {labels["variant"] for labels, _ in every}
    assert (len(every), len(tried), len(variants)) == (24 + 9, 24, 3)
    assert {labels["steps"] for labels, _ in tried} == {"6"}
    expected = set()
    for variant in variants:
        means = {
            rate: fmean(v for labels, v in tried if (labels["variant"], labels["lr"]) == (variant, f"{rate:g}"))
            for rate in RATES
        }
        expected |= {(variant, seed, f"{min(means, key=lambda r: means[r]):g}", "12") for seed in "012"}
    assert reported == expected
    text = page(store)
    assert "in runs that only choose, seed 100, 101, `steps: 6`" in text
    assert text.count("100000.0: diverged") == 3
    assert "0 to run" in commeff(file, "--store", str(store), "--dry-run")[1]


def test_a_best_rate_at_the_edge_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    grid = [{"name": "a", "method": "psgd", "optimizer.lr": [0.1, 0.01]}]
    for name, rates, said in (
        ("edge", [0.1, 0.01], "a: best optimizer.lr 0.1 is the largest tried"),
        ("lost", [1e5, 1e6], "a: diverged at all values of optimizer.lr; 100000.0 stands for them"),
    ):
        grid[0]["optimizer.lr"] = rates
        tune = {"over": "optimizer.lr", "by": "val_loss", "seeds": [100]}
        file = written(tmp_path, grid=grid, claims=["loss(r.a) < 100"], tune=tune)
        told = commeff(file, "--store", str(tmp_path / name))[1]
        assert said in told
        assert said.replace("_", r"\_") in page(tmp_path / name)


def test_smoke_tunes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "run", run_here)
    assert commeff(written(tmp_path), "--scale", "smoke", "--store", str(tmp_path / "store"))[0] == 0
    assert [(labels["seed"], labels["lr"]) for labels, _ in runs(tmp_path / "store")] == [("0", "0.5")] * 3


def test_a_failed_run_of_tuning_is_named_and_nothing_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_fails(request: grids.Request) -> grids.Outcome:
        cells, chosen = grids.prepare(request, rehearsed=False)
        grids.describe(request, cells)
        for cell in chosen[1:]:
            run_one(cell.config, cell.folder)
        RunFolder(chosen[0].folder).path.mkdir()
        RunFolder(chosen[0].folder).mark("failed", error="of no reason")
        return grids.collect(request)

    monkeypatch.setattr(grids, "run", one_fails)
    code, told = commeff(written(tmp_path), "--store", str(tmp_path / "store"))
    assert code == 1
    assert "tuning: a optimizer.lr=0.01 seed 100 is failed" in told
    assert "nothing is chosen" in told
    assert {labels["seed"] for labels, _ in runs(tmp_path / "store")} == {"100", "101"}
    assert not (tmp_path / "store" / "pages" / "full" / "report.md").exists()


def test_interrupted_anywhere_it_ends_with_the_same_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def a_few(request: grids.Request) -> grids.Outcome:
        cells, chosen = grids.prepare(request, rehearsed=False)
        grids.describe(request, cells)
        left = [cell for cell in chosen if RunFolder(cell.folder).state not in FINISHED]
        for cell in left[:7]:
            run_one(cell.config, cell.folder)
        found = grids.collect(request)
        return grids.Outcome(found.cells, found.states, interrupted=len(left) > 7)

    file = written(tmp_path)
    monkeypatch.setattr(grids, "run", run_here)
    assert commeff(file, "--store", str(tmp_path / "quiet"))[0] == 0
    monkeypatch.setattr(grids, "run", a_few)
    codes = [commeff(file, "--store", str(tmp_path / "store"))[0] for _ in range(5)]
    assert codes == [130, 130, 130, 130, 0]
    for name in ("report.md", "values.csv"):
        assert page(tmp_path / "store", name) == page(tmp_path / "quiet", name)
