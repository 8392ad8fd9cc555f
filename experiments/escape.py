r"""Text that others wrote, made fit for a terminal, a page, Markdown, LaTeX and CSV: it is shown, and does nothing.

>>> name = "a_b|<b>[x](http://y)"
>>> print(html_text(name), markdown_text(name), latex_text(name), sep="\n")
a_b|&lt;b&gt;[x](http://y)
a\_b\|&lt;b>\[x\](http\://y)
a\_b$|$$<$b$>${[}x{]}(http://y)
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable

# Control characters but line breaks and tabs, what turns the direction of text, what is invisible, half characters.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # the first of a line would be an argument of the \\ before it
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
    "°": r"$^\circ$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': "{''}",
}
FORMULA = ("=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}")  # of a spreadsheet's cell
MARKDOWN = (  # a pattern, and what is written for it
    (r"([\\`*_|~\[\]])", r"\\\1"),
    (r"&(?=#?\w+;)", "&amp;"),
    (r"<", "&lt;"),
    (r"^>", "&gt;"),
    (r"^(?=[#+=-]+( |$))", r"\\"),  # headings, lists and rules
    (r"(?i)\b(https?|ftp):(?=//)", r"\1\\:"),  # links
    (r"(?i)\bwww\.", r"www\\."),
)
PROSE = (  # likewise, in a paragraph; emphasis stays
    (r"([\\`\[\]])", r"\\\1"),
    (r"^(?=[*_]+( |$)|~~~)", r"\\"),  # lists, rules and fences
    *MARKDOWN[1:],
)
CODE = re.compile(r"(?<!`)(`+)(?!`)(.*?[^`])\1(?!`)")  # in Markdown


MATH = re.compile(r":math:`([^`]*)`")
LETTERS = (  # of LaTeX, and what stands for them in a line of plain text
    (r"\\[td]?frac(\w)(\w)", r"\1/\2"),
    (r"\\[td]?frac(\w)\{([^{}]*)\}", r"\1/(\2)"),
    (r"\\[td]?frac\{([^{}]*)\}\{?(\w)\}?", r"(\1)/\2"),
    (r"\\(?:mathrm|text)\{([^{}]*)\}", r"\1"),
    (r"\\[lr]Vert\b ?", "||"),
    (r"\\leftarrow\b", "<-"),
    (r"\\ge\b", ">="),
    (r"\\le\b", "<="),
    (r"\\pm\b", "+-"),
    (r"\\sim\b", "~"),
    (r"\\otimes\b", "(x)"),
    (r"\\succ\b", ">"),
    (r"\^\\top\b", "^T"),
    (r"\\bmod\b", "mod"),
    (r"\\epsilon\b", "eps"),
    (r"\\[,;!]", " "),
    (r"\\(?=[A-Za-z])", ""),
    (r"\{(\w+)\}", r"\1"),
    (r"\{([^{}]*)\}", r"(\1)"),
)


def plain_math(text: str) -> str:
    r"""A docstring as a terminal shows it: its mathematics as one types it, names between single backticks.

    >>> plain_math(r":math:`\tfrac13 + \tfrac23\cos(2\pi k/n)` and ``lazy(ring(n))``")
    '1/3 + 2/3 cos(2 pi k/n) and `lazy(ring(n))`'
    >>> plain_math(r":math:`A(u) = \tfrac{n-1}{n} P^u`, :math:`W_{jj} \leftarrow W_{jj} + W_{ij}`")
    'A(u) = (n-1)/n P^u, W_jj <- W_jj + W_ij'
    """

    def typed(math: re.Match[str]) -> str:
        line = re.sub(r"(?<=[\d}])\s*(?=\\[a-z])", " ", math[1])
        for pattern, plain in LETTERS:
            line = re.sub(pattern, plain, line)
        return line

    return re.sub(r"``([^`\n]+)``", r"`\1`", MATH.sub(typed, text))


def visible(text: str) -> str:
    r"""Text without signs that a reader does not see but a terminal obeys; they are written as Python writes them.

    >>> visible("red \x1b[31m\ttext\n")
    'red \\x1b[31m\ttext\n'
    """
    return HIDDEN.sub(lambda sign: sign[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The words of a text in one line."""
    return visible(" ".join(re.split(r"[ \t\r\n]+", text.strip())))


def html_text(text: str) -> str:
    r"""Text in HTML, also inside the quotes of an attribute.

    >>> html_text("'\u202e<b>")
    '&#x27;\\u202e&lt;b&gt;'
    """
    return html.escape(visible(text))


def markdown_text(text: str) -> str:
    """Text in a line or a cell of Markdown: no markup, no links, no line breaks."""
    return _written(one_line(text), MARKDOWN)


def markdown_prose(text: str) -> str:
    """Text as a paragraph or an item of Markdown, in which `code` is code; no HTML, links, pictures or line breaks.

    >>> print(markdown_prose("`a_b <c>` is a_b <c>, not [d](e)"))
    `a_b <c>` is a_b &lt;c>, not \\[d\\](e)
    """
    line, parts, end = one_line(text), list[str](), 0
    for code in CODE.finditer(line):
        parts += [_written(line[end : code.start()], PROSE, begins=end == 0), code[0]]
        end = code.end()
    return "".join([*parts, _written(line[end:], PROSE, begins=end == 0)])


def _written(text: str, patterns: Iterable[tuple[str, str]], begins: bool = True) -> str:
    """Text with what is written for each pattern; what only counts in front of a line where one `begins`."""
    for pattern, written in patterns:
        if begins or not pattern.startswith("^"):
            text = re.sub(pattern, written, text)
    return text


def markdown_block(text: str) -> str:
    """A line as a block of code, in a fence that is longer than any in the line.

    >>> print(markdown_block("commeff report ```runs```"))
    ````
    commeff report ```runs```
    ````
    """
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n{one_line(text)}\n{fence}"


def markdown_code(text: str) -> str:
    """A line as code within a line, between more backticks than there are in it.

    >>> print(markdown_code("commeff report runs"), markdown_code("a `b`"))
    `commeff report runs` `` a `b` ``
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, blank = "`" * (longest + 1), " " * bool(longest)
    return f"{fence}{blank}{one_line(text)}{blank}{fence}"


def latex_text(text: str) -> str:
    r"""Text in LaTeX, in the fonts that it has without packages; what they have no sign for becomes a question mark.

    >>> print(latex_text(r"top_k 2 % & \input{x}"), latex_text("é \N{GREEK SMALL LETTER MU} «"))
    top\_k 2 \% \& \textbackslash{}input\{x\} é ? ?
    """
    return "".join(LATEX.get(sign) or (sign if _has_sign(sign) else "?") for sign in one_line(text))


def _has_sign(sign: str) -> bool:
    """ASCII, and letters of Western Europe with accents."""
    return sign.isascii() or (sign < "\u0100" and unicodedata.decomposition(sign)[:1] not in ("", "<"))


def spreadsheet_text(text: str) -> str:
    """Text in a CSV file: a spreadsheet that opens it computes nothing.

    >>> spreadsheet_text("=HYPERLINK(1)"), spreadsheet_text("-0.5"), spreadsheet_text("a = b"), spreadsheet_text("-")
    ("'=HYPERLINK(1)", '-0.5', 'a = b', '-')
    """
    try:
        float(text)
    except ValueError:
        return f"'{text}" if len(text) > 1 and text.lstrip()[:1] in FORMULA else text
    return text


def file_name(text: str) -> str:
    """Text as a part of a file's name.

    >>> file_name("optimizer.lr"), file_name("../../x")
    ('optimizer_lr', 'x')
    """
    return re.sub(r"[^\w-]+", "_", text, flags=re.ASCII).strip("_") or "_"
