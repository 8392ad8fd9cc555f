"""What a grid set out to run: its file in the store, or what the configurations of a store differ in."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commeff.experiments.config.registry import split
from commeff.experiments.config.schema import VERSION
from commeff.experiments.report.data.records import Record, drawable, read_record, read_store
from commeff.experiments.run.naming import BESIDE, IRRELEVANT
from commeff.experiments.run.reading import read_mapping, run_name
from commeff.experiments.run.store import check_grid

SWEPT = "optimizer.lr"  # what a store without a grid file is taken to have tuned


@dataclass(frozen=True)
class StoredCell:
    """One planned run: its folder's name, its seed, what tells it from the others, and the settings that make it."""

    run: str
    seed: int
    labels: Mapping[str, str]
    settings: tuple[str, ...] | None = None
    name: str | None = None


@dataclass(frozen=True)
class StoredGrid:
    """The cells, and what their author wants: tuned keys, how they are chosen, a target, a baseline, clusters."""

    name: str
    title: str
    command: str | None
    cells: tuple[StoredCell, ...]
    over: tuple[str, ...] = ()
    by: str | None = None
    target: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, str] = field(default_factory=dict)
    clusters: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)  # what variants are called, by the names they have else
    order: tuple[str, ...] = ()  # those that come first
    half: bool = True  # whether 16-bit dense psgd is counted
    faults: tuple[str, ...] = ()  # a line for each cluster that is left out


def choose(store: Path, name: str | None, records: Sequence[Record]) -> StoredGrid:
    """The grid called `name`; without a name the only one, or what the runs themselves show if there is none."""
    files = check_grid(store, name)
    return read_grid(files[name or next(iter(files))]) if files else derive(store, records)


def planned_runs(store: Path, name: str | None) -> tuple[StoredGrid, dict[str, Record]]:
    """The grid that `choose` chooses, and all runs of it and of the store by name, as far as they can be shown."""
    records = read_store(store)
    plan, by_id = choose(store, name, records), {record.id: record for record in records}
    by_id |= {cell.run: read_record(store / cell.run) for cell in plan.cells if cell.run not in by_id}
    return plan, {run: drawable(record) for run, record in by_id.items()}


def read_grid(path: Path) -> StoredGrid:
    """A grid file."""
    try:
        content = read_mapping(path)
        clusters, faults = _clusters(content.get("clusters") or ())
        select, name = content.get("select") or {}, str(content.get("name") or path.stem)
        return StoredGrid(
            name=name,
            title=str(content.get("title") or name),
            command=str(content.get("command") or "") or None,
            cells=tuple(_cell(cell) for cell in content["cells"]),
            over=tuple(str(key) for key in select.get("over") or ()),
            by=select.get("by"),
            target={metric: _level(value) for metric, value in (content.get("target") or {}).items()},
            baseline={key: str(value) for key, value in (content.get("baseline") or {}).items()},
            clusters=clusters,
            labels={str(name): str(label) for name, label in (content.get("labels") or {}).items()},
            order=tuple(str(name) for name in content.get("order") or ()),
            half=content.get("half_dense") is not False,
            faults=faults,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{path} cannot be read as a grid ({type(error).__name__}: {error}); let `commeff grid` write it anew"
        ) from None


def _clusters(listed: Sequence[Mapping[str, Any]]) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """The clusters that ship or whose description the grid holds, and a line for each other; no file is opened."""
    from commeff.cluster import names

    clusters = [dict(cluster) for cluster in listed]
    known = tuple(cluster for cluster in clusters if "described" in cluster or cluster.get("cluster") in names())
    others = (cluster.get("cluster") for cluster in clusters if cluster not in known)
    return known, tuple(
        f"cluster {name} is a file outside the store: it is not opened; name it with --cluster" for name in others
    )


def _level(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a level must be a number, got true or false")
    return float(value)


def _cell(cell: Mapping[str, Any]) -> StoredCell:
    labels = {key: str(value) for key, value in cell["labels"].items() if value not in (None, "")}
    settings = cell.get("settings")
    words = None if settings is None else tuple(str(word) for word in settings)
    return StoredCell(run_name(cell["run"]), int(cell["seed"]), labels, words, str(cell.get("name") or "") or None)


def derive(store: Path, records: Sequence[Record]) -> StoredGrid:
    """A grid of all runs in a store, labelled by what their configurations differ in."""
    flat = [leaves(record.config) for record in records]
    corrected = {settings.get("method") for settings in flat if "method.version" in settings}
    flat = [({"method.version": "1"} if run.get("method") in corrected else {}) | run for run in flat]
    differing = _differing(flat)
    cells = tuple(
        StoredCell(
            record.id, int(settings.get("seed", 0)), {key: settings[key] for key in differing if key in settings}
        )
        for record, settings in zip(records, flat, strict=True)
    )
    over = (SWEPT,) if SWEPT in differing else ()
    return StoredGrid(store.resolve().name, f"All runs in {store.resolve().name}", None, cells, over)


def _differing(flat: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that tell runs apart, parts first. A part's own keys count only among runs that share the part.

    >>> runs = [{"method": "choco", "method.gamma": "1"}, {"method": "psgd"}, {"method": "choco", "method.gamma": "2"}]
    >>> _differing([{**run, "seed": str(i)} for i, run in enumerate(runs)])
    ['method', 'method.gamma']
    """
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for settings in flat:
        for key, value in settings.items():
            values[key][settings.get(key.rpartition(".")[0], "")].add(value)
    keys = dict.fromkeys(key for settings in flat for key in settings)
    absent = {key for key in keys if "." not in key and any(settings and key not in settings for settings in flat)}
    return [
        key
        for key in sorted(keys, key=lambda key: key != "method")
        if key.split(".")[-1] != "seed"
        and not _follows(key, flat)
        and (key in absent or any(len(among) > 1 for among in values[key].values()))
    ]


def _follows(key: str, flat: Sequence[Mapping[str, str]]) -> bool:
    """A dotted key that is the number of workers in every run says nothing of its own.

    >>> runs = [{"workers": "4", "topology.n": "4", "k": "4"}, {"workers": "8", "topology.n": "8", "k": "8"}]
    >>> _follows("topology.n", runs), _follows("k", runs), _follows("topology.n", [*runs, {"topology.n": "2"}])
    (True, False, False)
    """
    return "." in key and all(settings[key] == settings.get("workers") for settings in flat if key in settings)


def leaves(config: Mapping[str, Any]) -> dict[str, str]:
    """Every key that decides the result, dotted, and its value; a part is called by the name of what it makes.

    >>> method = {"_target_": "commeff.methods.choco", "topology": "${topology}", "gamma": 0.5}
    >>> leaves({"method": method, "steps": 9, "nproc": 2})
    {'method': 'choco', 'method.gamma': '0.5', 'steps': '9'}
    """
    return dict(_leaves({name: value for name, value in config.items() if name not in BESIDE}))


def _leaves(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in node.items():
        if name == "_target_":
            yield prefix.rstrip("."), short(value)
        elif name == VERSION:
            yield f"{prefix}version", str(value)
        elif isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif not name.startswith("_") and name not in IRRELEVANT and not str(value).startswith("${"):
            yield f"{prefix}{name}", str(value)


def short(target: str) -> str:
    """The name that a target has on the command line.

    >>> [short(t) for t in ("commeff.methods.choco", "commeff.compressors.TopK", "torch.optim.SGD", "mine.py:Mine")]
    ['choco', 'top_k', 'sgd', 'mine']
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", split(str(target))[1]).lower()
