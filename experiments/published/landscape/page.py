"""results/landscape: a page of all methods and their fronts, a figure, all numbers as CSV, from the tables alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from commeff.experiments.config.clusters import Place, read_place
from commeff.experiments.config.schema import built_in
from commeff.experiments.published.landscape.evidence import MethodEvidence, TaskEvidence, load
from commeff.experiments.published.landscape.fronts import FrontPoint, front
from commeff.experiments.published.landscape.price import MethodPrice, method_price, minibatch_seconds, model_layout
from commeff.experiments.published.landscape.spec import Landscape, LandscapeTask, landscape
from commeff.experiments.report.data.quantities import MISSING, significant
from commeff.experiments.report.data.statistics import Estimate, estimate
from commeff.experiments.report.write.table import Column, Item, Table, markdown

EDGE = "†"
TWIN, ROUGH = "‡", "§"
COMMAND = "python -m commeff.experiments.published.landscape"


@dataclass(frozen=True, eq=False)
class TaskMap:
    """A task with the prices of its methods on the page's clusters.

    Attributes
    ----------
    evidence : of it.
    prices : by cluster and method.
    unpriced : by method, why it has no modelled seconds.
    """

    evidence: TaskEvidence
    prices: Mapping[str, Mapping[str, MethodPrice]]
    unpriced: dict[str, str] = field(default_factory=dict)

    def to_target(self, cluster: str, method: str) -> Estimate | None:
        """Modelled seconds to the target, over the seeds that reach it."""
        price = self.prices[cluster].get(method)
        if price is None:
            return None
        return estimate(price.at(steps) for steps in self.evidence.methods[method].to_target.values())

    def values(self) -> dict[str, Mapping[int, float]]:
        """By method and seed."""
        return {name: found.values for name, found in self.evidence.methods.items()}

    def costs(self) -> Iterator[tuple[str, dict[str, float]]]:
        """What a step costs, by method: bytes on the wire as counted, then modelled seconds on each cluster."""
        yield "bytes", {name: found.wire_bytes for name, found in self.evidence.methods.items()}
        steps = self.evidence.task.steps
        for cluster, prices in self.prices.items():
            yield cluster, {name: price.seconds / steps for name, price in prices.items()}

    def fronts(self) -> dict[str, list[FrontPoint]]:
        """The front of the reported value against each cost."""
        return {name: front(costs, self.values(), self.evidence.task.value) for name, costs in self.costs()}


def task_map(spec: Landscape, evidence: TaskEvidence) -> TaskMap:
    """Price all methods of a task."""
    prices: dict[str, dict[str, MethodPrice]] = {}
    unpriced: dict[str, str] = {}
    layout, workers = model_layout(evidence), evidence.task.workers
    for place in map(_place, spec.clusters):
        compute, _ = minibatch_seconds(spec, evidence, place)
        prices[place.name] = {}
        for method in evidence.methods:
            try:
                found = method_price(spec, evidence, method, place, compute, workers, layout)
                prices[place.name][method] = found
            except ValueError as error:
                unpriced[method] = str(error).splitlines()[0]
    return TaskMap(evidence, prices, unpriced)


def _place(cluster: str) -> Place:
    return read_place({"cluster": cluster})


def write(tables: Path, out: Path) -> list[Path]:
    """Write landscape.md, landscape.csv and the figures; returns their paths."""
    from commeff.experiments.published.landscape.figure import draw

    spec, found = landscape(), load(tables)
    maps = [task_map(spec, evidence) for evidence in found.values()]
    if not maps:
        raise ValueError(
            f"{tables} must hold a method with all its seeds, got none: there is nothing to map; run first"
        )
    out.mkdir(parents=True, exist_ok=True)
    page, data = out / "landscape.md", out / "landscape.csv"
    page.write_text("\n".join(_page(spec, maps)) + "\n", encoding="utf-8")
    pd.DataFrame([*_numbers(maps)]).to_csv(data, index=False, lineterminator="\n", float_format="%.6g")
    return [page, data, *draw(maps, out)]


def _page(spec: Landscape, maps: Sequence[TaskMap]) -> list[str]:
    lines = ["# The field: every method at an equal tuning budget", "", *_head(spec, maps)]
    together: dict[tuple[int, str], list[TaskMap]] = {}
    for each in maps:
        together.setdefault((each.evidence.task.workers, each.evidence.task.value), []).append(each)
    for group in together.values():
        lines += ["", f"## {' and '.join(_short(each) for each in group)}", "", *markdown(_table(spec, group)), ""]
        lines += [_note(group)]
    lines += ["", "## Nobody is better and cheaper", "", *_fronts_words(maps), "", "![fronts](landscape.png)"]
    whys = [f"- {name} ({setting.shown}): {setting.why}" for name, setting in spec.settings.items()]
    lines += ["", "## Set otherwise than its YAML, and why", "", *whys] if whys else []
    if rough := _rough(maps):
        lines += ["", "## Whose seconds are rough", "", *rough]
    return [*lines, "", "## What is missing", "", *_missing(spec, maps)]


def _head(spec: Landscape, maps: Sequence[TaskMap]) -> list[str]:
    seeds = ", ".join(map(str, spec.seeds))
    lines = [
        f"Written by `{COMMAND} write` from the tables that",
        f"`{COMMAND} run` filled; settings, rates and reasons are in",
        "`experiments/published/landscape/landscape.yaml`. Workers are simulated on one machine: accuracies and bytes",
        "are counted, seconds are modelled on described clusters and measured nowhere. Each method tries the same",
        f"number of learning rates once (seed {spec.tuning_seed}); the best on validation data is run with seeds",
        f"{seeds}, and what test data say of those runs is reported: means and 95 % intervals over seeds. Reduced:",
        "",
    ]
    for each in maps:
        found, task = each.evidence, each.evidence.task
        rates = ", ".join(f"{rate:g}" for rate in task.rates)
        lines.append(
            f"- `{task.name}`: {task.title}. {task.reduced}. Rates {rates}. Target: {task.by.replace('_', ' ')} "
            f"{found.target:.4g}, psgd's mean {_allowance(task)}. "
            f"{len(found.methods)} methods. Commit {found.commit}, {found.cpu}, torch {found.torch}."
        )
    return lines


def _allowance(task: LandscapeTask) -> str:
    points = 100 * task.allowance
    return f"less {points:g} points" if task.by.endswith("accuracy") else f"plus {points:g} %"


def _short(each: TaskMap) -> str:
    return each.evidence.task.name


def _table(spec: Landscape, group: Sequence[TaskMap]) -> Table:
    """All methods of tasks that are reported alike, the best mean of the first task first."""
    first, task = group[0], group[0].evidence.task
    percent = task.value.endswith("accuracy")
    names = dict.fromkeys(name for each in group for name in each.evidence.methods)
    columns = [Column("method", words=True), Column("set otherwise than its YAML", words=True)]
    columns += [Column(f"{_short(each)}: {task.value.replace('_', ' ')}", "%" if percent else "") for each in group]
    columns += [Column("rate", " / ".join(_short(each) for each in group) if len(group) > 1 else "", words=True)]
    columns += [Column("wire a step", "kB"), Column("state", "numbers a parameter")]
    columns += [Column(f"to target, {cluster}", "ms, modelled", words=True) for cluster in spec.clusters]

    def mean(name: str) -> float:
        value = estimate(first.evidence.methods[name].values.values()) if name in first.evidence.methods else None
        return float("inf") if value is None else (-value.mean if percent else value.mean)

    fronts = {name for each in group for points in each.fronts().values() for name in [p.method for p in points]}
    rows = []
    for name in sorted(names, key=mean):
        founds = [each.evidence.methods.get(name) for each in group]
        some = next(found for found in founds if found)
        priced = next((p[name] for each in group for p in each.prices.values() if name in p), None)
        mark = "" if priced is None else TWIN * priced.asynchronous + ROUGH * bool(priced.note)
        cells = [Item(name, best=name in fronts, mark=mark), Item(spec.setting(name).shown)]
        cells += [_value(found, percent) for found in founds]
        cells += [Item(" / ".join(f"{f.rate:g}{EDGE if f.edge else ''}" if f else MISSING for f in founds))]
        cells += [Item(significant(some.wire_bytes / 1e3)), Item(significant(priced.state) if priced else MISSING)]
        cells += [Item(" / ".join(_target_words(each, cluster, name) for each in group)) for cluster in spec.clusters]
        rows.append(cells)
    return Table("landscape", "", columns, rows)


def _value(found: MethodEvidence | None, percent: bool) -> Item:
    value = estimate(found.values.values()) if found else None
    if value is None:
        return Item(MISSING)
    scale, places = (100, 1) if percent else (1, 3)
    half = "" if value.half is None else f"{scale * value.half:.{places}f}"
    return Item(f"{scale * value.mean:.{places}f}", half)


def _target_words(each: TaskMap, cluster: str, method: str) -> str:
    found = each.evidence.methods.get(method)
    seconds = each.to_target(cluster, method) if found else None
    if found is None or seconds is None:
        return MISSING
    partly = "" if seconds.n == len(found.values) else f" ({seconds.n} of {len(found.values)})"
    return f"{significant(1e3 * seconds.mean)}{partly}"


def _note(group: Sequence[TaskMap]) -> str:
    return (
        "Bold: on a front below. The best first. "
        + (f"Two numbers are those of {' / '.join(_short(each) for each in group)}. " if len(group) > 1 else "")
        + f"{TWIN}: asynchronous; workers are equally fast here, so it is the synchronous method that it names. "
        + f"{ROUGH}: its profile is not exact, and so are its seconds; why is said below. "
        + f"{EDGE}: the chosen rate is the smallest or largest tried, so a better one may lie outside. Wire: bytes "
        "that a worker's collectives move in a step, counted. State: what a worker remembers between steps beside "
        f"parameters and gradient. To target: where some seeds reach it, how many; {MISSING}: none."
    )


def _fronts_words(maps: Sequence[TaskMap]) -> list[str]:
    lines = [
        "Cheapest first, with the mean that is reached after all steps; against bytes on the wire, and against",
        "modelled seconds of a step. `=`: three seeds, paired, do not tell the method from the one before it at 95 %.",
        "",
    ]
    for each in maps:
        percent = each.evidence.task.value.endswith("accuracy")
        for cost, points in each.fronts().items():
            words = [_point(point, percent) for point in points]
            lines.append(f"- {_short(each)}, {cost}: {', '.join(words)}")
    return lines


def _point(point: FrontPoint, percent: bool) -> str:
    same = "= " if point.told_apart is False else ""
    return (
        f"{same}{point.method} {100 * point.value.mean:.1f} %"
        if percent
        else f"{same}{point.method} {point.value.mean:.3f}"
    )


def _missing(spec: Landscape, maps: Sequence[TaskMap]) -> list[str]:
    lines = []
    for each in maps:
        lost = dict(each.evidence.missing)
        chosen = each.evidence.task.methods or built_in("method")
        lost |= {name: "not run yet" for name in chosen if name not in lost and name not in each.evidence.methods}
        lines += [f"- `{_short(each)}`, {name}: {reason}" for name, reason in sorted(lost.items())]
        lines += [f"- `{_short(each)}`, {name}: no modelled seconds: {why}" for name, why in each.unpriced.items()]
    lines += [f"- `{name}`: not run yet" for name in spec.tasks if name not in map(_short, maps)]
    return lines or ["Nothing: every method of the catalogue is in the tables."]


def _rough(maps: Sequence[TaskMap]) -> list[str]:
    prices = [(name, p) for each in maps for of in each.prices.values() for name, p in of.items() if p.note]
    return [f"- {name}: {note}" for name, note in sorted({(name, price.note) for name, price in prices})]


def _numbers(maps: Sequence[TaskMap]) -> Iterator[dict[str, object]]:
    """A row a task and method, with all digits."""
    for each in maps:
        fronts = each.fronts()
        for name, found in each.evidence.methods.items():
            value = estimate(found.values.values())
            yield {
                "task": _short(each),
                "method": name,
                "rate": found.rate,
                "edge": found.edge,
                each.evidence.task.value: value and value.mean,
                "half": value and value.half,
                "n": value and value.n,
                "payload_bytes_step": found.payload_bytes,
                "wire_bytes_step": found.wire_bytes,
                "state": next((p[name].state for p in each.prices.values() if name in p), None),
                "seeds_to_target": len(found.to_target),
                **{f"seconds_{c}": p[name].seconds if name in p else None for c, p in each.prices.items()},
                **{f"to_target_{c}": (s := each.to_target(c, name)) and s.mean for c in each.prices},
                "fronts": " ".join(cost for cost, points in fronts.items() if name in [p.method for p in points]),
            }
