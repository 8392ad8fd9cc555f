"""Figures as panels: each panel draws on axes of its own, so that a page lays them out and a PDF has them together."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from commeff.experiments.escape import spreadsheet_text
from commeff.files import regular, writing

INK, QUIET, RULE = "#1f2328", "#656d76", "#d8dee4"
NO_DATE = {"CreationDate": None, "Producer": None, "Creator": None}
FONT_SIZE = 8.5  # points
SMALL = 8.0  # of labels
HINTED = 1.06  # letters of pixels are so much wider
LINE = 0.19  # inches from one line of a legend to the next
LETTER = 0.068  # inches of a letter of it
LOWER = 0.14  # inches from one line of a name to the next
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a2f5d")  # after Okabe and Ito
INKS = {INK: "var(--ink)", QUIET: "var(--quiet)", RULE: "var(--rule)"} | {
    colour: f"var(--c{number})" for number, colour in enumerate(COLOURS)
}
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.4, 1.4)), (0, (6, 1.5, 1.4, 1.5)))
MARKERS = "osD^vPX*"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "axes.titlesize": FONT_SIZE,
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # above the axes at once: nothing is measured to find where
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.formatter.useoffset": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "commeff",
    "pdf.fonttype": 42,
}


@dataclass(frozen=True)
class Look:
    """How a variant is drawn: colours that colour-blind readers tell apart, and a dash and a marker besides."""

    colour: str
    dash: Any
    marker: str
    width: float = 1.5
    hollow: bool = False

    @property
    def line(self) -> dict[str, Any]:
        """The arguments with which matplotlib draws a line so."""
        line = {"color": self.colour, "linestyle": self.dash, "linewidth": self.width, "marker": self.marker}
        return line | {"fillstyle": "none" if self.hollow else "full"}


def look(position: int) -> Look:
    """The look of the variant at a position; position 0 is the baseline, in ink.

    >>> len({(look(i).colour, look(i).dash) for i in range(29)})
    29
    """
    if position == 0:
        return Look(INK, "-", MARKERS[0], 2.0)
    i = position - 1
    return Look(
        COLOURS[i % len(COLOURS)],
        DASHES[(i % len(COLOURS) + i // len(COLOURS)) % len(DASHES)],
        MARKERS[(i + 1) % len(MARKERS)],
    )


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    name: str
    draw: Callable[[Axes], None]
    width: float = 4.7  # inches
    height: float = 2.75
    margins: tuple[float, float, float, float] = (0.58, 0.1, 0.42, 0.27)  # left, right, bottom, top, in inches

    def box(self, left: float, bottom: float, size: tuple[float, float]) -> tuple[float, float, float, float]:
        """Where its axes lie on a canvas, in parts of the canvas, if its corner is at (left, bottom) inches.

        Margins are the same in all panels, so axes beside and below each other line up; and measuring text would take
        longer than drawing it.
        """
        a, b, c, d = self.margins
        width, height = self.width - a - b, self.height - c - d
        return ((left + a) / size[0], (bottom + c) / size[1], width / size[0], height / size[1])


@dataclass(frozen=True)
class Figure:
    """Panels that belong together; `columns` wide on paper, `data` beside them as CSV."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    columns: int
    data: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    legend: Sequence[tuple[str, Look]] = ()
    small: bool = False  # many to a line of the page
    kind: str = ""  # its name but for the task, where there are several


def svg(figure: Figure, panel: Panel) -> str:
    """A panel as SVG to stand inside a page: text stays text, inks follow the page's, ids are the panel's own."""
    with mpl.rc_context(STYLE):
        size = (panel.width, panel.height)
        canvas = Canvas(figsize=size)
        panel.draw(canvas.add_axes(panel.box(0, 0, size)))
        buffer = io.StringIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), f"{figure.name}-{panel.name}")


def _inline(text: str, prefix: str) -> str:
    """An SVG file made fit to stand in a page beside others.

    >>> _inline('<?xml?><svg width="9pt" viewBox="0 0 9 8"><g id="variant-3"/><use xlink:href="#a"/></svg>', "p")
    '<svg viewBox="0 0 9 8"><g class="series s3"/><use href="#p-a"/></svg>'
    """
    text = text[text.index("<svg") :]
    for pattern in (r"<metadata>.*?</metadata>\s*", r"<defs>\s*<style.*?</style>\s*</defs>\s*", r"<!--.*?-->\s*"):
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| version="[^"]*"', "", text)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r" font-family: [^;\"]*;", "", text)
    text = re.sub(r"<[^>]*>", lambda match: _short(match[0]), text)
    text = re.sub(r'id="variant-(\d+)-group-(\d+)"', r'class="series s\1 g\2"', text)
    text = re.sub(r'id="variant-(\d+)"', r'class="series s\1"', text)
    text = re.sub(r'id="group-(\d+)"', r'class="series g\1"', text)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(?:xlink:)?href="#', f'href="#{prefix}-', text).replace("url(#", f"url(#{prefix}-")
    for ink, variable in INKS.items():
        text = text.replace(ink, variable)
    return text.strip()


def _short(tag: str) -> str:
    """An SVG tag with coordinates down to a hundredth of a point.

    >>> _short('<path d="M 1.23456 7 L 0.5 -2.718281"/>')
    '<path d="M 1.23 7 L 0.5 -2.71"/>'
    """
    return re.sub(r"(\d\.\d\d)\d+", r"\1", tag)


def letters(size: float) -> float:
    """Points of letters that are so large where all others have their usual size."""
    return float(size * mpl.rcParams["font.size"] / FONT_SIZE)


def folded(text: str, room: float) -> str:
    """A name in lines that are `room` inches long at most, in small letters.

    >>> folded("mem_sgd top_k ratio=0.02", 1.0)
    'mem_sgd top_k\\nratio=0.02'
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines[-1:] = [longer] if inches_wide(longer) <= room or not lines[-1] else [lines[-1], word]
        while inches_wide(lines[-1]) > room and len(lines[-1]) > 8:  # a word that is longer than a line
            fitting = next(n for n in range(len(lines[-1]) - 1, 6, -1) if n == 7 or inches_wide(lines[-1][:n]) <= room)
            lines[-1:] = [lines[-1][:fitting], lines[-1][fitting:]]
    return "\n".join(lines)


@cache
def inches_wide(text: str) -> float:
    """Inches of the longest line of a text in small letters, where letters have their usual size."""
    font = FontProperties(family="DejaVu Sans", size=SMALL)
    lines = (text_to_path.get_text_width_height_descent(line, font, ismath=False) for line in text.split("\n"))
    return HINTED * float(max(width for width, *_ in lines)) / 72


def room(axes: Axes) -> float:
    """Inches for a title above axes, as `folded` takes them: fewer where all letters are larger."""
    return float(axes.get_position().width * axes.figure.bbox.width / axes.figure.dpi / letters(1.0))


def lines_of(names: Iterable[str], room: float) -> int:
    """How many lines the longest of some names takes."""
    return max((folded(name, room).count("\n") + 1 for name in names), default=1)


def write(figure: Figure, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
    """The whole figure as PDF and PNG, and its data as CSV; `settings` are matplotlib's."""
    save(figure, folder, settings)
    write_csv(figure.data, folder / f"{figure.name}.csv")


def save(figure: Figure, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
    """The whole figure as PDF and PNG."""
    with mpl.rc_context(STYLE | dict(settings or {})):
        drawn = canvas(figure)
        for suffix in (".pdf", ".png"):
            print_to(drawn, folder / f"{figure.name}{suffix}")


def canvas(figure: Figure) -> Canvas:
    """The whole figure, drawn; columns are as wide as the panels of the first row."""
    widths, height = [panel.width for panel in figure.panels[: figure.columns]], figure.panels[0].height
    wide, rows = sum(widths), math.ceil(len(figure.panels) / figure.columns)
    names = [name for name, _ in figure.legend]
    columns = max(1, min(4, int(wide / (0.7 + letters(LETTER) * max(map(len, names), default=0)))))  # of the legend
    lines_below = math.ceil(len(names) / columns)
    if columns == 1:
        names = [folded(name, (wide - 0.7) / letters(1.0)) for name in names]
        lines_below = sum(name.count("\n") + 1 for name in names)
    below = 0.1 + letters(LINE) * lines_below if names else 0.0
    size = (wide, height * rows + below)
    drawn = Canvas(figsize=size)
    for i, panel in enumerate(figure.panels):
        row, column = divmod(i, figure.columns)
        panel.draw(drawn.add_axes(panel.box(sum(widths[:column]), size[1] - (row + 1) * height, size)))
    if figure.legend:
        handles = [Line2D([], [], **entry.line, markersize=4) for _, entry in figure.legend]
        drawn.legend(handles, names, loc="lower center", ncols=columns, fontsize=letters(8))
    return drawn


def print_to(canvas: Canvas, path: Path) -> None:
    """Write a canvas; the file's ending says whether it is PDF, PNG or SVG."""
    kind = path.suffix[1:]
    metadata = {"pdf": NO_DATE, "svg": {"Date": None, "Creator": None}}.get(kind, {"Software": None})
    with writing(path), open(path, "wb", opener=regular) as file:
        canvas.savefig(file, format=kind, dpi=110, metadata=metadata)


def write_csv(data: pd.DataFrame, path: Path, digits: int | None = None) -> None:
    """Data as a CSV file, in which what others wrote is no formula; fractions with so many significant digits."""
    form = None if digits is None else f"%.{digits}g"
    with writing(path), open(path, "w", encoding="utf-8", newline="", opener=regular) as file:
        data.rename(columns=_cell).map(_cell).to_csv(file, index=False, float_format=form)


def _cell(value: Any) -> Any:
    return spreadsheet_text(value) if isinstance(value, str) else value
