"""The parts of a table that speak of results: printed numbers, tolerance, cluster and figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from commeff.experiments.grid.plan.spec import text
from commeff.experiments.reproduce.cases import Case
from commeff.experiments.reproduce.constants import CaseView, number_of
from commeff.experiments.reproduce.faults import TableError
from commeff.experiments.reproduce.words import TableQuantity, quantity
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.cluster.places import Place
    from commeff.experiments.reproduce.table import PublishedTable

TOLERANCES = ("absolute", "relative", "rank")
SCALES = ("smoke", "reduced", "full")
T = TypeVar("T")


@dataclass(frozen=True)
class PrintedNumber:
    """A number of the paper, or of a theorem: of which cases, of what, its value or a function, its spread."""

    variant: str
    of: TableQuantity
    value: float | Callable[[Any], Any]
    source: str
    where: Mapping[str, str]
    spread: float | None
    scale: str
    because: str

    def worked_out(self, table: PublishedTable, case: Case) -> float:
        """Its value for a case."""
        return number_of(self.value(CaseView(table, case)), "a printed number") if callable(self.value) else self.value


def printed(
    variant: str,
    of: str | TableQuantity,
    value: float | Callable[[Any], Any],
    source: str,
    where: Mapping[str, Any] | None = None,
    spread: float | None = None,
    scale: str = "full",
    because: str = "",
) -> PrintedNumber:
    """A printed number beside ours.

    Parameters
    ----------
    variant : of the grid.
    of : a metric or a quantity.
    value : theirs, or a function of the case.
    source : where it is printed.
    where : labels of the cases that it is of.
    spread : as printed behind ±.
    scale : the smallest at which it is compared.
    because : why ours is off, once that is known.
    """
    if not callable(value) and not math.isfinite(number_of(value, "a printed number")):
        raise TableError(f"a printed number must be finite, got {value}")
    if spread is not None and not 0 <= number_of(spread, "spread") < math.inf:
        raise TableError(f"spread must be a number, as printed behind ±, got {spread!r}")
    labels = {key: text(label) for key, label in (where or {}).items()}
    theirs = value if callable(value) else float(value)
    return PrintedNumber(
        variant, quantity(of), theirs, one_line(source), labels, spread, scale_of(scale), one_line(because)
    )


def scale_of(name: str) -> str:
    """A scale, by its name."""
    if name not in SCALES:
        raise TableError(f"scale must be one of {', '.join(SCALES)}, got {name!r}{did_you_mean(str(name), SCALES)}")
    return name


def one_line(value: Any) -> str:
    """A text, its lines joined: a new one could begin a heading of the page.

    >>> one_line("A title\\n# and another")
    'A title # and another'
    """
    return " ".join(str(value).split())


@dataclass(frozen=True)
class Tolerance:
    """How near ours must be: within `by`, within a share `by` of theirs, or in the same order."""

    kind: str = "relative"
    by: float = 0.05

    def __post_init__(self) -> None:
        if self.kind not in TOLERANCES:
            raise TableError(f"tolerance.kind must be one of {', '.join(TOLERANCES)}, got {self.kind!r}")
        most = 1.0 if self.kind == "relative" else math.inf
        if isinstance(self.by, str) or not 0 <= self.by <= most or math.isinf(self.by):
            limit = "between 0 and 1, a share of theirs," if self.kind == "relative" else "at least 0 and finite"
            raise TableError(f"tolerance.by must be {limit} where it is {self.kind}, got {self.by!r}")


@dataclass(frozen=True)
class FigureWords:
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
        given: dict[str, Any] = {key: getattr(self, key) for key in ("lines", "panels", "only", "guides")}
        if isinstance(given["lines"], str) or isinstance(given["only"], str) or self.log not in ("", "x", "y", "xy"):
            raise TableError("figure.lines must be a list of labels, figure.only one of variants, and log x, y or xy")
        if not isinstance(given["guides"], Mapping):
            raise TableError(f"figure.guides must be powers of x or functions by name, got {self.guides!r}")
        panels = given["panels"] or ()
        only = (
            given["only"] if isinstance(given["only"], Mapping) else {"name": [*given["only"]]} if given["only"] else {}
        )
        for key, value in {
            "y": quantity(self.y),
            "lines": _worded(given["lines"]),
            "panels": _worded([panels] if isinstance(panels, str) else panels),
            "only": {
                key: [text(one) for one in (each if isinstance(each, list) else [each])] for key, each in only.items()
            },
        }.items():
            object.__setattr__(self, key, value)

    @property
    def labels(self) -> list[str]:
        """The labels that it speaks of."""
        return [*self.lines, *self.panels, *(key for key in self.only if key != "name")]


def _worded(labels: Any) -> dict[str, str]:
    """Labels with the words for their values."""
    return dict(labels) if isinstance(labels, Mapping) else dict.fromkeys(labels, "")


def made(kind: Callable[..., T], node: Any, part: str, faults: list[str]) -> T | None:
    """A part of a table as its class has it; what is wrong goes to `faults`. None where the table says nothing."""
    if node is None:
        return None
    every = fields(kind)  # type: ignore[arg-type]
    known = [each.name for each in every]
    needed = [each.name for each in every if each.default is MISSING and each.default_factory is MISSING]
    unknown = [f"{part} has no use for {key!r}{did_you_mean(str(key), known)}" for key in node if key not in known]
    missing = [f"{part} has no {key}" for key in needed if key not in node]
    faults += [*unknown, *missing]
    if unknown or missing:
        return None
    try:
        return kind(**node)
    except TableError as error:
        faults.append(str(error))
        return None


@dataclass(frozen=True)
class TableCluster:
    """Where runs are modelled, and how many parameters their models are taken to have; None: their own."""

    place: Place
    parameters: float | None = field(default=None)


def read_cluster(node: Any, folder: Path, faults: list[str]) -> TableCluster | None:
    """The cluster of the key `cluster`; its file is looked for from `folder`. None where the table names none."""
    from commeff.cluster.places import entries, read_place

    if node is None:
        return None
    own = dict(node) if isinstance(node, dict) else {"cluster": node}
    parameters = own.pop("parameters", None)
    if parameters is not None and "step_seconds" not in own:
        faults.append("cluster.step_seconds must be given with parameters: FLOPs are those of the run's own model")
    try:
        if parameters is not None and not float(parameters) >= 1:
            faults.append(f"cluster.parameters must be at least 1, got {parameters!r}")
        (entry,) = entries([own], folder)
        return TableCluster(read_place(entry), None if parameters is None else float(parameters))
    except (OSError, TypeError, ValueError) as error:
        faults.append(f"cluster: {error}")
        return None
