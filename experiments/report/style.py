"""The file of `commeff report --style`, as it is read: known without what draws figures.

The file has these keys, all optional, and under `figures:` the same keys for one figure by its name; what a figure says
stands above what all have. The page keeps its own look: a style is for the PDF and PNG files.

width       inches of the figure                     font        a family that is installed, or serif, monospace ...
height      inches of a row of panels                font_size   points
columns     panels side by side                      order       variants, the first ones first
panels      names of the panels that are drawn       labels      variant: what it is called
lines       how many a panel may have (`figure`)     colours     variant: a colour that matplotlib knows

The files beside this one are known by their names alone: lecture, paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commeff.experiments.run.reading import parse_yaml, read_mapping
from commeff.require import did_you_mean

SIZES = {"width": 60.0, "height": 60.0, "columns": 60, "lines": 60, "font_size": 200.0}  # the most there may be of each
LISTS, NAMES = ("order", "panels"), ("labels", "colours")
KEYS = (*SIZES, *LISTS, *NAMES, "font")
GENERIC = ("serif", "sans-serif", "monospace")


@dataclass(frozen=True)
class FigureStyle:
    """What a file says of all figures, and of each."""

    file: Path
    common: Mapping[str, Any]
    figures: Mapping[str, Mapping[str, Any]]

    def of(self, kind: str, name: str) -> dict[str, Any]:
        """What holds for the figure of a name; for one of several tasks also what is said of its kind."""
        figures = (self.figures.get(figure, {}) for figure in (kind, name))
        return {key: value for part in (self.common, *figures) for key, value in part.items()}


def read_style(file: Path) -> FigureStyle:
    """A style file, or one that ships by its name.

    Raises
    ------
    ValueError
        In a line that names the file, if it cannot be read, has a key that no style has, or a value that none can be.
    """
    shipped = {path.stem: path for path in Path(__file__).parent.glob("*.yaml")}
    file = shipped.get(str(file), file)
    try:
        content = read_mapping(file.resolve(), parse_yaml)
    except OSError as error:
        names = ", ".join(sorted(shipped))
        raise ValueError(f"--style must be {names} or a file, got {file}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"--style must be a file of keys and values, got {file}: {error}") from None
    figures = content.pop("figures", None) or {}
    if not isinstance(figures, dict) or not all(isinstance(settings, dict) for settings in figures.values()):
        raise ValueError(f"{file}: figures must be names of figures with keys below them, got {figures!r:.60}")
    for where, settings in (("", content), *figures.items()):
        for key, value in settings.items():
            _check(f"{file}: {f'{where}.' * bool(where)}", str(key), value)
    return FigureStyle(file, content, {str(name): settings for name, settings in figures.items()})


def _check(where: str, key: str, value: Any) -> None:
    """Refuse a key that is none, or a value that it cannot have."""
    if key not in KEYS:
        choices = (*KEYS, "figures") if where.endswith(": ") else KEYS
        raise ValueError(f"{where}{key} must be one of {', '.join(choices)}{did_you_mean(key, choices)}")
    if key in SIZES:
        kind, most = type(SIZES[key]), SIZES[key]
        fits = isinstance(value, (int, kind)) and not isinstance(value, bool) and 0 < value <= most
        expected = f"a {'whole ' * (kind is int)}number above 0, at most {most:g}"
    elif key in LISTS:
        fits, expected = isinstance(value, list) and all(isinstance(word, str) for word in value), "a list of names"
    elif key in NAMES:
        fits, expected = isinstance(value, dict), "variants with a word for each"
        fits = fits and all(isinstance(word, str) for word in value.values())
        if fits and len({*value.values()}) < len(value) and key == "labels":
            raise ValueError(f"{where}labels must differ, got {value!r:.80}: a legend tells variants apart")
        for variant, colour in value.items() if fits and key == "colours" else ():
            from matplotlib.colors import is_color_like

            if not is_color_like(colour):
                raise ValueError(
                    f"{where}colours.{variant} must be a colour such as '#0072b2' or black, got {colour!r}"
                )
    else:
        from matplotlib import font_manager

        installed = sorted({font.name for font in font_manager.fontManager.ttflist})
        fits, expected = value in (*GENERIC, *installed), f"{', '.join(GENERIC)} or a font that is installed"
        expected += did_you_mean(str(value), installed)
    if not fits:
        raise ValueError(f"{where}{key} must be {expected}, got {value!r:.60}")
