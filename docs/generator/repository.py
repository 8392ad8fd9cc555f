"""Files of the repository in the site: pages that live outside docs/, and what pages link to there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "results/README.md": "results.md"}
COPIED = {".png", ".svg", ".pdf", ".html"}
LANGUAGES = {".py": "python", ".yaml": "yaml"}

_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^( *`{3,})[^`\n]*\n.*?^\1 *$", re.MULTILINE | re.DOTALL)


def place(path: str) -> str:
    """Where the site has a file of the repository: `tests/walks.py` is the page `repository/tests/walks.py.md`."""
    if path in PAGES:
        return PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"repository/{path}" if PurePosixPath(path).suffix in {*COPIED, ".md"} else f"repository/{path}.md"


def page(path: str) -> str:
    """The Markdown of a text file: a page as it is, any other as a block of code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    if path.endswith(".ipynb"):
        return _notebook(text)
    return f"# {path}\n\n````{LANGUAGES.get(PurePosixPath(path).suffix, 'text')}\n{text}````\n"


def _notebook(text: str) -> str:
    """A notebook's cells, one after the other."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells) + "\n"


def linked(text: str, path: str, found: Callable[[str], object]) -> str:
    """A page's text with its links as the site has them; one to a folder becomes its words.

    Parameters
    ----------
    text
        Markdown whose links are relative to the file, as a reader of the repository follows them.
    path
        The file, from the root of the repository.
    found
        Called with each file outside docs/ that is linked to, which the site has to have.
    """

    def link(match: re.Match[str]) -> str:
        words, (target, hash_, anchor) = match[1], match[2].partition("#")
        if "://" in target or not target:
            return match[0]
        there = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if (ROOT / there).is_dir():
            return words
        if (ROOT / there).is_file() and not there.startswith("docs/"):
            found(there)
        return f"[{words}]({os.path.relpath(place(there), os.path.dirname(place(path)))}{hash_}{anchor})"

    return outside_blocks(text, lambda part: _LINK.sub(link, part))


def outside_blocks(text: str, change: Callable[[str], str]) -> str:
    """The text changed wherever it is no block of code."""
    parts, end = [], 0
    for block in _BLOCK.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])
