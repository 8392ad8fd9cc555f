"""Figures as a paper wants them: what a style file, `commeff.experiments.report.style`, makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.names import quoted, readable
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.draw.figures import FONT_SIZE, STYLE, Figure
from commeff.experiments.report.style import FigureStyle
from commeff.require import did_you_mean

CONTENT = ("order", "labels", "colours")  # what figures are built anew for
NARROW = 1.0  # inches of axes, at least, where a style has a width and leaves the columns open


def styled(
    style: FigureStyle,
    drawn: Mapping[str, Figure],
    analysis: Analysis,
    build: Callable[[Analysis], Sequence[Figure]],
) -> list[tuple[Figure, dict[str, Any]]]:
    """The figures as the style wants them, each with the settings of matplotlib that it is drawn with.

    Parameters
    ----------
    drawn : the figures without a style, by name.
    analysis, build : what makes them, anew where variants are renamed, ordered or coloured.

    Raises
    ------
    ValueError
        If the style names a figure, a panel or a variant that is not there.
    """
    names = [*drawn, *(figure.kind for figure in drawn.values() if figure.kind)]
    _among(f"{style.file}: figures", style.figures, names)
    figures, built = [], {repr({}): drawn}
    for name, figure in drawn.items():
        settings = style.of(figure.kind, figure.name)
        content = {key: settings[key] for key in CONTENT if settings.get(key)}
        for key, chosen in content.items():
            _among(f"{style.file}: {key}", chosen, _names(analysis))
        _among(f"{style.file}: panels of {name}", settings.get("panels", ()), [panel.name for panel in figure.panels])
        if repr(content) not in built:
            built[repr(content)] = {other.name: other for other in build(restyled(analysis, content))}
        new = _sized(built[repr(content)][name], settings)
        if any(panel.width <= sum(panel.margins[:2]) or panel.height <= sum(panel.margins[2:]) for panel in new.panels):
            raise ValueError(f"{style.file}: width, height, columns and font_size of {name} must leave room for axes")
        figures.append((replace(new, data=figure.data), settings_of(settings)))
    return figures


def _among(where: str, chosen: Iterable[str], names: Sequence[str]) -> None:
    for name in chosen:
        if name not in names:
            choices = ", ".join(dict.fromkeys(names))
            raise ValueError(f"{where} must be among {choices}, got {str(name)!r}{did_you_mean(str(name), names)}")


def _names(analysis: Analysis) -> list[str]:
    """What a style may call the variants."""
    return [name for variant in analysis.variants for name in (variant.name, variant.family)]


def unknown_variants(content: Mapping[str, Any], analysis: Analysis) -> list[str]:
    """A line for each variant that a grid's `labels` and `order` name and that there is not."""
    names = _names(analysis)
    return [
        f"{key} names {name!r}, which is no variant{did_you_mean(name, names)}"
        for key, chosen in content.items()
        for name in chosen
        if name not in names
    ]


def restyled(analysis: Analysis, style: Mapping[str, Any], in_words: bool = True) -> Analysis:
    """The same analysis, the variants named, ordered and coloured otherwise; without labels in a reader's
    words, if they shall be."""
    labels, colours = style.get("labels", {}), style.get("colours", {})
    fixed = {*analysis.grid.labels.values()} | ({v.family for v in analysis.variants} if not in_words else set())
    words = {v.family: v.family if v.family in fixed else readable(v.family) for v in analysis.variants}
    words = {name: name for name in words} if len({*words.values()}) < len(words) else words
    order = {name: place for place, name in enumerate(style.get("order", ()))}

    def new(variant: Variant) -> Variant:
        family = labels.get(variant.family, words[variant.family])
        name = labels.get(variant.name) or f"{family} {readable(variant.task) if in_words else variant.task}".strip()
        colour = colours.get(variant.name, colours.get(variant.family, ""))
        return replace(variant, name=name, family=family, colour=colour)

    def place(variant: Variant) -> int:
        return order.get(variant.name, order.get(variant.family, len(order)))

    variants = {variant: new(variant) for variant in analysis.variants}
    rows = [
        replace(row, variant=variants[row.variant], baseline=variants[row.baseline] if row.baseline else None)
        for row in sorted(analysis.rows, key=lambda row: place(row.variant))
    ]
    return replace(
        analysis,
        rows=tuple(rows),
        baselines=tuple(variants[base] for base in analysis.baselines),
        targets={
            task: replace(goal, origin=_renamed(goal.origin, variants)) for task, goal in analysis.targets.items()
        },
        champions={task: variants[best] for task, best in analysis.champions.items()},
    )


def _renamed(origin: str, variants: Mapping[Variant, Variant]) -> str:
    """Where a target comes from, the baseline called by its new name."""
    base = next((old for old in variants if f" {quoted(old.name)} " in origin), None)
    return origin.replace(f" {quoted(base.name)} ", f" {quoted(variants[base].name)} ") if base else origin


def _sized(figure: Figure, style: Mapping[str, Any]) -> Figure:
    """With the panels and sizes of a style, in so many columns that there is room; margins grow with the letters."""
    size, width = style.get("font_size", FONT_SIZE) / FONT_SIZE, style.get("width")
    panels = [
        replace(panel, height=style.get("height", panel.height), margins=tuple(m * size for m in panel.margins))
        for panel in figure.panels
        if panel.name in (style.get("panels") or [panel.name])
    ]
    columns = style.get("columns") or min(figure.columns, len(panels))
    if not width:
        return replace(figure, columns=columns, panels=panels)
    room = int(width / (NARROW + max(sum(panel.margins[:2]) for panel in panels)))
    columns = style.get("columns") or max(1, min(columns, room))
    return replace(figure, columns=columns, panels=[replace(panel, width=width / columns) for panel in panels])


def settings_of(style: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of matplotlib that letters have, and lines beside them.

    >>> settings_of({"font_size": 8.5})["axes.labelsize"], settings_of({"font": "serif"})["font.family"]
    (8.5, 'serif')
    """
    settings = {"font.family": style["font"]} if "font" in style else {}
    if "font_size" in style:
        size = style["font_size"]
        settings |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), size)
        settings |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8 / FONT_SIZE * size)
        settings |= {key: STYLE[key] * size / FONT_SIZE for key in ("lines.linewidth", "lines.markersize")}
    return settings
