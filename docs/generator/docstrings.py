"""Docstrings as Markdown: their equations set, their tables and examples as Markdown has them.

At a terminal (`commeff show`, help) docstrings are plain text; this is the one place that makes more of them.
"""

from __future__ import annotations

import re

from docs.generator.equations import equations, mathml

_SECTION = re.compile(r"^[A-Z][A-Za-z ]+\n-{3,}$", re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4,}\S.*\n?)+")
_EXAMPLE = re.compile(r"(?:(?<=\n\n)|\A)>>> (?:.+\n?)+")
_TABLE = re.compile(r"^(=+(?: +=+)+)\n((?:.+\n)+?)(?:\1\n((?:.+\n)+?))?\1$", re.MULTILINE)
_SHOUTED = re.compile(
    r"^(Memory|When|Sends)(?=[: ])|(?<=\. )(Sends|Memory)(?=(?: at every step[^:]{0,40})?:)", re.MULTILINE
)
_CODE = re.compile(r"Strategy\(|commeff |import |make |\"")
_ARXIV = re.compile(r"arXiv[ :](\d{4}\.\d{4,5})")


def markdown(text: str, mathematics: bool = True) -> str:
    """A docstring as Markdown.

    Parameters
    ----------
    text
        The docstring. Its sections of parameters and examples stay as they are, for griffe to read.
    mathematics
        Whether blocks that are indented are equations, unless they look like code.
    """
    begin = _SECTION.search(text)
    body, sections = (text[: begin.start()], text[begin.start() :]) if begin else (text, "")
    return _prose(body, mathematics) + _inline(sections)


def _prose(text: str, mathematics: bool) -> str:
    text = _TABLE.sub(_table, text)
    text = re.sub(
        r"^\.\. math:: (.+)$",
        lambda match: f'<div class="equation">{mathml(match[1], block=True)}</div>',
        text,
        flags=re.M,
    )
    if mathematics:
        text = _INDENTED.sub(
            lambda match: (
                match[0] if _CODE.search(match[0]) or not re.search("=|<-", match[0]) else f"{equations(match[0])}\n"
            ),
            text,
        )
    text = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)
    text = _SHOUTED.sub(lambda match: f"**{match[0]}**", text)
    return _inline(text)


def _inline(text: str) -> str:
    text = re.sub(r":math:`([^`]+)`", lambda match: mathml(match[1]), text)
    return _ARXIV.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def _table(match: re.Match[str]) -> str:
    """A simple table of reStructuredText, with a head or without."""
    rule, first, second = match.groups()
    columns = [(piece.start(), piece.end()) for piece in re.finditer("=+", rule)]
    rows: list[list[str]] = []
    for line in (second or first).splitlines():
        cells = [line[begin : None if end == columns[-1][1] else end].strip() for begin, end in columns]
        if cells[0] or not rows:
            rows.append(cells)
        else:  # a line that goes on
            rows[-1] = [f"{above} {below}".strip() for above, below in zip(rows[-1], cells, strict=True)]
    head = [first.strip()[begin:end].strip() for begin, end in columns] if second else [""] * len(columns)
    lines = [head, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
