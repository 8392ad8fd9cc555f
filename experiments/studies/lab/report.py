"""`commeff lab report`: how much sooner than the baseline each method comes to the target, measured beside modelled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import isnan, nan
from operator import add
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.escape import markdown_code, markdown_text
from commeff.experiments.report.data.statistics import higher_is_better
from commeff.experiments.report.draw.figures import COLOURS, INK, QUIET, RULE, Figure, Look, Panel, write
from commeff.experiments.report.write.page import write_text
from commeff.experiments.report.write.table import Column, Item, Table, markdown
from commeff.experiments.run.system import git_commit
from commeff.experiments.studies.lab.outcome import NetworkRuns, read_networks, shape_of

PAYS = 1.05  # a method pays where it is so many times as fast as the baseline, measured
MARGINS = (1.45, 0.15, 0.42, 0.27)


def report(root: Path, out: Path, command: str, grid: str | None = None) -> list[Path]:
    """Write the table as CSV and Markdown, and the figure, into `out`; the CSV is the figure's data."""
    visits = read_networks(root, grid)
    if not any(visit.races for visit in visits):
        raise ValueError(
            f"a run in {root} must have reached the target, got none; run `commeff lab run`, with more steps perhaps"
        )
    table = speed_ups(visits)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "report.md", page(visits, table, command))
    write(figure(visits, table.assign(**{"written by": command})), out)
    return [out / file for file in ("report.md", "speed_ups.csv", "speed_ups.png", "speed_ups.pdf")]


def speed_ups(visits: Sequence[NetworkRuns]) -> pd.DataFrame:
    """One row for each method and network: means over seeds, and the speed-up over the baseline.

    The speed-up is the ratio of mean seconds, where all seeds of both came to the target. Impossible seconds
    (`Race.possible`) have no speed-up and no error.
    """
    planned = {visit.cluster.name: {cell.seed for cell in visit.grid.cells} for visit in visits}
    every, rows = pd.DataFrame([vars(race) | {"possible": race.possible} for v in visits for race in v.races]), []
    base = baseline(visits[0])
    for network, races in every.groupby("network", sort=False):
        reference = races[races["method"] == base].set_index("seed")
        for method, runs in races.groupby("method", sort=False):
            runs = runs.set_index("seed")
            good = bool(runs["possible"].all())
            complete = planned[network] == {*runs.index} == {*reference.index}
            comparable = complete and good and reference["possible"].all()
            ratios = reference["measured"] / runs["measured"]
            rows.append(
                {
                    "network": network,
                    "method": method,
                    "seeds": len(runs),
                    "steps": runs["steps"].mean(),
                    "measured_seconds": runs["measured"].mean(),
                    "waited_seconds": runs["exposed"].mean(),
                    "least_seconds": runs["floor"].mean(),
                    "possible": good,
                    "modelled_seconds": runs["modelled"].mean(),
                    "error": runs["modelled"].mean() / runs["measured"].mean() - 1 if good else nan,
                    "measured_speed_up": reference["measured"].sum() / runs["measured"].sum() if comparable else nan,
                    "least_speed_up": ratios.min() if comparable else nan,
                    "most_speed_up": ratios.max() if comparable else nan,
                    "modelled_speed_up": reference["modelled"].sum() / runs["modelled"].sum() if complete else nan,
                    "hardware": unique_words(runs["hardware"]),
                    "commit": unique_words(runs["commit"]),
                }
            )
    return pd.DataFrame(rows)


def unique_words(values: Iterable[str]) -> str:
    """The values, each once.

    >>> unique_words(["b+", "a", "b+"])
    'a, b+'
    """
    return ", ".join(sorted(set(values)))


def baseline(visit: NetworkRuns) -> str:
    """The name of the variant that the others are compared with."""
    rule = visit.grid.baseline
    for cell in visit.grid.cells:
        settings = dict(setting.split("=", 1) for setting in cell.settings or ())
        if rule and all(settings.get(key) == value for key, value in rule.items()):
            return cell.name or " ".join(cell.labels.values())
    raise ValueError(f"baseline of the grid {visit.grid.name} must be given; write baseline: {{method: psgd}} into it")


def page(visits: Sequence[NetworkRuns], table: pd.DataFrame, command: str) -> list[str]:
    """The report in Markdown."""
    grid, base, nodes = visits[0].grid, baseline(visits[0]), visits[0].cluster.gpus
    races = [race for visit in visits for race in visit.races]
    hardware = markdown_text(unique_words(race.hardware for race in races))
    commits = markdown_text(unique_words(race.commit for race in races))
    ((metric, level),) = ((markdown_text(name), level) for name, level in grid.target.items())
    shown = markdown_text(base)
    lines = [
        f"# {markdown_text(grid.title)}",
        "",
        *map(markdown_text, overstated(table, base)),
        f"Seconds until {metric} {level:g}, and how many times as fast as {shown} that is. Measured: {nodes} "
        "processes, each in a network namespace of its own, behind links that `tc tbf` holds to the stated rate; no "
        "simulation. Modelled: the same steps, the computing that was measured (what rank 0 did while it waited for "
        "nobody), and the communication that the run's profile costs on the links of the network, each with its own "
        "rate.",
        "",
        f"All processes share one machine ({hardware}), so computing takes longer than on as many: speed-ups on faster "
        "networks are smaller than theirs would be. Links have no delay beyond that of the processes' scheduling. "
        "Learning rates were chosen for each method in simulation, on other seeds.",
        "",
    ]
    for visit in visits:
        rows = table[table["network"] == visit.cluster.name]
        link = visit.cluster.inter
        lines += [
            f"## {visit.title}",
            "",
            f"The model's slowest link: {link.bandwidth / 1e6:.2f} MB/s of payload, {1e3 * link.latency:.2f} ms a "
            f"round, {link.burst / 1024:.0f} KiB at once.",
            "",
            *markdown(seconds_table(rows)),
            "",
            *map(markdown_text, impossible_notes(rows)),
            markdown_text(conclusion(rows, base)),
            "",
        ]
        missed = markdown_text(", ".join(visit.missed))
        lines += [f"Not done, or never at the target: {missed}.", ""] if missed else []
    return [
        *lines,
        f"Run at {commits}. Written by {markdown_code(command)} at commit {git_commit()}.",
    ]


def overstated(table: pd.DataFrame, base: str) -> list[str]:
    """Where the model promises more than was measured: of each network the largest ratio of the two speed-ups."""
    others = table[(table["method"] != base) & table["measured_speed_up"].notna()]
    more = others.assign(ratio=others["modelled_speed_up"] / others["measured_speed_up"])
    worst = more.sort_values("ratio").groupby("network", sort=False).tail(1).sort_values("ratio", ascending=False)
    worst = worst[worst["ratio"] > PAYS]
    if worst.empty:
        return []
    named = "; ".join(
        f"{shape_of(row.network).title}: {row.modelled_speed_up:.2f} times as fast for {row.measured_speed_up:.2f} "
        f"({row.method})"
        for row in worst.itertuples()
    )
    return [f"The model overstates speed-ups. The worst case of each network: {named}.", ""]


def seconds_table(table: pd.DataFrame) -> Table:
    """The rows of one network, the fastest first."""
    rows = table.sort_values("measured_seconds").assign(percent=100 * table["error"])

    def texts(name: str, form: str = "{:.2f}") -> list[str]:
        return ["" if isnan(value) else form.format(value) for value in rows[name]]

    marks = ["" if possible else " (!)" for possible in rows["possible"]]
    columns = {
        "method": [*rows["method"]],
        "seeds": texts("seeds", "{}"),
        "steps": texts("steps", "{:.0f}"),
        "seconds, measured": [*map(add, texts("measured_seconds"), marks)],
        "of these waited": texts("waited_seconds"),
        "seconds, modelled": texts("modelled_seconds"),
        "error": texts("percent", "{:+.0f} %"),
        "speed-up, measured": texts("measured_speed_up"),
        "speed-up, modelled": texts("modelled_speed_up"),
    }
    return Table(
        "speed_ups", "", [Column(head, "", [*map(Item, cells)], head == "method") for head, cells in columns.items()]
    )


def impossible_notes(table: pd.DataFrame) -> list[str]:
    """A note on measured seconds in which the links cannot have carried what was sent."""
    wrong = table[~table["possible"]].sort_values("method")
    if wrong.empty:
        return []
    needs = ", ".join(f"{row.method} {row.least_seconds:.2f} s" for row in wrong.itertuples())
    return [
        f"(!) is less than the links alone need for what was sent: {needs}. The clock of these runs "
        "stopped while they waited for others, so they are not measurements, and no speed-up is given.",
        "",
    ]


def conclusion(table: pd.DataFrame, base: str) -> str:
    """Which methods pay on this network, and which do not."""
    others = table[(table["method"] != base) & table["measured_speed_up"].notna()]
    if others.empty:
        return f"No speed-ups here: {base} and another method were not measured to the target with every seed."
    poor = others[others["measured_speed_up"] < PAYS].sort_values("measured_speed_up")
    if len(poor):
        named = ", ".join(f"{row.method} ({row.measured_speed_up:.2f} times)" for row in poor.itertuples())
        return f"Does not pay here (less than {PAYS:g} times as fast): {named}."
    return "Every method pays here." if table["possible"].all() else "Every other method pays here."


def figure(visits: Sequence[NetworkRuns], table: pd.DataFrame) -> Figure:
    """One panel for each network, the speed-ups of all methods in it."""
    base = baseline(visits[0])
    methods = [method for method in dict.fromkeys(table["method"]) if method != base]
    ((metric, level),) = visits[0].grid.target.items()
    goal = f"{100 * level:g} %" if higher_is_better(metric) else f"{level:g}"
    others = table[table["method"] != base]
    ends = ["measured_speed_up", "modelled_speed_up", "least_speed_up", "most_speed_up"]
    ratios = others[ends].assign(base=1.0).fillna(1.0)
    limits = float(ratios.min(axis=None)) / 1.1, float(ratios.max(axis=None)) * 1.1
    panels = [
        Panel(
            visit.cluster.name,
            partial(
                draw,
                rows=others[others["network"] == visit.cluster.name],
                methods=methods,
                limits=limits,
                title=visit.title,
                label=f"times as fast as {base}, to {goal}",
            ),
            4.2,
            2.5,
            MARGINS,
        )
        for visit in visits
    ]
    caption = (
        f"How many times as fast as {base} to {metric} {level:g}: dots measured, over a bar from the least to the most "
        "of the seeds, rings modelled. Where there is a ring alone, nothing was measured."
    )
    legend = [("measured", Look(COLOURS[0], "", "o")), ("modelled", Look(INK, "", "o", hollow=True))]
    return Figure("speed_ups", "Speed-up over the baseline", caption, panels, 2, table, legend)


def draw(
    axes: Axes, rows: pd.DataFrame, methods: Sequence[str], limits: tuple[float, float], title: str, label: str
) -> None:
    """Methods below each other, measured filled and modelled as a ring, on one logarithmic scale for all panels."""
    axes.axvline(1.0, color=QUIET, linewidth=0.8)
    for place, method in enumerate(methods):
        for row in rows[rows["method"] == method].itertuples():
            both = [row.measured_speed_up, row.modelled_speed_up]
            axes.plot(both, [place, place], color=RULE, linewidth=1.2, zorder=1)
            axes.plot([row.least_speed_up, row.most_speed_up], [place, place], color=COLOURS[0], linewidth=2.5)
            axes.plot(row.measured_speed_up, place, "o", color=COLOURS[0], markersize=6)
            axes.plot(row.modelled_speed_up, place, "o", color=INK, markersize=9, fillstyle="none", markeredgewidth=0.9)
    axes.set_xscale("log", base=2)
    axes.set(xlim=limits, ylim=(len(methods) - 0.5, -0.5), xlabel=label)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_yticks(range(len(methods)), methods)
    axes.set_title(title, color=INK)
