"""The figure of a table of points: a line for each value of its keys, in a reader's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np

from commeff.experiments.report.data.formula import Formula
from commeff.experiments.report.data.names import called
from commeff.experiments.report.data.points import NAME, PointTable
from commeff.experiments.report.data.quantities import quantity
from commeff.experiments.report.data.variants import is_number
from commeff.experiments.report.draw.figures import STYLE, canvas, print_to
from commeff.experiments.report.draw.lines import Drawing, LinePanel, MeanLine, figure
from commeff.experiments.report.draw.style import settings_of
from commeff.require import did_you_mean

PLAIN: Mapping[str, Any] = MappingProxyType({})


def drawing(
    table: PointTable,
    x: Formula,
    y: Formula,
    slopes: Sequence[float] = (),
    title: str = "",
    titles: tuple[str, str] = ("", ""),
    style: Mapping[str, Any] = PLAIN,
) -> Drawing:
    """One panel.

    Parameters
    ----------
    slopes : of grey guides, powers of x.
    titles : of the axes, where they are not what the formulas say.
    style : with order, labels and colours of lines, and how many there may be.

    Raises
    ------
    ValueError
        If there are more lines than the style allows, or it names one that is not there.
    """
    data = table.data
    words = any(isinstance(value, str) for value in data["x"])
    places = [*dict.fromkeys(data["x"])] if words else []
    named = {key: _label(table.per, key) for key in data[[*table.per]].drop_duplicates().itertuples(index=False)}
    for word in (*style.get("order", ()), *style.get("labels", ()), *style.get("colours", ())):
        if word not in named.values():
            near = did_you_mean(word, [*named.values()])
            raise ValueError(f"a style's lines must be among {', '.join(named.values())}, got {word!r}{near}")
    order = {label: place for place, label in enumerate(style.get("order", ()))}
    keys = sorted(named, key=lambda key: (order.get(named[key], len(order)), *map(_place, key)))
    if len(keys) > style.get("lines", len(keys)):
        raise ValueError(f"the style shows at most {style['lines']} lines, got {len(keys)}; choose some with --only")
    firsts = [*dict.fromkeys(key[:1] for key in keys)]
    scale = np.array([1.0 if words else x.shown.scale, *[y.shown.scale] * 3])
    lines = []
    for key in keys:
        group = data[(data[[*table.per]] == [*key]).all(axis=1)]
        across = group["x"].map(places.index) if words else group["x"]
        rows = np.column_stack([across, group[["y", "low", "high"]]]).astype(float)
        alike = [other for other in keys if other[:1] == key[:1]]
        look = (firsts.index(key[:1]), alike.index(key)) if len(firsts) > 1 else (keys.index(key), 0)
        label = named[key]
        shown = style.get("labels", {}).get(label, label)
        ink = style.get("colours", {}).get(label, "")
        lines.append(MeanLine(shown, *look, rows[np.argsort(rows[:, 0], kind="stable")] * scale, ink=ink))
    guides = {f"slope {slope:g}".replace("-", "−"): slope for slope in slopes}
    x_title, y_title = titles[0] or ("" if words else x.shown.axis), titles[1] or y.shown.axis
    return Drawing([LinePanel(title, lines)], x_title, y_title, [*map(called, places)], table.curves, table.log, guides)


def write(drawn: Drawing, path: Path, style: Mapping[str, Any] = PLAIN) -> None:
    """Draw into a file, whose ending says which kind of figure it is."""
    with mpl.rc_context(STYLE | settings_of(style)):
        print_to(canvas(figure(path.stem, "", drawn, style=style)), path)


def _label(per: Sequence[str], values: Sequence[str]) -> str:
    """What a line is called.

    >>> _label(["method", "method.period", "topology"], ["local_sgd", "8", ""])
    'local SGD, period 8'
    """
    pairs = [(key, value) for key, value in zip(per, values, strict=True) if value]
    return ", ".join(
        f"{quantity(key).heading} {float(value):g}" if is_number(value) else value if key == NAME else called(value)
        for key, value in pairs
    )


def _place(value: str) -> float:
    return float(value) if is_number(value) else 0.0
