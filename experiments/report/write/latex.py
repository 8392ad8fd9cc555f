"""Tables in LaTeX: what `\\input` expects, and nothing to load but booktabs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from commeff.experiments.escape import latex_text
from commeff.experiments.report.write.table import Column, Item, Table

LONG = 32  # characters from which a cell of words may be broken into lines
WORD = 16  # and from which a word may be, after a sign or so many letters
LINES = 142.0  # points of such a column, 5 cm
PAGE = 345.0  # points: a line of LaTeX's article
SIZES = {"footnotesize": 4.4, "scriptsize": 4.0, "tiny": 3.2}  # points of a letter
COLSEP = 3.0  # points on either side of a column
HEADING = 9  # characters from which a heading may be broken into lines
SIGNS = "=._/,:;-"  # behind which a line may end
BREAKS = rf"([{SIGNS}]|\w{{{WORD}}})(?=.)"  # and within cells also behind so many letters
LOAD = r"% In the preamble: \usepackage{booktabs}"


def document(tables: Iterable[Table]) -> str:
    """All tables as floats with captions, for a paper that reads this file."""
    head = ["% The tables of a report, floating. Each alone, without float and caption: tables/NAME.tex.", LOAD]
    return "\n".join([*head, *map(floating, tables)]) + "\n"


def floating(table: Table) -> str:
    """A table with its caption: the title, the first note, and what its marks mean."""
    caption = " ".join([f"{table.title}.", *table.notes[:1], *table.marked()])
    head = [r"\begin{table}[tbp]", r"\centering", rf"\caption{{{latex_text(caption)}}}", rf"\label{{tab:{table.name}}}"]
    columns = _printed(table)
    widths = dict.fromkeys(SIZES, 0.0)
    for column, lines in zip(columns, zip(*_heads(columns), strict=True), strict=True):
        letters = max(map(len, (*lines, *(item.plain for item in column.items))))
        for size, point in SIZES.items():
            widths[size] += 2 * COLSEP + (LINES if _broken(column) else letters * point)
    size = next((size for size, width in widths.items() if width <= PAGE), [*SIZES][-1])
    return "\n".join(
        ["", *head, rf"\{size}", rf"\setlength{{\tabcolsep}}{{{COLSEP:g}pt}}", tabular(table), r"\end{table}"]
    )


def file(table: Table) -> str:
    """A table alone, and above it, as comments, what to load and how to read it."""
    notes = [f"% {latex_text(note)}" for note in (table.title, *table.notes)]
    return "\n".join([LOAD, *notes, tabular(table)]) + "\n"


def tabular(table: Table) -> str:
    """The columns that one would print."""
    columns = _printed(table)
    broken = [_broken(column) for column in columns]
    shapes = ["p{5cm}" if wide else "l" if c.words else "r" for c, wide in zip(columns, broken, strict=True)]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{''.join(shapes)}}}",
            r"\toprule",
            *(" & ".join(map(latex_text, line)) + r" \\" for line in _heads(columns) if any(line)),
            r"\midrule",
            *(" & ".join(map(_cell, row, broken)) + r" \\" for row in zip(*(c.items for c in columns), strict=True)),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _printed(table: Table) -> list[Column]:
    """The columns that LaTeX has."""
    return [column for column in table.columns if column.brief and column.printed]


def _heads(columns: Sequence[Column]) -> list[list[str]]:
    """The lines above the columns: headings, long ones in several, and below them units and the like.

    >>> _heads([Column("n"), Column("local models' loss", "mean")])
    [['', 'local'], ['', "models'"], ['n', 'loss'], ['', 'mean']]
    >>> _heads([Column("method.ratio")]), _heads([Column("disagreements")])
    ([['method.'], ['ratio']], [['disagreements']])
    """
    rooms = [max([HEADING, *(len(item.plain) for item in column.items)]) for column in columns]
    above = [_wrapped(column.heading, room) for column, room in zip(columns, rooms, strict=True)]
    below = [_wrapped(column.under, room) for column, room in zip(columns, rooms, strict=True)]
    high, low = (max(map(len, stacks), default=0) for stacks in (above, below))
    stacks = [[""] * (high - len(a)) + a + b + [""] * (low - len(b)) for a, b in zip(above, below, strict=True)]
    return [list(line) for line in zip(*stacks, strict=True)]


def _wrapped(words: str, room: int) -> list[str]:
    """Lines of at most `room` letters, broken after spaces and signs alone: a longer word has a line of its own."""
    lines = [""]
    for piece in re.findall(rf"[^\s{SIGNS}]*[\s{SIGNS}]*", words):
        if len((lines[-1] + piece).rstrip()) > room:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines if line]


def _broken(column: Column) -> bool:
    """Whether its cells take several lines."""
    return column.words and any(len(item.plain) > LONG for item in column.items)


def _cell(item: Item, broken: bool = False) -> str:
    r"""A cell; one that is `broken` into lines may be so within long words, too.

    >>> print(_cell(Item("95.1", "1.2", best=True)), _cell(Item("top_k & co")))
    \textbf{95.1} $\pm$ 1.2 top\_k \& co
    >>> print(_cell(Item("5.4", mark=" (2 of 3)")))
    5.4 (2 of 3)
    >>> print(_cell(Item("optimizer.learning_rate=0.1"), broken=True))
    \rightskip 0pt plus 1fil optimizer.\hspace{0pt}learning\_\hspace{0pt}rate=\hspace{0pt}0.\hspace{0pt}1
    """
    text = latex_text(item.text)
    if broken:
        words = (re.sub(BREAKS, r"\1\\hspace{0pt}", word) if len(word) > WORD else word for word in item.text.split())
        parts = (r"\hspace{0pt}".join(map(latex_text, word.split(r"\hspace{0pt}"))) for word in words)
        text = rf"\rightskip 0pt plus 1fil {' '.join(parts)}"  # what \raggedright does, but for the \\ of the row
    if item.best:
        text = rf"\textbf{{{text}}}"
    mark = " " * item.mark.startswith(" ") + latex_text(item.mark)
    return text + (rf" $\pm$ {latex_text(item.half)}" if item.half else "") + mark
