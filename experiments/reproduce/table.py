"""What a table says, read and checked without the parts that it names; docs/reproduce.md has every key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import GROUPS, ConfigError, built_in, node
from commeff.experiments.escape import one_line
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.report.data.names import called
from commeff.experiments.reproduce.cases import (
    SCALES,
    Case,
    Setting,
    check_label,
    check_settings,
    check_variant,
    in_words,
    labels_of,
    no_seed_changes,
    read_cases,
    read_scales,
    read_settings,
    repeated,
    table_seeds,
    values_in,
)
from commeff.experiments.reproduce.judging import PrintedNumber, Tolerance
from commeff.experiments.reproduce.plot import Plot
from commeff.experiments.reproduce.quantities import TableQuantity, quantity
from commeff.experiments.reproduce.reading import (
    TableError,
    check_keys,
    check_one_of,
    execute,
    read_part,
    read_words,
    table_code,
)
from commeff.experiments.reproduce.results import MEASURED, TRAINING, Metric, check_metric, recorded
from commeff.experiments.reproduce.tuning import Tuning, check_equal, read_tuning
from commeff.require import did_you_mean

if TYPE_CHECKING:
    from commeff.cluster.places import Place

TABLES = Path(__file__).parent / "tables"
NAMED = ("method", "topology", "compressor")


@dataclass(frozen=True)
class TableCluster:
    """Where runs are modelled, and how many parameters their models are taken to have; None: their own."""

    place: Place
    parameters: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A table at one scale; `full_cases` are those of the whole grid, `derived` metrics that are functions."""

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
    figure: Plot | None
    cost: str
    plugins: tuple[str, ...] = ()  # files and modules that the command names
    choices: tuple[Choice, ...] = field(repr=False, default=())  # theirs, and those of installed packages
    full_cases: tuple[Case, ...] = field(repr=False, default=())
    metrics: set[str] = field(repr=False, default_factory=set)  # that the table has been seen to speak of

    def called(self, name: str) -> str:
        """What a variant, or the value of a label, is called."""
        return called(name, self.names)

    @property
    def exact(self) -> bool:
        """Whether no seed changes what is measured at this scale."""
        return no_seed_changes(self.measure, self.cases)

    @property
    def drawn(self) -> tuple[TableQuantity, ...]:
        """The quantities of the figure."""
        if self.figure is None:
            return ()
        x = self.figure.x
        label = isinstance(x, str) and any(case.label(x) is not None or x in case.settings for case in self.full_cases)
        return (self.figure.y, *([] if label else [quantity(x)]))

    def check_quantity(self, of: TableQuantity) -> None:
        """Refuse a quantity of a metric that no case has, or beside a variant that is none."""
        for metric in of.metrics:
            check_metric(self, metric)
        if of.beside:
            check_variant(self.full_cases, of.beside, f"{of.text}: ")

    @cached_property
    def recorded(self) -> tuple[list[str], bool]:
        """The names of numbers that cases have, and whether these are all."""
        return recorded(self)

    def is_theirs(self, config: Mapping[str, Any]) -> bool:
        """Whether a run's configuration has what printed numbers are of, such as the whole data set."""
        return all(_has(config, key, in_words(value), self.choices) for key, value in self.comparable.items())

    @property
    def swept(self) -> list[str]:
        """The labels that differ among cases; not those parts that the name of a variant says already."""
        differing = [key for key in labels_of(self.cases) if len({case.labels.get(key) for case in self.cases}) > 1]
        values = {key: {(case.name, case.labels.get(key)) for case in self.cases} for key in NAMED}
        variants = len({case.name for case in self.cases})
        return [key for key in differing if key not in NAMED or len(values[key]) > variants]


def _has(config: Mapping[str, Any], key: str, value: str, choices: Sequence[Choice]) -> bool:
    """Whether a configuration has a setting; a part of it is named by what it builds."""
    from commeff.experiments.config.compose import SHORTHANDS

    content: Any = config
    for part in SHORTHANDS.get(key, key).split("."):
        content = content.get(part) if isinstance(content, Mapping) else None
    if isinstance(content, Mapping):
        chosen = next((choice.node for choice in choices if (choice.group, choice.name) == (key, value)), None)
        named = chosen or (node(key, value) if key in GROUPS and value in built_in(key) else {})
        return bool(named) and named["_target_"] == content.get("_target_")
    return content is not None and text(content) == value


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
    tables = built_in_tables()
    if name not in tables:
        near = did_you_mean(name, tables)
        raise ConfigError(
            [f"no table {name!r}{near}; `commeff reproduce --list` names them, and a file of your own ends in .py"]
        )
    return tables[name]


def read_table(
    path: Path,
    scale: str = "full",
    overrides: Sequence[str] = (),
    plugins: Sequence[str] = (),
    choices: Sequence[Choice] = (),
) -> PublishedTable:
    """The table of a file at a scale: its code is executed.

    Parameters
    ----------
    path : of the file.
    scale : smoke, reduced or full.
    overrides : `key=value` words that change no result, such as data_dir.
    plugins, choices : files and modules that the command names, and the choices that they and installed packages add.

    Raises
    ------
    ConfigError : with the first that is wrong.
    """
    raw = execute(path)
    with table_code(path):
        table = _table(path, raw, scale, dict(word.split("=", 1) for word in overrides))
    return replace(table, plugins=tuple(plugins), choices=tuple(choices))


def _table(path: Path, raw: Mapping[str, Any], scale: str, added: Mapping[str, str]) -> PublishedTable:
    measure, parameters = raw.get("measure", TRAINING), raw.get("parameters", ())
    check_one_of((TRAINING, *MEASURED), measure=measure)
    if others := [name for name in parameters if not isinstance(name, str)]:
        raise TableError(f"parameters must be names of labels, got {others[0]!r}")
    if measure == "modelled" and raw.get("cluster") is None:
        raise TableError("there is no cluster, on which it could model runs; give cluster = NAME or FILE")
    full = read_cases(raw, {})
    check_settings(map(str, raw.get("base", {})), full, "base: ", parameters)
    for name in values_in(full, "name"):
        variant = [case for case in full if case.name == name]
        check_settings(labels_of(variant), variant, "grid: ", parameters)
    if twice := repeated(full):
        raise TableError(f"grid has {', '.join(twice)} twice; keep one")
    scales = read_scales(raw, scale, added)
    cases, seeds = scales[scale]
    tune = None
    if "tune" in raw:
        tune = read_tuning(raw["tune"], full, table_seeds(raw, exact=False))
        for name, (kept_cases, _) in scales.items():
            check_equal(tune, kept_cases, name)
        if measure != TRAINING:
            raise TableError(
                f"tune must be left out where measure is {measure}: there is no validation data to choose by"
            )
        if scale == "smoke":
            cases, tune = [cases[group[len(group) // 2]] for group in tune.groups(cases)], None
    labels = labels_of(full)
    if unused := [name for name in parameters if name not in labels]:
        raise TableError(f"parameters: no entry of the grid has {unused[0]!r}{did_you_mean(unused[0], labels)}")
    comparable = read_settings(raw.get("comparable", {}), "comparable")
    check_settings(comparable, [*full, *cases], "comparable: ")
    numbers, derived = raw.get("numbers", []), raw.get("metrics", {})
    if not all(isinstance(number, PrintedNumber) for number in numbers):
        raise TableError(f"numbers must be a list of printed(...), got {numbers!r}")
    if not all(map(callable, derived.values())):
        raise TableError(f"metrics must be functions of recorded metrics by name, got {derived!r}")
    if not raw.get("paper"):
        raise TableError("it names no `paper`: whoever reads it must find what is reproduced")
    show = tuple(map(quantity, raw.get("show", [])))
    texts = [of.text for of in show]
    if twice := [words for words in texts if texts.count(words) > 1]:
        raise TableError(f"show has two columns {twice[0]}: each needs a name of its own, such as that of a function")
    cost = read_words(raw.get("cost", {}))
    check_keys("cost", cost, SCALES)
    return PublishedTable(
        path=path,
        scale=scale,
        title=one_line(str(raw.get("title") or path.stem)),
        paper=one_line(raw["paper"]),
        names=read_words(raw.get("names", {})),
        about="\n\n".join(map(one_line, raw.get("about", "").split("\n\n"))),
        settings=read_words(raw.get("settings", {})),
        left_open=read_words(raw.get("left_open", {})),
        measure=measure,
        derived=derived,
        cases=tuple(cases),
        seeds=tuple(seeds),
        tune=tune,
        cluster=_cluster(raw["cluster"], path.parent) if "cluster" in raw else None,
        show=show,
        tolerance=read_part(Tolerance, raw.get("tolerance", {}), "tolerance"),
        numbers=tuple(numbers),
        comparable=comparable,
        claims=raw.get("claims"),
        figure=_figure(raw["figure"], full) if "figure" in raw else None,
        cost=cost.get(scale, ""),
        full_cases=tuple(full),
    )


def _figure(raw: Mapping[str, Any], cases: Sequence[Case]) -> Plot:
    """The figure of a table, of labels and variants that exist."""
    figure = read_part(Plot, raw, "figure")
    for key in (*figure.lines, *figure.panels, *(key for key in figure.only if key != "name")):
        check_label(cases, key, "figure: ")
    for name in figure.only.get("name", []):
        check_variant(cases, name, "figure.only: ")
    return figure


def _cluster(raw: Any, folder: Path) -> TableCluster:
    """The cluster of a table; its file is looked for from `folder`."""
    from commeff.cluster.places import entries, read_place

    content = dict(raw) if isinstance(raw, dict) else {"cluster": raw}
    parameters = content.pop("parameters", None)
    if parameters is not None and "step_seconds" not in content:
        raise TableError("cluster.step_seconds must be given with parameters: FLOPs are those of the run's own model")
    try:
        if parameters is not None and not float(parameters) >= 1:
            raise ValueError(f"parameters must be at least 1, got {parameters!r}")
        (entry,) = entries([content], folder)
        return TableCluster(read_place(entry), None if parameters is None else float(parameters))
    except (OSError, TypeError, ValueError) as error:
        raise TableError(f"cluster: {error}") from None
