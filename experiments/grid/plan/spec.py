"""What a grid file says: a union of products of settings, times seeds, less what is excluded.

title: Two ways to say less
base: {task: digits, workers: 16, steps: 400}        # settings of every cell
seeds: [0, 1, 2]
grid:                                                # a list is swept; [[0, 1]] sweeps nothing: its value is a list
  - {method: psgd, optimizer.lr: [0.4, 0.8]}
  - {method: [dsgd, gossip_pga], topology: [ring, exponential], optimizer.lr: [0.4, 0.8]}
  - {name: choco with signs, method: choco, compressor: scaled_sign}
exclude:
  - {method: dsgd, topology: ring}
select: {over: optimizer.lr, by: val_accuracy}       # the best on validation; what is reported of it is the test
target: {val_accuracy: 0.95}                         # to which time and bytes are counted
baseline: {method: psgd}                             # with which the others are compared
clusters: [v100_25g, mine.yaml]                      # on which the report models wall-clock time
step_seconds: 0.01                                   # of computing there; without it from counted FLOPs
labels: {psgd lr=0.4: parallel SGD}                  # what the report's tables and figures call a variant
order: [choco with signs]                            # the variants that come first; the others follow
half_dense: false                                    # no row of psgd with 16-bit numbers
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import isfinite, prod
from pathlib import Path
from typing import Any

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.reading import read_yaml
from commeff.require import did_you_mean

Settings = dict[str, str]
Product = tuple[dict[str, list[str]], str | None]  # the values of each key, and the name
MAX_CELLS = 10_000
KEYS = ("title", "base", "seeds", "grid", "exclude", "select", "target", "baseline", "clusters", "step_seconds")
SHOWN = ("labels", "order", "half_dense")  # how a report shows it

VALIDATION = ("val_accuracy", "val_loss", "train_loss", "suboptimality")
STEPS_TO_TARGET = "steps_to_target"


@dataclass(frozen=True)
class Point:
    """One combination of settings without its seed, and what its author calls it (None: after what varies)."""

    settings: Settings
    name: str | None


@dataclass(frozen=True)
class Grid:
    """A grid file, read and checked as far as it can be without the parts that it names."""

    name: str
    title: str
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    select: dict[str, Any] | None
    target: dict[str, float] | None
    baseline: Settings | None
    clusters: list[dict[str, Any]] | None = None
    lists: tuple[str, ...] = ()  # keys of the base whose value is a list
    shown: Mapping[str, Any] = field(default_factory=dict)  # what it says of SHOWN

    def unswept(self, faults: Sequence[str]) -> list[str]:
        """A line for each list of the base that is no value of its key: its author may have meant to sweep it."""
        words = {key: (f"{key} must be", f"no {key} ") for key in self.lists}
        refused = [key for key, phrases in words.items() if any(word in fault for fault in faults for word in phrases)]
        where = {"seed": "write seeds: [0, 1, 2] beside base"}
        return [
            f"base.{key} is a list, and lists of base are not swept: {where.get(key, 'give it to the entries of grid')}"
            for key in refused
        ]


def read_grid(path: Path, overrides: Sequence[str] = (), max_cells: int = MAX_CELLS) -> Grid:
    """The grid of a file.

    Parameters
    ----------
    path : of the file.
    overrides : `key=value` words put into its base.
    max_cells : how many cells it may have, seeds and excluded ones counted.

    Raises
    ------
    ConfigError : with all that is wrong.
    """
    keys = (*KEYS, *SHOWN)
    raw = read_yaml(path, "grid file", keys)
    faults = [f"{path.name} has no use for {key!r}{did_you_mean(key, keys)}" for key in raw if key not in keys]
    base = _base(raw.get("base"), overrides, faults)
    base_node = raw["base"] if isinstance(raw.get("base"), dict) else {}
    products = [_product(i, item, overrides, faults) for i, item in _items(raw, "grid", faults)]
    if not products:
        faults.append(f"{path.name} has no grid; write `grid: [{{method: psgd}}]`")
    seeds = _seeds(raw.get("seeds"), base, products, faults)
    count = sum(prod(map(len, axes.values())) for axes, _ in products) * max(1, len(seeds))
    if count > max_cells:
        reason = f"{path.name} must have at most {max_cells:,} cells, excluded ones counted, got {count:,}"
        raise ConfigError([*faults, f"{reason}; sweep less, or allow more with --max-cells"])
    points = [
        Point(base | dict(zip(axes, values, strict=True)), name)
        for axes, name in products
        for values in product(*axes.values())
    ]
    remaining = _without(points, [item for _, item in _items(raw, "exclude", faults)], faults)
    grid = Grid(
        path.stem,
        str(raw.get("title") or path.stem),
        tuple(remaining),
        tuple(seeds),
        _select(raw.get("select"), products, raw.get("target") is not None, faults),
        _target(raw.get("target"), faults),
        _baseline(raw.get("baseline"), remaining, faults),
        _clusters(raw, path.parent, faults),
        tuple(key for key, value in base_node.items() if isinstance(value, list)),
        _shown(raw, faults),
    )
    if faults:
        raise ConfigError(faults)
    return grid


def text(value: Any) -> str:
    """A value of the file as one writes it on the command line.

    >>> text(True), text(None), text([1, 2]), text(0.1), text("ring")
    ('true', 'null', '[1,2]', '0.1', 'ring')
    """
    if isinstance(value, list):
        try:
            return f"[{','.join(map(text, value))}]"
        except RecursionError:
            raise ConfigError(["a list of the grid file holds itself; write its values"]) from None
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def words_of(settings: Mapping[Any, Any]) -> list[str]:
    """Settings as one writes them on the command line."""
    return [f"{key}={text(value)}" for key, value in settings.items()]


def _base(node: Any, overrides: Sequence[str], faults: list[str]) -> Settings:
    base: Settings = {}
    if node is not None and not isinstance(node, dict):
        faults.append(f"base must hold settings, such as {{task: digits}}, got {node!r}")
    elif node:
        for key, value in node.items():
            if isinstance(value, dict):
                faults.append(f"base.{key} holds a mapping; write dotted keys, such as {key}.{next(iter(value), 'x')}")
            base[str(key)] = text(value)
    for word in overrides:
        key, equals, value = word.partition("=")
        if not equals or not key:
            faults.append(f"{word!r} is no setting; write key=value")
        elif key[0] in "+~":
            faults.append(f"{word!r}: keys are neither added nor removed")
        else:
            base[key] = value
    return base


def _items(raw: Mapping[str, Any], part: str, faults: list[str]) -> Iterator[tuple[int, dict[Any, Any]]]:
    items = raw.get(part) or []
    if not isinstance(items, list):
        faults.append(f"{part} must be a list of settings, got {items!r}")
        return
    for i, item in enumerate(items, 1):
        if isinstance(item, dict) and item:
            yield i, item
        else:
            faults.append(f"{part}: entry {i} must hold settings, such as {{method: dsgd}}, got {item!r}")


def _product(number: int, node: dict[Any, Any], overrides: Sequence[str], faults: list[str]) -> Product:
    overridden = {word.partition("=")[0] for word in overrides}
    axes: dict[str, list[str]] = {}
    for key, value in node.items():
        if key == "name":
            continue
        if isinstance(value, dict):
            faults.append(f"grid: entry {number} has a mapping for {key}; write dotted keys, such as {key}.x")
            continue
        values = [text(v) for v in value] if isinstance(value, list) else [text(value)]
        if not values:
            faults.append(f"grid: entry {number} sweeps {key} over nothing; give a value")
        twice = sorted(_repeated(values))
        if twice:
            faults.append(f"grid: entry {number} has {key}={twice[0]} twice; keep one")
        if key in overridden:
            faults.append(f"{key} must not be overridden: entry {number} of the grid sets it; change the file")
        axes[str(key)] = values
    return axes, None if node.get("name") is None else str(node["name"])


def _seeds(node: Any, base: Settings, products: Sequence[Product], faults: list[str]) -> list[int]:
    places = [
        *(["base"] if "seed" in base else []),
        *(f"entry {i} of the grid" for i, (axes, _) in enumerate(products, 1) if "seed" in axes),
    ]
    if node is None:
        return []
    if places:
        faults.append(f"seeds given twice: in seeds and as seed in {', '.join(places)}; keep one")
    whole = isinstance(node, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in node)
    if not whole or not node:
        faults.append(f"seeds must be a list of whole numbers, such as [0, 1, 2], got {node!r}")
        return []
    twice = sorted(_repeated(node))
    if twice:
        faults.append(f"seed {twice[0]} given twice in seeds; keep one")
    return list(dict.fromkeys(node))


def _repeated(values: Sequence[Any]) -> list[Any]:
    """
    >>> _repeated([1, 2, 1])
    [1]
    """
    return [value for value, count in Counter(values).items() if count > 1]


def _matches(settings: Mapping[str, str], rule: Mapping[Any, Any]) -> bool:
    """Whether settings are among those that a rule names; a list names several values."""
    choices = {
        str(key): [text(v) for v in (value if isinstance(value, list) else [value])] for key, value in rule.items()
    }
    return all(settings.get(key) in values for key, values in choices.items())


def _without(points: Sequence[Point], rules: Sequence[dict[Any, Any]], faults: list[str]) -> list[Point]:
    for i, rule in enumerate(rules, 1):
        if not any(_matches(point.settings, rule) for point in points):
            faults.append(f"exclude: entry {i} removes nothing: no cell has {', '.join(words_of(rule))}")
    remaining = [point for point in points if not any(_matches(point.settings, rule) for rule in rules)]
    if points and not remaining:
        faults.append(f"exclude removes all {len(points)} cells; leave some")
    return remaining


def _select(node: Any, products: Sequence[Product], has_target: bool, faults: list[str]) -> dict[str, Any] | None:
    if node is None:
        return None
    if not isinstance(node, dict) or set(node) != {"over", "by"}:
        faults.append(f"select must be as {{over: optimizer.lr, by: val_accuracy}}, got {node!r}")
        return None
    over = [str(key) for key in (node["over"] if isinstance(node["over"], list) else [node["over"]])]
    swept = {key for axes, _ in products for key, values in axes.items() if len(values) > 1}
    faults += [
        f"select.over names {key}, which no entry of the grid sweeps{did_you_mean(key, swept)}"
        for key in over
        if key not in swept
    ]
    if str(node["by"]).startswith("test_"):
        faults.append(f"select.by: {node['by']} would choose by the test; choose by val_accuracy or val_loss")
    elif node["by"] not in (*VALIDATION, STEPS_TO_TARGET):
        faults.append(f"select.by must be one of {', '.join((*VALIDATION, STEPS_TO_TARGET))}, got {node['by']!r}")
    elif node["by"] == STEPS_TO_TARGET and not has_target:
        faults.append(f"select.by {STEPS_TO_TARGET} needs a target, such as target: {{val_loss: 0.2}}")
    return {"over": over, "by": str(node["by"])}


def _target(node: Any, faults: list[str]) -> dict[str, float] | None:
    if node is None:
        return None
    if not (
        isinstance(node, dict)
        and len(node) == 1
        and all(isinstance(v, (int, float)) and not isinstance(v, bool) and isfinite(v) for v in node.values())
    ):
        faults.append(f"target must be one measurement and its level, such as {{val_accuracy: 0.95}}, got {node!r}")
        return None
    return {str(key): float(value) for key, value in node.items()}


def _baseline(node: Any, points: Sequence[Point], faults: list[str]) -> Settings | None:
    if node is None:
        return None
    if not isinstance(node, dict) or not node or not any(_matches(point.settings, node) for point in points):
        near = meant(node, [point.settings for point in points]) if isinstance(node, dict) else ""
        faults.append(
            f"baseline {node!r} is no cell of the grid{near}; name one by its settings, such as {{method: psgd}}"
        )
        return None
    return {str(key): text(value) for key, value in node.items()}


def meant(rule: Mapping[Any, Any], cells: Sequence[Mapping[str, str]]) -> str:
    """'; did you mean ...?' for the first setting of a rule that no cell has, or nothing.

    >>> cells = [{"method": "psgd", "topology": "ring"}, {"method": "dsgd", "topology": "star"}]
    >>> meant({"methud": "psgd"}, cells), meant({"topology": "starr"}, cells), meant({"topology": "star"}, cells)
    ('; did you mean method?', '; did you mean star?', '')
    """
    for key, value in rule.items():
        values = dict.fromkeys(cell[str(key)] for cell in cells if str(key) in cell)
        if not values:
            return did_you_mean(str(key), dict.fromkeys(key for cell in cells for key in cell))
        if text(value) not in values:
            return did_you_mean(text(value), values)
    return ""


def _shown(raw: Mapping[str, Any], faults: list[str]) -> dict[str, Any]:
    """The keys that say how the report shows the grid."""
    labels, order, half = raw.get("labels") or {}, raw.get("order") or [], raw.get("half_dense", True)
    if not isinstance(labels, dict) or not all(isinstance(word, str) for word in (*labels, *labels.values())):
        faults.append(f"labels must be variants with a word for each, such as {{psgd: parallel SGD}}, got {labels!r}")
    elif len({*labels.values()}) < len(labels):
        faults.append(f"labels must differ, got {labels!r}: a table tells variants apart")
    if not isinstance(order, list) or not all(isinstance(variant, str) for variant in order):
        faults.append(f"order must be a list of variants, the first ones first, got {order!r}")
    if not isinstance(half, bool):
        faults.append(f"half_dense must be true or false, got {half!r}")
    return {key: raw[key] for key in SHOWN if key in raw}


def _clusters(raw: Mapping[str, Any], folder: Path, faults: list[str]) -> list[dict[str, Any]] | None:
    seconds, clusters = raw.get("step_seconds"), raw.get("clusters")
    if clusters is None:
        faults += ["step_seconds is that of clusters; give clusters too"] * (seconds is not None)
        return None
    from commeff.cluster.places import entries

    try:
        return entries(clusters, folder, seconds)
    except ValueError as error:
        faults.append(f"clusters: {error}")
        return None
