"""Tables of details: the way to the target, every tuned value, failed runs, where runs ran, the topologies."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from commeff.experiments.config.registry import split
from commeff.experiments.grid.plan.spec import STEPS_TO_TARGET
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.commands import settings_of
from commeff.experiments.report.data.quantities import MISSING, fixed, quantity
from commeff.experiments.report.data.records import ENDED_BADLY
from commeff.experiments.report.data.rows import WAYS, shortfall
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.data.variants import RecordedRun, Trial
from commeff.experiments.report.draw.networks import WINDOW, UsedTopology
from commeff.experiments.report.write.cells import NOTHING, cost, estimates, label_of, seeds, spread_of, words
from commeff.experiments.report.write.table import Column, Item, Table
from commeff.experiments.run.store import FINISHED

UNITS = {"wire_bytes": "MB, counted", "seconds": "s, measured", "simulated_seconds": "s, simulated"}


def target_table(analysis: Analysis) -> Table | None:
    """Steps, epochs, bytes and seconds to where the target is first reached."""
    goal = analysis.target
    rows = [(row.variant.name, row.reached) for row in analysis.rows if row.reached and row.reached.of]
    if goal is None or not rows:
        return None
    columns = [
        words("variant", [name for name, _ in rows]),
        Column("reached", "seeds", [seeds(end.n, end.of) for _, end in rows]),
    ]
    data: list[dict[str, object]] = [{"variant": name, "reached": end.n, "of": end.of} for name, end in rows]
    for way in [way for way in WAYS if any(way in end.costs for _, end in rows)]:
        of, items = quantity(way), []
        for line, (_, end) in zip(data, rows, strict=True):
            took = end.costs.get(way)
            items.append(cost(took, of.scale) if took else NOTHING if end.n else Item("not reached", quiet=True))
            line |= spread_of(way, took)
        columns.append(Column(of.heading, UNITS.get(way, ""), items))
    sign = "at least" if goal.metric.endswith("accuracy") else "at most"
    notes = [
        f"Target: {quantity(goal.metric).words} {sign} {goal.shown}, {goal.origin}. Counted up to where the "
        "line between two evaluations reaches it. Means over the seeds with 95 % intervals, where all of them "
        "reached it."
    ]
    return Table("target", "Time and bytes to target", columns, notes, pd.DataFrame(data))


def sweep_table(analysis: Analysis) -> Table | None:
    """Every value tried of the tuned keys."""
    by, over = quantity(analysis.by), analysis.grid.over
    tried = [(variant, trial) for variant in analysis.variants for trial in variant.trials]
    if not over or len(tried) == len(analysis.variants):
        return None
    short = [_short(trial, by.key) for _, trial in tried]
    finals = [
        None if few else estimate(trial.finals(by.key).values(), log=by.key in variant.logs)
        for (variant, trial), few in zip(tried, short, strict=True)
    ]
    chosen = [trial is variant.chosen for variant, trial in tried]
    done = [sum(run.record.state == "done" for run in trial.runs) for _, trial in tried]
    means = [
        replace(item, text=few or item.text, best=best)
        for few, item, best in zip(short, estimates(finals, by), chosen, strict=True)
    ]
    columns = [
        words("variant", [variant.name for variant, _ in tried]),
        *(Column(key, "", [label_of(trial.values.get(key)) for _, trial in tried]) for key in over),
        Column("seeds", "done", [Item(f"{n}/{len(t.runs)}", value=n) for n, (_, t) in zip(done, tried, strict=True)]),
        Column(by.heading, by.unit, means),
        Column("", "", [Item("chosen" * best) for best in chosen], words=True),
    ]
    data = [
        {"variant": variant.name, **trial.values, "chosen": best, **spread_of(by.key, final)}
        for (variant, trial), best, final in zip(tried, chosen, finals, strict=True)
    ]
    notes = [f"{' and '.join(over)} chosen by the best mean {by.words}, among values whose seeds are all done."]
    notes += ["A value with which more seeds reach the target goes before."] * any(short)
    return Table("sweep", "Every value tried", columns, notes, pd.DataFrame(data))


def _short(trial: Trial, by: str) -> str:
    """With how many seeds a tried value reaches the target, where it is chosen by that and not all do."""
    ended = sum(run.record.state in FINISHED for run in trial.runs)
    return shortfall(len(trial.finals(by)), ended) if by == STEPS_TO_TARGET else ""


def failure_table(analysis: Analysis) -> Table | None:
    """The runs that ended otherwise than done: where, why, and how to run them again."""
    lines = []
    for run in (run for run in analysis.runs if run.record.state in ENDED_BADLY):
        status = run.record.status
        step, reason = status.get("step"), run.record.error or str(status.get("error") or "")
        if run.record.state == "diverged":
            step, reason = run.record.summary.get("step", step), run.record.reason or "a loss is no longer finite"
        where = f"{step if step is not None else '?'} of {status.get('steps', '?')}"
        lines.append((run.cell.run, run.record.state, step, where, reason, command_of(run, analysis)))
    if not lines:
        return None
    runs, states, steps, places, reasons, commands = zip(*lines, strict=True)
    columns = [
        words("run", runs, code=True),
        words("state", states),
        words("step", places),
        words("last words", reasons),
        words("run it again", commands, code=True, brief=False),
    ]
    data = pd.DataFrame({"run": runs, "state": states, "step": steps, "reason": reasons, "command": commands})
    return Table("failures", "Runs that did not end well", columns, data=data)


def environment_table(analysis: Analysis) -> Table | None:
    """What differs among the machines, versions and commits of the runs."""
    environments = [_place(run.record.environment) for run in analysis.runs if run.record.environment]
    lines: list[tuple[str, str, int]] = []
    for key in dict.fromkeys(key for environment in environments for key in environment):
        counts = Counter(environment.get(key, MISSING) for environment in environments)
        lines += [(key, value, count) for value, count in sorted(counts.items()) if len(counts) > 1]
    if not lines:
        return None
    data = pd.DataFrame(lines, columns=["key", "value", "runs"])
    runs = Column("runs", "", [Item(str(n), value=n) for n in data["runs"]])
    columns = [words("", data["key"]), words("value", data["value"]), runs]
    return Table("environment", "Not all runs ran in the same place", columns, data=data)


def topology_table(networks: Sequence[UsedTopology]) -> Table:
    """One line a topology: its degree, messages and mixing."""
    periods = [network.topology.period for network in networks]
    shrinkages = [network.shrinkage() for network in networks]
    data = pd.DataFrame(
        {"topology": network.name, "workers": network.topology.n, "degree": network.degree}
        | {"messages": network.messages, "period": period, "rho": rho, "users": ", ".join(network.users)}
        for network, period, rho in zip(networks, periods, shrinkages, strict=True)
    )
    rhos, gaps = [], []
    for network, rho in zip(networks, shrinkages, strict=True):
        exact = rho == 0 and network.steps > 1
        gap = "exact after a period" if exact else MISSING if rho is None else fixed(1 - rho, 4)
        rhos.append(NOTHING if rho is None else Item("0" if exact else fixed(rho, 4), value=rho))
        gaps.append(Item(gap, value=None if rho is None else 1 - rho))
    columns = [
        words("topology", data["topology"]),
        Column("workers", "", [Item(str(n), value=n) for n in data["workers"]]),
        Column("degree", "busiest", [Item(str(n), value=n) for n in data["degree"]]),
        Column("messages", "a step, all", [Item(f"{n:g}", value=n) for n in data["messages"]]),
        Column("period", "steps", [Item(str(n or "never repeats"), value=n or math.inf) for n in periods]),
        Column("ρ", "a step", rhos),
        Column("gap", "1 − ρ", gaps),
        words("used by", data["users"], printed=False),
    ]
    notes = [
        "ρ is the worst factor by which a step shrinks disagreement: ‖W − J‖₂ of a fixed graph, and of a "
        f"changing one the geometric mean over a period, or over {WINDOW} steps if it never repeats."
    ]
    return Table("topologies", "Who talks to whom", columns, notes, data)


def _place(environment: Mapping[str, Any]) -> dict[str, str]:
    """What an env.json says of where a run ran; process ids and restarts are its own, plug-ins are no place."""
    members = environment.get("members")
    machines = [member for member in members if isinstance(member, Mapping)] if isinstance(members, list) else []
    hosts = Counter(str(member.get("host", MISSING)) for member in machines)
    several = {"hosts": ", ".join(f"{host} ({count})" for host, count in sorted(hosts.items()))}
    settings = {key: str(value) for key, value in environment.items() if key not in ("members", "restarts", "plugins")}
    return settings | (several if len(hosts) > 1 else {})


def command_of(run: RecordedRun, analysis: Analysis) -> str:
    """What a reader types to run it again; its config.yaml where no settings are known to make it."""
    settings = run.cell.settings or settings_of(run.record.config)
    if settings is None:
        return f"see {run.record.folder}/config.yaml" if run.record.config else ""
    return train_command(settings, run.record.config, analysis.store)


def train_command(settings: Sequence[str], config: Mapping[str, Any], store: Path) -> str:
    """What a reader types to run one cell alone; the plug-ins that its configuration comes from are named.

    Settings that begin with - would be options of the command, and are left out.

    >>> train_command(["method=mine", "topology=ring"], {"method": {"_target_": "mine.py:Mine"}}, Path("runs"))
    'commeff train --plugin mine.py method=mine topology=ring --store runs'
    """
    targets = [str(part["_target_"]) for part in config.values() if isinstance(part, Mapping) and "_target_" in part]
    plugins = dict.fromkeys(split(target)[0] for target in targets if ":" in target)
    files = [word for file in plugins for word in ("--plugin", file)]
    return shlex.join(
        ["commeff", "train", *files, *(word for word in settings if word[:1] != "-"), "--store", str(store)]
    )
