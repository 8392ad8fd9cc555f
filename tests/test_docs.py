"""What the pages say is true: their Python runs, their commands are ones, and what they show runs in their order.

A page is found by lying in docs/. Its blocks of code are held to their language:

- `python` is run, one block after the other in one namespace, in an empty folder; with a `title="FILE"` any block is
  written to that file instead, and is the file of that name in tests/plugins or examples where there is one.
- `bash` is run, line by line, in that folder.
- `py` is a piece of something larger: it is compiled, and what it imports is there.
- A block that begins with `$ commeff` is what that command prints, or the beginning of it.
- In other blocks, and in the README, every line that begins with `commeff` is a command with options that exist, and a
  `commeff train` composes.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from commeff import laws
from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.config.plugins import choices
from tests import owned

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = {"tutorial.md", "own_script.md"}  # whose commands take more than a few seconds
_FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    language: str
    title: str
    code: str


def blocks(page: Path) -> Iterator[Block]:
    for indent, _, words, code in _FENCE.findall(page.read_text(encoding="utf-8")):
        title = _TITLE.search(words)
        lines = [line.removeprefix(indent) for line in code.splitlines(keepends=True)]
        yield Block(words.split()[0] if words.split() else "", title[1] if title else "", "".join(lines))


def lines(code: str) -> list[str]:
    """The commands of a block, without their remarks; one that goes on in the next line is one."""
    return [line.strip() for line in re.sub(r"\\\n\s*", " ", code).splitlines() if line.strip()]


def executed(page: Path) -> bool:
    return any(block.language in ("python", "bash") or block.title for block in blocks(page))


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.name in SLOW)) for page in PAGES if executed(page)],
    ids=lambda page: page.name,
)
def test_what_a_page_runs_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
            kept = [
                file
                for file in (ROOT / "tests/plugins" / block.title, ROOT / "examples" / block.title)
                if file.exists()
            ]
            assert all(block.code == file.read_text(encoding="utf-8") for file in kept), (
                f"{block.title} is another file"
            )
        elif block.language == "python":
            exec(compile(block.code, page.name, "exec"), names)
        elif block.language == "bash":
            for line in lines(block.code):
                run(line)


def run(line: str) -> None:
    """A command of a page, which has to succeed; ours in this process, where torch is there already."""
    words = shlex.split(line, comments=True)
    if words[0] == "commeff":
        result = CliRunner().invoke(app, words[1:])
        assert result.exit_code == 0, f"{line}: {result.output}"
    elif words[0] == "torchrun":
        owned.run([sys.executable, "-m", "torch.distributed.run", *words[1:]], check=True)
    else:
        owned.run(["bash", "-c", line], check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_is_python_and_yaml(page: Path):
    for block in blocks(page):
        if block.language == "py":
            check_python(block.code)
        elif block.language == "yaml":
            assert yaml.safe_load(block.code)


def check_python(code: str) -> None:
    """It compiles, and what it imports of ours is there."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("commeff"):
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module} has no {name.name}"
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("commeff", "methods")
        ):
            module = importlib.import_module("commeff" if node.value.id == "commeff" else "commeff.methods")
            assert hasattr(module, node.attr), f"{module.__name__} has no {node.attr}"


COMMANDS = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")
    for page in PAGES
    for block in blocks(page)
    if block.language not in ("python", "py", "yaml") or block.title
    for line in lines(block.code)
    for words in [
        shlex.split(re.sub(r"^(\$|sudo|srun .*?(?=commeff)|torchrun .*?-m (?=commeff)) ?", "", line), comments=True)
    ]
    if words[:1] == ["commeff"]
]


def test_there_are_commands():
    assert len(COMMANDS) >= 40


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_is_one(words: list[str]):
    """Its options and arguments are those that the command has; what it would train composes."""
    group = typer.main.get_command(app)
    name, command, rest = group.resolve_command(typer.Context(group), words[1:])
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(typer.Context(command), rest)
    command.make_context(name, list(rest))
    if name == "train":
        plugins = [rest[place + 1] for place, word in enumerate(rest) if word == "--plugin"]
        files = [str(found) for file in plugins if (found := ROOT / file).exists()]
        if len(files) == len(plugins):  # those of a page are run there
            assert compose(
                [word for word in rest if "=" in word], [choice for file in files for choice in choices(file)]
            )


PRINTED = [block.code for page in PAGES for block in blocks(page) if block.code.startswith("$ commeff ")]


@pytest.mark.parametrize("code", PRINTED)
def test_a_command_prints_what_a_page_says(code: str):
    line, _, printed = code.partition("\n")
    result = CliRunner().invoke(app, shlex.split(line)[2:])
    assert result.output.startswith(printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_marks_of_a_merge(page: Path):
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", page.read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_linked_exists(page: Path):
    made = re.compile(r"(api|catalogue)/\w+\.md")  # by `make docs`, which checks links to them
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8"))]
    files = [link for link in links if link and "://" not in link and not made.fullmatch(link)]
    assert not [link for link in files if not (page.parent / link).exists()]


def test_the_table_of_laws_has_every_law_and_no_other():
    table = (ROOT / "docs" / "write_method.md").read_text(encoding="utf-8").split("## The laws")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    names = [law.__name__.replace("_", " ") for law in (*laws.LAWS, *laws.INFORMATION)]
    assert rows == ["`check` says", "form", *names]
