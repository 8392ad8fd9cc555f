"""What a table file says, read and checked without the parts that it names; docs/reproduce.md has every key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError, did_you_mean
from commeff.experiments.grid.plan.files import read_mapping
from commeff.experiments.grid.plan.spec import text
from commeff.experiments.published.reproduce.language import (
    Call,
    Expression,
    LanguageError,
    Name,
    parse_formula,
    walk,
)
from commeff.experiments.published.reproduce.statements import (
    Claim,
    FigureWords,
    PrintedNumber,
    TableCluster,
    Tolerance,
    read_claims,
    read_cluster,
    read_figure,
    read_numbers,
    read_tolerance,
)

TABLES = Path(__file__).parents[1] / "tables"
KEYS = (
    *("title", "paper", "about", "settings", "open", "measure", "parameters", "let", "base", "grid", "exclude"),
    *("seeds", "tune", "cluster", "of", "show", "tolerance", "numbers", "comparable", "claims"),
    *("figure", "scales", "cost"),
)
SCALES = ("smoke", "reduced", "full")
MEASURES = ("training", "consensus", "compression", "modelled")
EXACT = ("consensus", "modelled")  # what no seed changes
CHOSEN_BY = ("val_accuracy", "val_loss", "train_loss")
MOST_CASES = 2_000
NAMED = ("method", "topology", "compressor")
SMOKE = {"steps": 10, "evaluate_every": 5}  # of a table that does not say


@dataclass(frozen=True)
class Case:
    """One line of the table's grid: what is run, with every seed, or measured.

    Attributes
    ----------
    name : of the variant, as claims call it.
    labels : parameters and settings of the grid's entry, by key.
    settings : of the run; a value that begins with = is a formula.
    """

    name: str
    labels: Mapping[str, str]
    settings: Mapping[str, str]

    def has(self, where: Mapping[str, str]) -> bool:
        """Whether the case has all these labels, under their keys or the ends of their keys."""
        return all(self.label(key) == value for key, value in where.items())

    def label(self, key: str) -> str | None:
        """The value of a label, by its key or the end of its key."""
        if key in self.labels:
            return self.labels[key]
        return next((value for own, value in self.labels.items() if own.endswith(f".{key}")), None)


@dataclass(frozen=True)
class PublishedTable:
    """A table file at one scale. `swept` are the labels that tell its cases apart."""

    path: Path
    scale: str
    title: str
    paper: str
    about: str
    settings: Mapping[str, str]
    open: Mapping[str, str]
    measure: str
    let: Mapping[str, Expression]
    cases: tuple[Case, ...]
    seeds: tuple[int, ...]
    tune: tuple[str, str] | None
    cluster: TableCluster | None
    of: str
    show: tuple[str, ...]
    tolerance: Tolerance
    numbers: tuple[PrintedNumber, ...]
    comparable: Mapping[str, str]
    claims: tuple[Claim, ...]
    figure: FigureWords | None
    cost: str
    full_cases: tuple[Case, ...] = field(repr=False, default=())

    @property
    def name(self) -> str:
        """What the command calls it."""
        return self.path.stem

    @property
    def exact(self) -> bool:
        """Whether no seed changes what is measured."""
        return self.measure in EXACT

    def is_theirs(self, config: Mapping[str, Any]) -> bool:
        """Whether a run's configuration has what printed numbers are of, such as the whole data set."""
        return all(_found(config, key.split(".")) == value for key, value in self.comparable.items())

    @property
    def metrics(self) -> set[str]:
        """All that claims, numbers, figure and `show` may speak of: names of numbers, among others."""
        trees = [*(claim.tree for claim in self.claims), *(number.of for number in self.numbers)]
        drawn = [self.figure.y, Name(self.figure.x)] if self.figure else []
        parts = [part for tree in (*trees, *drawn, *map(parse_formula, self.show)) for part in walk(tree)]
        inner = [part for call in parts if isinstance(call, Call) for part in call.named.values()]
        return {part.text for part in (*parts, *inner) if isinstance(part, Name)} | {c.of for c in self.claims}

    @property
    def swept(self) -> list[str]:
        """The labels that differ among cases; not those parts that the name of a variant says already."""
        keys = dict.fromkeys(key for case in self.cases for key in case.labels)
        differing = [key for key in keys if len({case.labels.get(key) for case in self.cases}) > 1]
        return [key for key in differing if key not in NAMED or self._varies(key)]

    def _varies(self, key: str) -> bool:
        """Whether one variant has several values of a label."""
        return len({(c.name, c.labels.get(key)) for c in self.cases}) > len({c.name for c in self.cases})


def _found(config: Mapping[str, Any], keys: Sequence[str]) -> str:
    """A value of a configuration as text; "" where there is none."""
    node: Any = config
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return "" if node is None else text(node)


def built_in_tables() -> dict[str, Path]:
    """The tables that come with commeff, by name."""
    return {path.stem: path for path in sorted(TABLES.glob("*.yaml"))}


def find_table(name: str) -> Path:
    """The file of a table: a name of the list, or a path.

    >>> find_table("mine.yaml").name
    'mine.yaml'
    """
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    found = built_in_tables()
    if name not in found:
        near = did_you_mean(name, found)
        raise ConfigError(
            [f"no table {name!r}{near}; `commeff reproduce --list` names them, and a file of your own ends in .yaml"]
        )
    return found[name]


def read_table(path: Path, scale: str = "full", overrides: Sequence[str] = ()) -> PublishedTable:
    """The table of a file at a scale.

    Parameters
    ----------
    path : of the file.
    scale : smoke, reduced or full.
    overrides : `key=value` words that change no result, such as data_dir.

    Raises
    ------
    ConfigError : with all that is wrong.
    """
    raw = read_mapping(path, "table", KEYS)
    faults = [f"{path.name} has no use for {key!r}{did_you_mean(key, KEYS)}" for key in raw if key not in KEYS]
    own = _scale(raw, scale, path.name, faults)
    measure = str(raw.get("measure", MEASURES[0]))
    if measure not in MEASURES:
        faults.append(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}{did_you_mean(measure, MEASURES)}")
    if measure == "modelled" and raw.get("cluster") is None:
        faults.append(f"{path.name} has no cluster, on which it could model runs; give `cluster: NAME or FILE`")
    parameters = _names(raw, "parameters", faults)
    let = _formulas(raw, faults)
    base = _mapping(raw, "base", faults)
    added = _mapping(own, "", faults) | dict(word.split("=", 1) for word in overrides)
    full = [*_cases(raw, base, {}, parameters, faults)]
    keep = {str(key): _values(value) for key, value in (own.get("keep") or {}).items()}
    cases = [case for case in _cases(raw, base, added, parameters, []) if _kept(case, keep)]
    if full and not cases:
        faults.append(f"{path.name}: scale {scale} keeps no case; change its `keep`")
    seeds = _seeds(raw, own, scale, measure in EXACT, faults)
    tune = _tune(raw.get("tune"), full, faults)
    of = str(raw.get("of", "val_loss"))
    names = [*dict.fromkeys(case.name for case in full)]
    table = PublishedTable(
        path=path,
        scale=scale,
        title=str(raw.get("title") or path.stem),
        paper=str(raw.get("paper") or ""),
        about=str(raw.get("about") or "").strip(),
        settings=_words(raw, "settings", faults),
        open=_words(raw, "open", faults),
        measure=measure,
        let=let,
        cases=tuple(cases),
        seeds=tuple(seeds),
        tune=tune,
        cluster=read_cluster(raw.get("cluster"), path.parent, faults),
        of=of,
        show=tuple(map(str, raw.get("show") or [of])),
        tolerance=read_tolerance(raw.get("tolerance"), faults),
        numbers=read_numbers(raw.get("numbers"), of, names, faults),
        comparable={key: text(value) for key, value in _mapping(raw, "comparable", faults).items()},
        claims=read_claims(raw.get("claims"), of, names, faults),
        figure=read_figure(raw.get("figure"), faults),
        cost=_words(raw, "cost", faults).get(scale, ""),
        full_cases=tuple(full),
    )
    if not table.claims and not table.numbers:
        faults.append(f"{path.name} claims nothing; give `claims` or `numbers`")
    if not table.paper:
        faults.append(f"{path.name} names no `paper`: whoever reads it must find what is reproduced")
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return table


def _scale(raw: Mapping[str, Any], scale: str, file: str, faults: list[str]) -> dict[str, Any]:
    """What a scale changes."""
    scales = raw.get("scales") or {}
    if not isinstance(scales, dict) or not all(isinstance(own or {}, dict) for own in scales.values()):
        faults.append(f"scales must be as {{smoke: {{steps: 10}}}}, got {scales!r}")
        return {}
    faults += [f"scales has no use for {key!r}{did_you_mean(key, SCALES)}" for key in scales if key not in SCALES]
    if scale not in SCALES:
        faults.append(f"--scale must be one of {', '.join(SCALES)}, got {scale!r}{did_you_mean(scale, SCALES)}")
    elif scale == "reduced" and scale not in scales:
        faults.append(f"{file} has no scale reduced; it runs at --scale full, and smoke")
    own = scales.get(scale)
    return dict(own) if own else dict(SMOKE) if scale == "smoke" else {}


def _mapping(raw: Mapping[str, Any], part: str, faults: list[str]) -> dict[str, str]:
    """Settings, as text; of a scale those of its keys that are no rules."""
    node = (raw.get(part) or {}) if part else {k: v for k, v in raw.items() if k not in ("seeds", "keep")}
    if not isinstance(node, dict) or any(isinstance(value, dict) for value in node.values()):
        faults.append(f"{part or 'a scale'} must hold settings with dotted keys, such as task.batch: 8, got {node!r}")
        return {}
    return {str(key): text(value) for key, value in node.items()}


def _words(raw: Mapping[str, Any], part: str, faults: list[str]) -> dict[str, str]:
    node = raw.get(part) or {}
    if not isinstance(node, dict):
        faults.append(f"{part} must be a mapping of words, got {node!r}")
        return {}
    return {str(key): str(value) for key, value in node.items()}


def _names(raw: Mapping[str, Any], part: str, faults: list[str]) -> list[str]:
    node = raw.get(part) or []
    if not isinstance(node, list):
        faults.append(f"{part} must be a list of names, got {node!r}")
        return []
    return [str(name) for name in node]


def _formulas(raw: Mapping[str, Any], faults: list[str]) -> dict[str, Expression]:
    found = {}
    for key, value in _words(raw, "let", faults).items():
        try:
            found[key] = parse_formula(value)
        except LanguageError as error:
            faults.append(f"let.{key}: {error}")
    return found


def _values(value: Any) -> list[str]:
    return [text(each) for each in (value if isinstance(value, list) else [value])]


def _cases(
    raw: Mapping[str, Any], base: Mapping[str, str], added: Mapping[str, str], parameters: list[str], faults: list[str]
) -> Iterator[Case]:
    """The combinations of every entry of the grid, less what is excluded; `added` overrides settings."""
    entries, excluded = raw.get("grid") or [], raw.get("exclude") or []
    if not isinstance(entries, list) or not entries or not all(isinstance(e, dict) for e in [*entries, *excluded]):
        faults.append("grid and exclude must be lists of settings, such as [{name: psgd, method: psgd}]")
        return
    rules = [{str(key): _values(value) for key, value in rule.items()} for rule in excluded]
    axes = [{str(k): _values(v) for k, v in entry.items() if k != "name"} for entry in entries]
    if sum(_size(each) for each in axes) > MOST_CASES:
        faults.append(f"grid must have at most {MOST_CASES:,} cases, got more; sweep less")
        return
    for number, (entry, own) in enumerate(zip(entries, axes, strict=True), 1):
        if "name" not in entry and "method" not in own:
            faults.append(f"grid: entry {number} has no name, by which claims call it; add `name: ...`")
        for values in product(*own.values()):
            labels = dict(zip(own, values, strict=True))
            name = str(entry.get("name") or labels.get("method"))
            settings = {**base, **{k: v for k, v in labels.items() if k not in parameters}}
            settings |= {key: value for key, value in added.items() if key not in parameters}
            case = Case(name, labels | {k: v for k, v in added.items() if k in labels}, settings)
            if not any(all(case.label(key) in allowed for key, allowed in rule.items()) for rule in rules):
                yield case


def _size(axes: Mapping[str, list[str]]) -> int:
    size = 1
    for values in axes.values():
        size *= len(values)
    return size


def _kept(case: Case, keep: Mapping[str, list[str]]) -> bool:
    """Whether a scale keeps a case: none of its labels has another value than those named."""
    return all((case.name if key == "name" else case.label(key)) in (None, *allowed) for key, allowed in keep.items())


def _seeds(raw: Mapping[str, Any], own: Mapping[str, Any], scale: str, exact: bool, faults: list[str]) -> list[int]:
    node = raw.get("seeds", [0] if exact else [0, 1, 2])
    whole = isinstance(node, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in node)
    if not whole or not node or len(set(node)) < len(node):
        faults.append(f"seeds must be a list of different whole numbers, such as [0, 1, 2], got {node!r}")
        return [0]
    chosen = own.get("seeds", node[:1] if scale == "smoke" else node)
    if not isinstance(chosen, list) or not chosen or not set(chosen) <= set(node):
        faults.append(f"the seeds of scale {scale} must be among {node}, got {chosen!r}")
        return node
    if scale != "smoke" and len(chosen) < 3 and not exact:
        faults.append(f"at least 3 seeds are needed at scale {scale}, got {chosen}: fewer cannot tell")
    return chosen


def _tune(node: Any, cases: Sequence[Case], faults: list[str]) -> tuple[str, str] | None:
    """The tuned key and what it is chosen by; every variant must have tried as many values."""
    if node is None:
        return None
    if not isinstance(node, dict) or set(node) != {"over", "by"} or node["by"] not in CHOSEN_BY:
        faults.append(f"tune must be as {{over: optimizer.lr, by: val_loss}}, by one of {CHOSEN_BY}, got {node!r}")
        return None
    over = str(node["over"])
    tried: dict[tuple[Any, ...], int] = {}
    for case in cases:
        fixed = (case.name, *sorted((key, value) for key, value in case.labels.items() if key != over))
        tried[fixed] = tried.get(fixed, 0) + (over in case.labels)
    if len(set(tried.values())) > 1:
        least, most = (pick(tried, key=lambda fixed: tried[fixed]) for pick in (min, max))
        faults.append(
            f"tune: {least[0]} tries {tried[least]} values of {over}, {most[0]} tries {tried[most]}: "
            "give each method as many"
        )
    return over, str(node["by"])
