"""Reports name a plug-in's own repository, commit and digest, and never those of what it merely lies in."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commeff.experiments.config.compose import compose
from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.plugins import choices
from commeff.experiments.report.data import summary
from commeff.experiments.report.data.analysis import analyse
from commeff.experiments.run import system
from commeff.experiments.run.origins import plugin_info
from commeff.experiments.run.system import git_commit, revision
from tests import owned
from tests.experiments.report.report_stores import Forged, forge

SOURCE = """from commeff import Local, Strategy
from commeff.core.local import OptimizerFactory

def {name}(optimizer: OptimizerFactory) -> Strategy:
    return Strategy(Local(optimizer))
"""
ME = ("-c", "user.name=me", "-c", "user.email=me@example.org")


def git(folder: Path, *words: str) -> str:
    return owned.run(["git", "-C", str(folder), *ME, *words], check=True).stdout.strip()


def repository(folder: Path, *files: str) -> str:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q")
    git(folder, "add", *files)
    git(folder, "commit", "-q", "-m", "first")
    return git(folder, "rev-parse", "--short=10", "HEAD")


def test_a_plug_in_in_a_repository_has_its_commit(tmp_path: Path) -> None:
    file = tmp_path / "own_commit.py"
    file.write_text(SOURCE.format(name="own_commit"))
    commit = repository(tmp_path, file.name)
    git(tmp_path, "remote", "add", "origin", "https://me:secret@git.example/her/plugin.git")
    config = compose(["method=own_commit", "task=quadratic", "workers=4"], choices(str(file)))
    assert plugin_info(config) == {
        "own_commit.py": {
            "repository": "https://git.example/her/plugin.git",
            "commit": commit,
            "digest": source_digest(f"{file}:own_commit"),
        }
    }
    assert commit != git_commit()
    file.write_text(file.read_text() + "# other\n")
    assert plugin_info(config)["own_commit.py"]["commit"] == f"{commit}+"


def test_a_command_that_writes_into_the_tree_has_the_commit_of_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    first = git_commit()
    monkeypatch.setattr(system, "revision", lambda file: f"{first}+")
    assert git_commit() == first


def test_what_lies_in_the_folder_of_a_repository_is_not_of_it(tmp_path: Path) -> None:
    """As an environment in a project's folder does: its packages have other commits, or none."""
    (tmp_path / "project.txt").write_text("")
    repository(tmp_path, "project.txt")
    folder = tmp_path / ".venv" / "site-packages" / "commeff"
    folder.mkdir(parents=True)
    (folder / "system.py").write_text("")
    assert revision(folder / "system.py") == ""
    assert revision(tmp_path / "project.txt")


@pytest.mark.parametrize("from_git", [True, False])
def test_an_installed_package_says_where_it_comes_from(
    from_git: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"their_package_{from_git}".lower()
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(SOURCE.format(name=name))
    about = tmp_path / f"{name}-1.2.dist-info"
    about.mkdir()
    links = "Project-URL: Documentation, https://docs.example\nProject-URL: Source, https://git.example/theirs\n"
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n{links}")
    (about / "top_level.txt").write_text(f"{name}\n")
    if from_git:
        vcs = {"vcs": "git", "commit_id": "0123456789abcdef"}
        (about / "direct_url.json").write_text(json.dumps({"url": "https://you@git.example/fork.git", "vcs_info": vcs}))
    monkeypatch.syspath_prepend(tmp_path)
    config = compose([f"method={name}", "task=quadratic", "workers=4"], choices(name))
    found = plugin_info(config)[name]
    assert found.pop("digest") == source_digest(f"{name}:{name}")
    assert found == (
        {"version": "1.2", "repository": "https://git.example/fork.git", "commit": "0123456789"}
        if from_git
        else {"version": "1.2", "repository": "https://git.example/theirs"}
    )
    sys.modules.pop(name, None)


def test_the_report_names_them(tmp_path: Path) -> None:
    facts = {"mine.py": {"repository": "git.example/mine", "commit": "abc", "digest": "d" * 64}}
    runs = [Forged("psgd"), Forged("dsgd", environment={"plugins": facts})]  # type: ignore[dict-item]
    shown = dict(summary.facts(analyse(forge(tmp_path, runs))))
    assert shown["commit"] == "c"
    assert shown["plug-ins"] == "mine.py of git.example/mine at abc, digest dddddddddddd"
