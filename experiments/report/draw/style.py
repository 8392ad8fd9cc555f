"""Figures as a paper wants them: `commeff report --style paper.yaml`, for all figures or for each its own.

The file has these keys, all optional, and under `figures:` the same keys for one figure by its name; what a figure says
stands above what all have. The page keeps its own look: a style is for the PDF and PNG files.

width       inches of the figure                     font        a family that is installed, or serif, monospace ...
height      inches of a row of panels                font_size   points
columns     panels side by side                      order       variants, the first ones first
panels      names of the panels that are drawn       labels      variant: what it is called
                                                     colours     variant: a colour that matplotlib knows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib import font_manager
from matplotlib.colors import is_color_like

from commeff.experiments.config.schema import did_you_mean
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.variants import Variant
from commeff.experiments.report.data.wallclock import VariantSeconds, Wallclock
from commeff.experiments.report.draw.figures import FONT_SIZE, Figure
from commeff.experiments.run.reading import parse_yaml, read_mapping

SIZES = {"width": 60.0, "height": 60.0, "columns": 60, "font_size": 200.0}  # the most there may be of each
LISTS, NAMES = ("order", "panels"), ("labels", "colours")
KEYS = (*SIZES, *LISTS, *NAMES, "font")
GENERIC = ("serif", "sans-serif", "monospace")
CONTENT = ("order", "labels", "colours")  # what figures are built anew for


@dataclass(frozen=True)
class FigureStyle:
    """What a file says of all figures, and of each."""

    file: Path
    common: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, Any]]

    def of(self, figure: Figure) -> dict[str, Any]:
        """What holds for one figure; for one of several tasks also what is said of its kind."""
        own = (self.figures.get(name, {}) for name in (figure.kind, figure.name))
        return {key: value for part in (self.common, *own) for key, value in part.items()}


def read_style(file: Path) -> FigureStyle:
    """A style file.

    Raises
    ------
    ValueError
        In a line that names the file, if it cannot be read, has a key that no style has, or a value that none can be.
    """
    try:
        content = read_mapping(file, parse_yaml)
    except OSError as error:
        raise ValueError(f"--style must be a file, got {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"--style must be a file of keys and values, got {file}: {error}") from None
    figures = content.pop("figures", None) or {}
    if not isinstance(figures, dict) or not all(isinstance(own, dict) for own in figures.values()):
        raise ValueError(f"{file}: figures must be names of figures with keys below them, got {figures!r:.60}")
    for where, own in (("", content), *figures.items()):
        for key, value in own.items():
            _check(f"{file}: {f'{where}.' * bool(where)}", str(key), value)
    return FigureStyle(file, content, {str(name): own for name, own in figures.items()})


def _check(where: str, key: str, value: Any) -> None:
    """Refuse a key that is none, or a value that it cannot have."""
    if key not in KEYS:
        choices = (*KEYS, "figures") if where.endswith(": ") else KEYS
        raise ValueError(f"{where}{key} must be one of {', '.join(choices)}{did_you_mean(key, choices)}")
    if key in SIZES:
        kind, most = type(SIZES[key]), SIZES[key]
        fits = isinstance(value, (int, kind)) and not isinstance(value, bool) and 0 < value <= most
        wanted = f"a {'whole ' * (kind is int)}number above 0, at most {most:g}"
    elif key in LISTS:
        fits, wanted = isinstance(value, list) and all(isinstance(each, str) for each in value), "a list of names"
    elif key in NAMES:
        fits, wanted = isinstance(value, dict), "variants with a word for each"
        fits = fits and all(isinstance(each, str) for each in value.values())
        if fits and len({*value.values()}) < len(value) and key == "labels":
            raise ValueError(f"{where}labels must differ, got {value!r:.80}: a legend tells variants apart")
        for variant, colour in value.items() if fits and key == "colours" else ():
            if not is_color_like(colour):
                raise ValueError(
                    f"{where}colours.{variant} must be a colour such as '#0072b2' or black, got {colour!r}"
                )
    else:
        installed = sorted({font.name for font in font_manager.fontManager.ttflist})
        fits, wanted = value in (*GENERIC, *installed), f"{', '.join(GENERIC)} or a font that is installed"
        wanted += did_you_mean(str(value), installed)
    if not fits:
        raise ValueError(f"{where}{key} must be {wanted}, got {value!r:.60}")


def styled(
    style: FigureStyle,
    drawn: Mapping[str, Figure],
    analysis: Analysis,
    clocks: Sequence[Wallclock],
    build: Callable[[Analysis, Sequence[Wallclock]], Sequence[Figure]],
) -> list[tuple[Figure, dict[str, Any]]]:
    """The figures as the style wants them, each with the settings of matplotlib that it is drawn with.

    Parameters
    ----------
    drawn : the figures without a style, by name.
    analysis, clocks, build : what makes them, anew where variants are renamed, ordered or coloured.

    Raises
    ------
    ValueError
        If the style names a figure, a panel or a variant that is not there.
    """
    names = [*drawn, *(figure.kind for figure in drawn.values() if figure.kind)]
    _among(f"{style.file}: figures", style.figures, names)
    variants = [name for variant in analysis.variants for name in (variant.name, variant.family)]
    found, built = [], {"": drawn}
    for name, figure in drawn.items():
        own = style.of(figure)
        content = {key: own[key] for key in CONTENT if own.get(key)}
        for key, chosen in content.items():
            _among(f"{style.file}: {key}", chosen, variants)
        _among(f"{style.file}: panels of {name}", own.get("panels", ()), [panel.name for panel in figure.panels])
        if repr(content) not in built and content:
            built[repr(content)] = {each.name: each for each in build(*restyled(analysis, clocks, content))}
        new = built[repr(content) if content else ""][name]
        found.append((replace(_sized(new, own), data=figure.data), _settings(own)))
    return found


def _among(where: str, chosen: Iterable[str], names: Sequence[str]) -> None:
    for name in chosen:
        if name not in names:
            choices = ", ".join(dict.fromkeys(names))
            raise ValueError(f"{where} must be among {choices}, got {str(name)!r}{did_you_mean(str(name), names)}")


def restyled(
    analysis: Analysis, clocks: Sequence[Wallclock], style: Mapping[str, Any]
) -> tuple[Analysis, list[Wallclock]]:
    """The same analysis and clocks, the variants named, ordered and coloured otherwise."""
    labels, colours = style.get("labels", {}), style.get("colours", {})
    order = {name: place for place, name in enumerate(style.get("order", ()))}

    def new(variant: Variant) -> Variant:
        family = labels.get(variant.family, variant.family)
        name = labels.get(variant.name) or (f"{family} {variant.task}".strip() if variant.task else family)
        colour = colours.get(variant.name, colours.get(variant.family, ""))
        return replace(variant, name=name, family=family, colour=colour)

    def place(variant: Variant) -> int:
        return order.get(variant.name, order.get(variant.family, len(order)))

    variants = {variant: new(variant) for variant in sorted(analysis.variants, key=place)}
    rows = [
        replace(row, variant=variants[row.variant], baseline=variants[row.baseline] if row.baseline else None)
        for row in sorted(analysis.rows, key=lambda row: place(row.variant))
    ]
    other = replace(
        analysis,
        variants=tuple(variants.values()),
        rows=tuple(rows),
        baselines=tuple(variants[base] for base in analysis.baselines),
        champions={task: variants[best] for task, best in analysis.champions.items()},
    )

    def seconds(row: VariantSeconds) -> VariantSeconds:
        return replace(row, variant=variants[row.variant])

    times = [
        replace(
            clock,
            rows=tuple(seconds(row) for row in sorted(clock.rows, key=lambda row: place(row.variant))),
            baseline=seconds(clock.baseline) if clock.baseline else None,
        )
        for clock in clocks
    ]
    return other, times


def _sized(figure: Figure, own: Mapping[str, Any]) -> Figure:
    """With the panels and sizes of a style; margins grow with the letters."""
    panels = [panel for panel in figure.panels if panel.name in own.get("panels", [panel.name])]
    columns = own.get("columns") or min(figure.columns, len(panels))
    size = own.get("font_size", FONT_SIZE) / FONT_SIZE
    return replace(
        figure,
        columns=columns,
        panels=[
            replace(
                panel,
                width=own["width"] / columns if "width" in own else panel.width,
                height=own.get("height", panel.height),
                margins=tuple(margin * size for margin in panel.margins),
            )
            for panel in panels
        ],
    )


def _settings(own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of matplotlib that letters have.

    >>> _settings({"font_size": 8.5})["axes.labelsize"], _settings({"font": "serif"})["font.family"]
    (8.5, 'serif')
    """
    found = {"font.family": own["font"]} if "font" in own else {}
    if "font_size" in own:
        size = own["font_size"]
        found |= dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), size)
        found |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8 / FONT_SIZE * size)
    return found
