"""The words of a table's figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from commeff.experiments.reproduce.cases import values_of
from commeff.experiments.reproduce.quantities import quantity
from commeff.experiments.reproduce.reading import TableError


@dataclass(frozen=True)
class Plot:
    """What is drawn: `y` against `x`, a line for each variant and value of the labels `lines`, a panel for each value
    of one label, `panels`.

    `x` is a column of the curves, a label or a function of the case; "name" has a place for each variant. `lines` and
    `panels` may have words for their values: {"share": "top {:.0%}"}. `only` are the variants that are drawn, or by
    label the values. `guides` are grey lines by what they are called: a power of x through the data, or a function of
    the case. Below `floor` nothing is drawn. Printed values of `y` are open markers, which
    `published` names; where it is empty there are none.
    """

    x: str | Callable[[Any], Any]
    y: Any
    lines: Mapping[str, str] = field(default_factory=dict)
    panels: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    only: Mapping[str, list[str]] = field(default_factory=dict)
    guides: Mapping[str, float | Callable[[Any], Any]] = field(default_factory=dict)
    floor: float | None = None
    published: str = "published"
    x_title: str = ""
    y_title: str = ""

    def __post_init__(self) -> None:
        lines, panels, only = self.lines, self.panels, self.only or {}
        if isinstance(lines, str) or isinstance(only, str) or self.log not in ("", "x", "y", "xy"):
            raise TableError("figure.lines must be a list of labels, figure.only one of variants, and log x, y or xy")
        if not isinstance(self.guides, Mapping):
            raise TableError(f"figure.guides must be powers of x or functions by name, got {self.guides!r}")
        picked = only if isinstance(only, Mapping) else {"name": [*only]}
        object.__setattr__(self, "y", quantity(self.y))
        object.__setattr__(self, "lines", _worded(lines))
        object.__setattr__(self, "panels", _worded([panels] if isinstance(panels, str) else panels))
        object.__setattr__(self, "only", {key: values_of(values) for key, values in picked.items()})


def _worded(labels: Any) -> dict[str, str]:
    """Labels with the words for their values."""
    return dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(labels, "")
