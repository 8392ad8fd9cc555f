"""What a table says, read and checked without the parts that it names; docs/reproduce.md has every key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import GROUPS, ConfigError, built_in, node
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.report.data.names import called
from commeff.experiments.reproduce.cases import Case, Setting, in_words, unknown_label
from commeff.experiments.reproduce.faults import TableError, own_code
from commeff.experiments.reproduce.quantities import Metric
from commeff.experiments.reproduce.reading import execute
from commeff.experiments.reproduce.recorded import recorded, tasks_of
from commeff.experiments.reproduce.scales import no_seed_changes, read_scaled
from commeff.experiments.reproduce.sections import read_cost, read_settings, read_words
from commeff.experiments.reproduce.settable import unknown_keys
from commeff.experiments.reproduce.statements import (
    FigureWords,
    PrintedNumber,
    TableCluster,
    Tolerance,
    made,
    one_line,
    read_cluster,
)
from commeff.experiments.reproduce.tuning import Tuning, middle_of_each, read_tuning, unequal
from commeff.experiments.reproduce.words import TableQuantity, quantity
from commeff.require import did_you_mean

TABLES = Path(__file__).parent / "tables"
MEASURES = ("training", "consensus", "compression", "gossip", "low_rank", "modelled")
NAMED = ("method", "topology", "compressor")


@dataclass(frozen=True)
class PublishedTable:
    """A table at one scale. `swept`: labels that tell its cases apart; `derived`: metrics that are functions."""

    path: Path
    scale: str
    title: str
    paper: str
    names: Mapping[str, str]
    about: str
    settings: Mapping[str, str]
    left_open: Mapping[str, str]
    measure: str
    derived: Mapping[str, Metric]
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    tune: Tuning | None
    cluster: TableCluster | None
    show: tuple[TableQuantity, ...]
    tolerance: Tolerance
    numbers: tuple[PrintedNumber, ...]
    comparable: Mapping[str, Setting]
    claims: Callable[[Any], Any] | None
    figure: FigureWords | None
    cost: str
    full_cases: tuple[Case, ...] = field(repr=False, default=())
    metrics: set[str] = field(repr=False, default_factory=set)  # that the table has been seen to speak of

    @property
    def name(self) -> str:
        """What the command calls it."""
        return self.path.stem

    def called(self, name: str) -> str:
        """What a variant, or the value of a label, is called."""
        return called(name, self.names)

    @property
    def exact(self) -> bool:
        """Whether no seed changes what is measured at this scale."""
        return no_seed_changes(self.measure, self.cases)

    @property
    def drawn(self) -> tuple[TableQuantity, ...]:
        """What the figure is of."""
        if self.figure is None:
            return ()
        x = self.figure.x
        label = isinstance(x, str) and any(case.label(x) is not None or x in case.settings for case in self.full_cases)
        return (self.figure.y, *([] if label else [quantity(x)]))

    def check_quantity(self, of: TableQuantity) -> None:
        """Refuse a quantity of a metric that no case has, or beside a variant that is none."""
        for metric in of.metrics:
            self.check_metric(metric)
        names = dict.fromkeys(case.name for case in self.full_cases)
        if of.beside and of.beside not in names:
            near = did_you_mean(of.beside, names)
            raise TableError(f"{of.text}: no variant {of.beside!r}{near}; there are {', '.join(names)}")

    def check_metric(self, name: str) -> None:
        """Refuse a metric that no case has; a task that is not ours may record anything but what looks like a slip."""
        if name in self.metrics:
            return
        names, every = self._recorded
        known = [*names, *self.derived]
        near = did_you_mean(name, sorted(known))
        if name not in known and (every or near):
            tasks = " or ".join(tasks_of(self))
            who = f"no run of {tasks} measures" if self.measure == MEASURES[0] else "nothing here has"
            raise TableError(f"{who} {name!r}{near or '; there are ' + ', '.join(known)}")
        self.metrics.add(name)

    def check_metrics(self) -> None:
        """Refuse metrics that are functions of what no case has, or that have the name of another."""
        for name, function in self.derived.items():
            if name in self._recorded[0]:
                raise TableError(f"metrics: {name} has the name of a metric that is recorded; call it otherwise")
            try:
                function(_Asked(self))
            except (ArithmeticError, ValueError) as error:
                if isinstance(error, TableError):
                    raise

    @cached_property
    def _recorded(self) -> tuple[list[str], bool]:
        return recorded(self)

    def is_theirs(self, config: Mapping[str, Any]) -> bool:
        """Whether a run's configuration has what printed numbers are of, such as the whole data set."""
        return all(_has(config, key, in_words(value)) for key, value in self.comparable.items())

    @property
    def swept(self) -> list[str]:
        """The labels that differ among cases; not those parts that the name of a variant says already."""
        keys = dict.fromkeys(key for case in self.cases for key in case.labels)
        differing = [key for key in keys if len({case.labels.get(key) for case in self.cases}) > 1]
        return [key for key in differing if key not in NAMED or self._varies(key)]

    def _varies(self, key: str) -> bool:
        """Whether one variant has several values of a label."""
        return len({(c.name, c.labels.get(key)) for c in self.cases}) > len({c.name for c in self.cases})


class _Asked(dict[str, float]):
    """Stands for the metrics of a run before there is one."""

    def __init__(self, table: PublishedTable) -> None:
        self._table = table

    def __missing__(self, name: str) -> float:
        self._table.check_metric(name)
        return math.nan


def _has(config: Mapping[str, Any], key: str, value: str) -> bool:
    """Whether a configuration has a setting; a part of it is named by what it builds."""
    from commeff.experiments.config.compose import SHORTHANDS

    found: Any = config
    for part in SHORTHANDS.get(key, key).split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping):
        return key in GROUPS and value in built_in(key) and node(key, value)["_target_"] == found.get("_target_")
    return found is not None and text(found) == value


def built_in_tables() -> dict[str, Path]:
    """The tables that come with commeff, by name."""
    return {path.stem: path for path in sorted(TABLES.glob("*.py"))}


def find_table(name: str) -> Path:
    """The file of a table: a name of the list, or a path.

    >>> find_table("mine.py").name
    'mine.py'
    """
    if name.endswith(".py"):
        return Path(name)
    if name.endswith((".yaml", ".yml")):
        raise ConfigError([f"{name}: a table is a Python file since commeff 0.1, no YAML; docs/reproduce.md shows one"])
    found = built_in_tables()
    if name not in found:
        near = did_you_mean(name, found)
        raise ConfigError(
            [f"no table {name!r}{near}; `commeff reproduce --list` names them, and a file of your own ends in .py"]
        )
    return found[name]


def read_table(path: Path, scale: str = "full", overrides: Sequence[str] = ()) -> PublishedTable:
    """The table of a file at a scale: its code is executed.

    Parameters
    ----------
    path : of the file.
    scale : smoke, reduced or full.
    overrides : `key=value` words that change no result, such as data_dir.

    Raises
    ------
    ConfigError : with all that is wrong.
    """
    raw = execute(path)
    with own_code(path):
        return _made(path, raw, scale, overrides)


def _made(path: Path, raw: Mapping[str, Any], scale: str, overrides: Sequence[str]) -> PublishedTable:
    faults = list[str]()
    measure = str(raw.get("measure", MEASURES[0]))
    if measure not in MEASURES:
        faults.append(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}{did_you_mean(measure, MEASURES)}")
    if measure == "modelled" and raw.get("cluster") is None:
        faults.append("there is no cluster, on which it could model runs; give cluster = NAME or FILE")
    parameters = [*raw.get("parameters", [])]
    base = read_settings(raw.get("base", {}), "base", faults)
    given = dict(word.split("=", 1) for word in overrides)
    full, scales = read_scaled(raw, scale, base, given, parameters, measure, faults)
    cases, seeds = [*scales[scale].cases], scales[scale].seeds
    tune = read_tuning(raw.get("tune"), full, scales[scale].all_seeds, faults)
    if tune:
        faults += [fault for name, each in scales.items() for fault in unequal(tune, each.cases, name)]
    if tune and measure != MEASURES[0]:
        faults.append(f"tune must be left out where measure is {measure}: there is no validation data to choose by")
    if tune and tune.seeds and scale == "smoke":
        cases, tune = middle_of_each(tune, cases), None
    labels = dict.fromkeys(key for case in full for key in case.labels)
    unused = [name for name in parameters if name not in labels]
    faults += [f"parameters: no entry of the grid has {name!r}{did_you_mean(name, labels)}" for name in unused]
    comparable = read_settings(raw.get("comparable", {}), "comparable", faults)
    faults += [f"comparable: {fault}" for fault in unknown_keys(comparable, [*full, *cases])]
    numbers, figure = raw.get("numbers", []), made(FigureWords, raw.get("figure"), "figure", faults)
    if not all(isinstance(each, PrintedNumber) for each in numbers):
        faults.append(f"numbers must be a list of printed(...), got {numbers!r}")
    if not raw.get("claims") and not numbers:
        faults.append("it claims nothing; write `def claims(r):` or numbers")
    derived = raw.get("metrics", {})
    if not all(map(callable, derived.values())):
        faults.append(f"metrics must be functions of recorded metrics by name, got {derived!r}")
    if not raw.get("paper"):
        faults.append("it names no `paper`: whoever reads it must find what is reproduced")
    if figure is not None and full:
        variants = dict.fromkeys(case.name for case in full)
        chosen = figure.only.get("name", [])
        faults += [f"figure: {fault}" for key in figure.labels for fault in unknown_label(full, key)]
        faults += [f"figure.only: no variant {n!r}{did_you_mean(n, variants)}" for n in chosen if n not in variants]
    tolerance = made(Tolerance, raw.get("tolerance"), "tolerance", faults) or Tolerance()
    cluster = read_cluster(raw.get("cluster"), path.parent, faults)
    cost = read_cost(raw, faults).get(scale, "")
    if faults:
        raise ConfigError(f"{path.name}: {fault}" for fault in faults)
    return PublishedTable(
        path=path,
        scale=scale,
        title=one_line(raw.get("title") or path.stem),
        paper=one_line(raw.get("paper") or ""),
        names=read_words(raw.get("names", {})),
        about="\n\n".join(map(one_line, raw.get("about", "").split("\n\n"))),
        settings=read_words(raw.get("settings", {})),
        left_open=read_words(raw.get("left_open", {})),
        measure=measure,
        derived=derived,
        cases=tuple(cases),
        seeds=tuple(seeds),
        tune=tune,
        cluster=cluster,
        show=tuple(map(quantity, raw.get("show", []))),
        tolerance=tolerance,
        numbers=tuple(numbers),
        comparable=comparable,
        claims=raw.get("claims"),
        figure=figure,
        cost=cost,
        full_cases=tuple(full),
    )
