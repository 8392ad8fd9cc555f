"""What the README says is true: its code runs, its commands compose, its plug-in is short and keeps the laws."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import commeff.laws
from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import adopt, choices

ROOT = Path(__file__).parents[1]
PAGES = {path: path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
TEXT = PAGES[ROOT / "README.md"]
PLUGIN = ROOT / "tests" / "plugins" / "random_share.py"


def test_the_python_example_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    payload, wire = map(float, capsys.readouterr().out.split())
    assert payload == 100 * 4 * 1000
    assert wire == 2 * payload, "a ring has degree 2"


def test_the_page_on_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    code = "".join(re.findall(r"```python\n(.*?)```", PAGES[ROOT / "docs" / "python.md"], flags=re.DOTALL))
    names: dict = {}
    exec(compile(code, "python.md", "exec"), names)
    assert set(names["cells"]["state"]) == {"done"}
    assert (tmp_path / "runs" / "on_a_torus" / "summary.json").is_file()


def test_every_train_command_composes():
    commands = [c for page in PAGES.values() for c in re.findall(r"^commeff train (.*)$", page, flags=re.MULTILINE)]
    assert len(commands) >= 7
    for command in commands:
        words = shlex.split(command, comments=True)
        files = [str(ROOT / words[i + 1]) for i, word in enumerate(words) if word == "--plugin"]
        settings = [word for word in words if "=" in word]
        assert compose(settings, [choice for file in files for choice in choices(file)])


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_linked_exists(page: Path):
    links = [link for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]
