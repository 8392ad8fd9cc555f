"""What the README says is true: its code runs, and a plug-in is short and keeps the laws. Pages: test_docs.py."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import commeff.laws
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import adopt

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PLUGIN = ROOT / "tests" / "plugins" / "random_share.py"


def test_the_python_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    payload, wire = map(float, capsys.readouterr().out.split())
    assert payload == 100 * 4 * 1000
    assert wire == 2 * payload, "a ring has degree 2"


def test_every_extra_is_named_and_no_other():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _, table = TEXT.split("| extra | for |\n|---|---|\n")
    rows = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(project["optional-dependencies"])


def test_the_reader_s_own_method_is_short_and_keeps_the_laws():
    assert len(PLUGIN.read_text(encoding="utf-8").splitlines()) < 30
    namespace: dict = {}
    exec(compile(PLUGIN.read_text(encoding="utf-8"), str(PLUGIN), "exec"), namespace)
    assert len(commeff.laws.check(namespace["random_share"])) == len(commeff.laws.LAWS)


def test_the_reader_s_own_model_is_short_and_lies_on_a_mesh(tmp_path: Path):
    file = ROOT / "tests" / "plugins" / "bigram.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) < 30
    (tmp_path / "text").write_bytes(bytes(range(256)) * 8)
    words = ["task=bigram", f"task.data={tmp_path / 'text'}", "task.context=16", "mesh.tensor=2", "method=diloco"]
    assert build(compose(words, adopt([str(file)])[0])).checkpoint > 0
