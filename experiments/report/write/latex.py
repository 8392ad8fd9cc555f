"""The tables as LaTeX: one file that compiles by itself, with tables to copy out of it."""

from __future__ import annotations

from collections.abc import Iterable

from commeff.experiments.report.data.tables import Column, Item, Table

ESCAPES = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": r"$-$",
    "×": r"$\times$",
    "–": "--",
    "±": r"$\pm$",
    "†": r"$^\dagger$",
    "‡": r"$^\ddagger$",
    "ρ": r"$\rho$",
    "‖": r"$\|$",
    "₂": r"$_2$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"\textquotedbl{}",
}
LONG = 60  # characters from which words are broken into lines
PREAMBLE = r"""% Compiles by itself: pdflatex tables.tex. A table copied from here needs the packages below.
\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,landscape,margin=1.5cm]{geometry}
\usepackage{array,booktabs,graphicx}
\pagestyle{empty}
\begin{document}
"""


def document(tables: Iterable[Table]) -> str:
    """The whole file."""
    return PREAMBLE + "\n".join(map(table, tables)) + "\n\\end{document}\n"


def table(each: Table) -> str:
    """A floating table, made narrower only where the page needs it."""
    shape = "".join(_shape(column, [row[i] for row in each.rows]) for i, column in enumerate(each.columns))
    lines = [" & ".join(_cell(item) for item in row) + r" \\" for row in each.rows]
    notes = " ".join(escape(note) for note in each.notes)
    return "\n".join(
        [
            rf"% {each.name}",
            r"\begin{table}[p]",
            r"\centering",
            rf"\caption{{{escape(each.title)}. {notes}}}",
            rf"\label{{tab:{each.name}}}",
            r"\small",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            *_heads(each.columns),
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}}",
            r"\end{table}",
        ]
    )


def _heads(columns: Iterable[Column]) -> list[str]:
    columns = list(columns)
    lines = [" & ".join(escape(column.heading) for column in columns) + r" \\"]
    if any(column.under for column in columns):
        lines.append(" & ".join(escape(column.under) for column in columns) + r" \\")
    return lines


def _shape(column: Column, items: Iterable[Item]) -> str:
    """How a column stands: numbers right, words left, long words in lines."""
    if not column.words:
        return "r"
    return r">{\raggedright\arraybackslash}p{6.5cm}" if any(len(item.text) > LONG for item in items) else "l"


def _cell(item: Item) -> str:
    r"""
    >>> print(_cell(Item("95.1", "1.2", best=True)), _cell(Item("top_k & co")))
    \textbf{95.1} $\pm$ 1.2 top\_k \& co
    """
    text = escape(item.text)
    if item.best:
        text = rf"\textbf{{{text}}}"
    return text + (rf" $\pm$ {escape(item.half)}" if item.half else "") + escape(item.mark)


def escape(text: str) -> str:
    r"""Text as LaTeX prints it; what it has no sign for becomes a question mark.

    >>> print(escape("top_k 2 % & more"))
    top\_k 2 \% \& more
    """
    known = "".join(ESCAPES.get(sign, sign) for sign in " ".join(text.split()))
    return known.encode("latin-1", "replace").decode("latin-1")
