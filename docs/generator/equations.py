"""Equations as docstrings write them, `x_i <- sum_j W[i, j] (x_j - gamma g_j)`, as LaTeX and as MathML."""

from __future__ import annotations

import re

GREEK = {"alpha", "beta", "gamma", "delta", "eta", "mu", "omega", "rho", "tau", "epsilon", "lambda", "Delta", "xi"}
SIGNS = {
    "<-": r"\leftarrow",
    "->": r"\to",
    "<=": r"\le",
    ">=": r"\ge",
    "...": r"\dots",
    "sqrt": r"\operatorname{sqrt}",
    "sum": r"\sum",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
}
_TOKEN = re.compile(
    r"(?P<quoted>`[^`]+`(-\w+)?)|(?P<sign><-|->|<=|>=|\.\.\.|[%&#])|(?P<script>[_^])|(?P<fraction>\(1/[a-z]\))"
    r"|(?P<weight>[WPA]\[[^\]]+\])|(?P<word>[A-Za-z]{2,}\d+|[A-Za-z]+(?:-[a-z]+)*)|(?P<number>\d+(?:\.\d+)?)|(?P<space>\s+)|(?P<other>.)"
)


def latex(line: str) -> str:
    r"""A line of plain mathematics and English as LaTeX: names of one letter and Greek ones are symbols, others words.

    >>> latex("x <- x - gamma (1/n) sum_j g_j")
    'x\\leftarrow x-\\gamma \\frac{1}{n}\\sum _{j}g_{j}'
    """
    result = ""
    words: list[str] = []
    tokens = [(match.lastgroup, match[0]) for match in _TOKEN.finditer(line)]
    place = 0

    def end_words() -> None:
        nonlocal result
        if words:
            result += rf"\text{{ {' '.join(words)} }}"
            words.clear()

    while place < len(tokens):
        kind, text = tokens[place]
        after = tokens[place + 1 :]
        place += 1
        if kind == "word" and not _symbol(text) and not (after and after[0][1] == "("):
            words.append(text)
            continue
        if kind == "quoted":
            words.append(text.replace("`", ""))
            continue
        if kind == "space":
            if len(text) > 1:
                end_words()
                result += r"\quad "
            continue
        end_words()
        if kind == "script":
            inner, used = _group(after)
            result += f"{text}{{{inner}}}"
            place += used
        elif kind == "word" and len(text) > 1 and text not in GREEK and text not in SIGNS:
            result += rf"\operatorname{{{text}}}"
        elif kind == "word" and text in GREEK:
            result += f"\\{text} "
        elif kind == "fraction":
            result += rf"\frac{{1}}{{{text[3]}}}"
        elif kind == "weight":
            result += f"{text[0]}_{{{text[2:-1].replace(', ', '')}}}"
        else:
            result += SIGNS[text] + " " if text in SIGNS else text
    end_words()
    return result.strip()


def _symbol(word: str) -> bool:
    """Whether a word stands for a quantity or an operator."""
    return len(word) == 1 or word in GREEK or word in SIGNS


def _group(tokens: list[tuple[str | None, str]]) -> tuple[str, int]:
    """What a subscript or superscript applies to, and how many tokens that are."""
    if tokens and tokens[0][1] == "{":
        end = next(place for place, (_, text) in enumerate(tokens) if text == "}")
        return latex("".join(text for _, text in tokens[1:end])), end + 1
    if tokens and tokens[0][1] == "(":
        end = next(place for place, (_, text) in enumerate(tokens) if text == ")")
        return latex("".join(text for _, text in tokens[: end + 1])), end + 1
    text = tokens[0][1]
    return r"\top" if text == "T" else latex(text), 1


def mathml(source: str, block: bool = False) -> str:
    """LaTeX as MathML that Markdown leaves alone."""
    from latex2mathml.converter import convert

    made = convert(source, display="block" if block else "inline")
    for sign in "*_`[]":
        made = made.replace(sign, f"&#{ord(sign)};")
    made = made.replace("<mo>&#x02016;", '<mo stretchy="false">&#x02016;')
    return made if block else f"<span>{made}</span>"  # a tag of its own at the start of a line would end the paragraph


def equations(block: str) -> str:
    """Lines of a docstring's equation as one element of HTML."""
    lines = [mathml(latex(line.strip()), block=True) for line in block.strip().splitlines()]
    return f'<div class="equation">{"".join(lines)}</div>'
