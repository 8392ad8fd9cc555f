"""What a table's figure is of: its lines and panels, their points, printed values and guides, in shown units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from commeff.experiments.report.data.names import called
from commeff.experiments.report.data.quantities import quantity as known_quantity
from commeff.experiments.report.data.statistics import interval
from commeff.experiments.report.draw import lines as draw
from commeff.experiments.report.draw.figures import QUIET, Figure, Look
from commeff.experiments.report.draw.lines import Drawing, LinePanel, MeanLine, Points
from commeff.experiments.reproduce.constants import CaseView, number_of
from commeff.experiments.reproduce.plot import Plot
from commeff.experiments.reproduce.quantities import quantity
from commeff.experiments.reproduce.reading import TableError
from commeff.experiments.reproduce.results import CaseResult, Results


def drawing(results: Results, plot: Plot) -> Drawing:
    """The figure of a table."""
    every = [*results.cases, *_printed_alone(results, plot)]
    cases = [case for case in every if all(case.label(key) in (None, *of) for key, of in plot.only.items())]
    along = [*dict.fromkeys(place for case in cases if isinstance(place := _place(results, case, plot.x), str))]
    (x_title, x_scale), (y_title, y_scale) = ("", 1.0) if along else _title(quantity(plot.x).text), _title(plot.y.text)
    lines, panels = _lines(results, cases, plot), []
    (key, shown), *_ = [*plot.panels.items(), ("", "")]
    for value in dict.fromkeys(case.label(key) for case in cases) if key else (None,):
        panel_lines = []
        for (name, colour, style), members in lines.items():
            selected = [case for case in members if not key or case.label(key) == value]
            line = _line(results, selected, plot, along, np.array([x_scale, y_scale]))
            if len(line[0]) or len(line[1]):
                single = max(len(case.runs) for case in selected) == 1 and not results.table.exact
                panel_lines.append(MeanLine(f"{name} (n = 1)".strip() if single else name, colour, style, *line))
        panels.append(LinePanel("" if value is None else _words(results, key, value, shown), panel_lines))
    curves = any(plot.x in run.curve for case in cases for run in case.runs.values())
    places = [results.table.called(place) for place in along]
    guides = {guide: None if callable(of) else float(of) for guide, of in plot.guides.items()}
    return Drawing(panels, plot.x_title or x_title, plot.y_title or y_title, places, curves, plot.log, guides)


def figure(results: Results, plot: Plot) -> Figure:
    """The figure of a table, drawn with what its open markers are."""
    drawn = drawing(results, plot)
    printed = [number for number in results.table.numbers if number.of.text == plot.y.text]
    kinds = {"from theory" if callable(number.value) else plot.published for number in printed}
    shown = any(len(line.printed) for panel in drawn.panels for line in panel.lines)
    key = [(f"open: {' or '.join(sorted(kinds))}", Look(QUIET, "", "o", hollow=True))] if shown else []
    return draw.figure("figure", results.table.title, drawn, key)


def _printed_alone(results: Results, plot: Plot) -> list[CaseResult]:
    """Cases of the whole table that a number is printed of, where x is a label of it and there is no run of ours."""
    of_y = [one for one in results.table.numbers if one.of.text == plot.y.text and plot.x in one.where]
    absent = [one for one in of_y if not results.named(one.variant, one.where)]
    return [
        CaseResult(case, {}, case.labels)
        for case in results.table.full_cases
        if any(one.variant == case.name and case.has(one.where) for one in absent)
    ]


def _lines(results: Results, cases: Sequence[CaseResult], plot: Plot) -> dict[tuple[str, int, int], list[CaseResult]]:
    """The cases of each line: by what it is called, which colour it has and which style.

    A variant has a colour, and its lines differ in style. Where one variant at most has several lines, each line has a
    colour of its own.
    """
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for case in cases:
        pairs = [(key, case.label(key), shown) for key, shown in plot.lines.items()]
        labels = [_words(results, key, value, shown) for key, value, shown in pairs if value is not None]
        variant = "" if plot.x == "name" else results.table.called(case.case.name)
        groups.setdefault((variant, ", ".join(labels)), []).append(case)
    styles = {variant: [label for other, label in groups if other == variant] for variant, _ in groups}
    variants, plain = [*styles], sum(len(labels) > 1 for labels in styles.values()) <= 1
    lines = {}
    for i, ((variant, label), members) in enumerate(groups.items()):
        name = label or variant if len(variants) == 1 else ", ".join(filter(None, (variant, label)))
        colour, style = (i, 0) if plain else (variants.index(variant), styles[variant].index(label))
        lines[name, colour, style] = members
    return lines


def _words(results: Results, key: str, value: str, shown: str) -> str:
    """The value of a label as a reader meets it."""
    for kind in (int, float):
        try:
            return (shown or f"{called(key.rpartition('.')[2])} {{:g}}").format(kind(value))
        except ValueError:
            continue
    return (shown or "{}").format(results.table.called(value))


def _title(text: str) -> tuple[str, float]:
    """What stands at an axis, and what its numbers are multiplied by.

    >>> _title("val_accuracy"), _title("method.gamma"), _title("floor(gap)")
    (('validation accuracy (%)', 100), ('gamma', 1.0), ('floor(gap)', 1.0))
    """
    if not text.replace(".", "_").isidentifier():
        return text, 1.0
    known = known_quantity(text.rpartition(".")[2])
    return known.axis, known.scale


def _line(
    results: Results, cases: Sequence[CaseResult], plot: Plot, along: list[str], scales: Points
) -> tuple[Points, Points, dict[str, Points]]:
    """Points of the cases of a line, values printed of them, and guides: of curves, or of a quantity over the cases."""
    rows: list[tuple[float, ...]] = []
    printed: list[tuple[float, ...]] = []
    guides: dict[str, list[tuple[float, ...]]] = {}
    for case in cases:
        curves = [run.curve for run in case.runs.values() if plot.x in run.curve]
        if curves and plot.y.metrics == (plot.y.text,):
            both = [curve[[plot.x, plot.y.text]].to_numpy(float) for curve in curves if plot.y.text in curve]
            points = [np.array(rows).T for rows in zip(*both, strict=False)]
            means = [(float(np.mean(x)), *interval(y, "y" in plot.log)) for x, y in points]
        else:
            place = _place(results, case, plot.x)
            x = float(along.index(place)) if isinstance(place, str) else place
            means = [(x, *interval([*plot.y.by_seed(results, case).values()], "y" in plot.log))]
        rows += means
        ends = [means[0][0], means[-1][0]] if means else []
        for guide, of in plot.guides.items():
            if callable(of):
                value = quantity(of).number(results, case, results.table.seeds[0])
                guides.setdefault(guide, []).extend((x, value) for x in dict.fromkeys(ends))
        for one in results.table.numbers if plot.published and ends else ():
            if (one.of.text, one.variant) == (plot.y.text, case.case.name) and case.case.has(one.where):
                printed.append((ends[-1], one.worked_out(results.table, case.case)))
    return (
        _shown([row for row in rows if plot.floor is None or row[1] >= plot.floor], plot.log, 4) * scales[[0, 1, 1, 1]],
        _shown(printed, plot.log, 2) * scales,
        {guide: _shown(points, plot.log, 2) * scales for guide, points in guides.items()},
    )


def _shown(rows: Sequence[tuple[float, ...]], log: str, columns: int) -> Points:
    """Rows that can be drawn, in the order of x."""
    least = [0.0 if axis in log else -math.inf for axis in "xy"]
    finite = (row for row in rows if all(map(math.isfinite, row)) and row[0] > least[0] and row[1] > least[1])
    return np.array(sorted(finite), dtype=float).reshape(-1, columns)


def _place(results: Results, case: CaseResult, x: str | Callable[[Any], Any]) -> float | str:
    """Where a case stands on the horizontal axis: by a number measured at its end, by a label, or a function of it."""
    if x == "name":
        return case.case.name
    values = [run.finals[x] for run in case.runs.values() if isinstance(x, str) and x in run.finals]
    if values:
        return float(np.mean(values))
    view = CaseView(results.table, case.case)
    try:
        at = view[x] if isinstance(x, str) else x(view)
        return at if isinstance(at, str) else number_of(at, "figure.x")
    except TableError:
        return math.nan
