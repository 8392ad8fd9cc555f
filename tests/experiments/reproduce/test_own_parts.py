"""Tables of a user's own: parts from plug-ins, no claims, LaTeX."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.plugins import choices
from commeff.experiments.reproduce import measures
from tests.experiments.reproduce.reproduced import Code
from tests.experiments.reproduce.test_reproduce import commeff, written

PLUGINS = Path(__file__).parents[2] / "plugins"


def plugin(folder: Path, name: str) -> str:
    shutil.copy(PLUGINS / name, folder / name)
    return str(folder / name)


def page_of(output: str) -> Path:
    found = re.search(r"^page: (.*)$", output, re.MULTILINE)
    assert found, output
    return Path(found[1])


def test_a_table_trains_methods_of_a_plug_in_and_names_its_digest(tmp_path: Path) -> None:
    own = plugin(tmp_path, "random_share.py")
    grid = [{"name": "a", "method": "psgd"}, {"name": "b", "method": "random_share", "method.ratio": [0.5, 1.0]}]
    file = written(tmp_path, grid=grid, claims=["final('wire_bytes')(r.b(ratio=0.5)) < final('wire_bytes')(r.a)"])
    words = (file, "--scale", "smoke", "--store", str(tmp_path / "store"))
    code, refused = commeff(*words)
    assert code == 2
    assert "one of your own needs --plugin FILE" in refused
    code, told = commeff(*words, "--plugin", own)
    assert code == 0, told
    page = page_of(told).read_text()
    digest = source_digest(f"{own}:random_share")
    assert f"random_share.py, digest {digest[:12]}" in page
    assert f"--plugin {own}" in page
    assert commeff(*words, "--plugin", own, "--dry-run")[1].count("finished") == 1


def test_a_table_measures_compressors_of_a_plug_in_by_their_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = plugin(tmp_path, "mean_sign.py")
    (name,) = {each.name for each in choices(own) if each.group == "compressor"}
    changes = {"measure": "compression", "show": ["error"], "figure": None, "claims": None}
    changes |= {"base": {"task": "quadratic", "task.dimension": 64, "method": "mem_sgd"}}
    file = written(tmp_path, **changes, grid=[{"name": "own", "compressor": name}, {"name": "q", "compressor": "qsgd"}])
    words = (file, "--scale", "smoke", "--store", str(tmp_path / "store"), "--plugin", own)
    code, told = commeff(*words)
    assert code == 0, told
    page = page_of(told)
    assert "digest" in page.read_text()
    measured = {*(tmp_path / "store/measured").iterdir()}
    assert commeff(*words)[0] == 0
    assert {*(tmp_path / "store/measured").iterdir()} == measured
    monkeypatch.setattr(measures, "source_digest", lambda target: "of other code")
    assert commeff(*words)[0] == 0
    assert len({*(tmp_path / "store/measured").iterdir()} - measured) == 1


def test_a_table_without_claims_has_its_numbers(tmp_path: Path) -> None:
    names = {"a": "parallel, dense", "b": "100 % gossip"}
    numbers = [Code("printed('a', 'payload_bytes', 640, 'us', spread=0.5)")]
    changes = {"claims": None, "names": names, "show": ["val_loss", "wire_bytes"]}
    code, told = commeff(written(tmp_path, **changes, numbers=numbers), "--store", str(tmp_path / "store"))
    assert code in (0, 3), told
    page = page_of(told)
    assert "## Measured" in page.read_text()
    assert "Claims" not in page.read_text()
    bare = commeff(written(tmp_path, **changes), "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"))
    assert bare[0] == 0
    assert "Scale: full." in (tmp_path / "out/report.md").read_text()


def test_progress_tells_cases_of_one_name_apart(tmp_path: Path) -> None:
    grid = [{"name": "a", "method": "local_sgd", "method.period": [2, 4], "optimizer.lr": [0.1, 0.2]}]
    from commeff.experiments.grid import command as grids
    from commeff.experiments.grid.local.scheduler import Limits
    from commeff.experiments.reproduce.runs import TableRun
    from commeff.experiments.reproduce.table import read_table

    table = read_table(Path(written(tmp_path, grid=grid, claims=None)), "full")
    plan = TableRun(table, tmp_path / "store", Limits(jobs=1))
    cells = grids.prepare(plan.reported().request, rehearsed=False)[1]
    assert [cell.title for cell in cells][:2] == ["a lr=0.1 period=2 seed 0", "a lr=0.2 period=2 seed 0"]
