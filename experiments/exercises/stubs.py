"""The exercises' pages, and the files that students begin with; nothing slow is imported."""

from __future__ import annotations

import ast
from pathlib import Path

from commeff.require import did_you_mean

NAMES = (  # in the lectures' order
    "ring_all_reduce",
    "gossip",
    "local_sgd",
    "diloco",
    "qsgd",
    "ef_sgd",
    "power_sgd",
    "d2",
    "zero_memory",
    "one_f_one_b",
)
BEGIN = "\n## Begin with\n"
_PAGES = Path(__file__).parent / "pages"


def page(name: str) -> str:
    """An exercise's page, Markdown with the stub at its end."""
    if name not in NAMES:
        raise ValueError(f"no exercise {name!r}{did_you_mean(name, NAMES)}; `commeff exercise list` names them")
    return (_PAGES / f"{name}.md").read_text(encoding="utf-8")


def title(name: str) -> str:
    """The first line of a page.

    >>> title("local_sgd")
    'Local SGD: average the parameters every H steps'
    """
    return page(name).partition("\n")[0].removeprefix("# ")


def stub(name: str) -> str:
    """The file that a student begins with: the page as its docstring, then what is to be written."""
    text, _, block = page(name).partition(BEGIN)
    code = block.partition("```python\n")[2].partition("```")[0]
    return f'"""{text.strip()}\n"""\n\n{code}'


def write_stub(name: str, folder: Path) -> Path:
    """Write NAME.py into a folder; a file that is there stays as it is.

    Raises
    ------
    FileExistsError : if there is one.
    """
    text, file = stub(name), folder / f"{name}.py"
    with file.open("x", encoding="utf-8") as opened:
        opened.write(text)
    return file


def answered(file: Path) -> str:
    """The exercise that a file answers: the one whose name one of its functions has.

    Raises
    ------
    ValueError : if it is no Python file, or answers none or several.
    """
    if file.suffix != ".py":
        raise ValueError(f"{file} must end in .py: `commeff exercise new NAME` writes such a file")
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        raise ValueError(f"{file} is no Python: {line}{getattr(error, 'msg', error)}") from None
    written = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    exercises = [name for name in NAMES if name in written]
    if len(exercises) != 1:
        raise ValueError(
            f"{file} must define the function of one exercise, got {', '.join(exercises) or 'none'}: keep the names of "
            "the stub that `commeff exercise new NAME` writes"
        )
    return exercises[0]
