"""The exercises: right solutions pass, each mistake breaks a law, and whatever a file does is a line."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest
from typer.testing import CliRunner, Result

from commeff.experiments.cli import app
from commeff.experiments.exercises import grade
from commeff.experiments.exercises.assignment import Assignment, Solution
from commeff.experiments.exercises.grade import EXERCISES, judge
from commeff.experiments.exercises.stubs import NAMES, page, stub
from tests.experiments.exercises import right

ASSIGNMENTS = [assignment for assignments in EXERCISES.values() for assignment in assignments]


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, ["exercise", *words])


def mistakes() -> Iterator[tuple[Assignment, FunctionType]]:
    """The functions of wrong/, each with what it answers: what its name begins with, else the exercise's first."""
    for name, assignments in EXERCISES.items():
        for function in vars(import_module(f"tests.experiments.exercises.wrong.{name}")).values():
            if isinstance(function, FunctionType) and not function.__name__.startswith("_"):
                begun = [other for other in assignments[1:] if function.__name__.startswith(f"{other.name}_")]
                yield (begun or [assignments[0]])[0], function


MISTAKES = [pytest.param(*each, id=f"{each[0].name} {each[1].__name__}") for each in mistakes()]


def broken(assignment: Assignment, solution: Solution | None, seconds: float = grade.SECONDS) -> list[str]:
    return [verdict.sentence for verdict in judge(assignment, solution, "", seconds) if verdict.state == "broken"]


@pytest.mark.parametrize("assignment", ASSIGNMENTS, ids=lambda assignment: assignment.name)
def test_what_is_right_passes(assignment: Assignment) -> None:
    for solution in (getattr(right, assignment.name), assignment.right):
        assert broken(assignment, solution) == []


@pytest.mark.parametrize(("assignment", "solution"), MISTAKES)
def test_a_mistake_breaks_a_law(assignment: Assignment, solution: FunctionType) -> None:
    assert broken(assignment, solution)


def test_there_are_at_least_thirty_mistakes_and_some_of_each_exercise() -> None:
    assert len(MISTAKES) >= 30
    assert {*EXERCISES} == {*NAMES}
    assert {assignment.name for assignment, _ in mistakes()} >= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_lists_its_laws_and_its_functions(name: str) -> None:
    graded = page(name).partition("## What is graded\n\n")[2].partition("\n\n")[0]
    assert graded.splitlines() == [f"- {law.expected}" for assignment in EXERCISES[name] for law in assignment.laws]
    written = [node for node in ast.parse(stub(name)).body if isinstance(node, ast.FunctionDef)]
    assert [node.name for node in written] == [assignment.name for assignment in EXERCISES[name]]
    for node in written:
        assert f"`{node.name}({', '.join(a.arg for a in node.args.args)})`" in page(name)
        code = getattr(right, node.name).__code__
        assert [a.arg for a in node.args.args] == [*code.co_varnames[: code.co_argcount]]


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_is_written_once_and_graded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("new", name).exit_code == 0
    again = invoke("new", name)
    assert (again.exit_code, again.stderr) == (2, f"commeff: {name}.py: cannot be written (File exists)\n")
    ended = invoke("grade", f"{name}.py", "--json")
    verdicts = json.loads(ended.stdout)
    assert ended.exit_code == 1
    assert {verdict["state"] for verdict in verdicts} == {"broken"}
    assert all("NotImplementedError: write" in verdict["sentence"] for verdict in verdicts)


def test_a_file_of_any_name_is_graded(tmp_path: Path) -> None:
    file = tmp_path / "miller.py"
    file.write_text(SGD.format(due="(k + 1)"))
    ended = invoke("grade", str(file))
    assert (ended.exit_code, ended.stdout.splitlines()[-1]) == (0, "3 of 3 laws hold")
    file = tmp_path / "mueller.py"
    file.write_text(SGD.format(due="k"))
    ended = invoke("grade", str(file))
    assert ended.exit_code == 1
    assert len(ended.stdout.splitlines()) == 4
    assert "BROKEN with period 3 it is `methods.local_sgd`: x after step k = 0: expected" in ended.stdout


SGD = """
def local_sgd(x, gradient, lr, period, steps):
    print("noise")
    for k in range(steps):
        x = x - lr * gradient(x, k)
        if {due} % period == 0:
            x[:] = x.mean(axis=0)
    return x
"""
BAD = {  # a file, and the one line on it
    "def gossip(): ...\ndef d2(): ...": "got gossip, d2",
    "import nowhere\ndef gossip(): ...": "cannot be loaded: ModuleNotFoundError",
    "raise SystemExit(0)\ndef gossip(): ...": "cannot be loaded: SystemExit",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_no_solution_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    ended = invoke("grade", str(file))
    assert (ended.exit_code, ended.stdout, len(ended.stderr.splitlines())) == (2, "", 1)
    assert BAD[text] in ended.stderr


def endless(x, gradient, w, lr, steps):  # type: ignore[no-untyped-def]
    while True:
        pass


ODD = {  # what a student's function may do, and what is said
    "not done after 0.2 s: is there a loop without an end?": endless,
    "it returns None": lambda x, gradient, w, lr, steps: None,
    "expected shape (4, 12), got (12,)": lambda x, gradient, w, lr, steps: x[0],
    "expected numbers, got str": lambda x, gradient, w, lr, steps: ["x"],
    "expected -": lambda x, gradient, w, lr, steps: x + float("nan"),
    "of shape (4, 12), got (12,)": lambda x, gradient, w, lr, steps: gradient(x[0], 0),
    "TypeError": lambda x: x,
    "SystemExit": lambda x, gradient, w, lr, steps: exec("raise SystemExit(0)"),
    "there is no function gossip": None,
}


@pytest.mark.parametrize("words", ODD)
def test_whatever_a_function_does_is_said(words: str) -> None:
    assert words in broken(EXERCISES["gossip"][0], ODD[words], 0.2 if "not done" in words else 10)[0]
