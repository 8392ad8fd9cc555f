"""Published figures of networks beside ours, as CSV and Markdown.

`python -m commeff.experiments.studies.networks.report [--out FOLDER]`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from commeff.experiments.report.draw.figures import COLOURS, QUIET, Figure, Look, Panel
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.experiments.run.system import git_commit
from commeff.experiments.studies.networks import bluefog, contention

COMMAND = "python -m commeff.experiments.studies.networks.report"
Rows = Sequence[Mapping[str, Any]]
THEIRS = dict(zip(bluefog.FRAMEWORKS, zip(COLOURS, "osD", strict=False), strict=True))
DRAWN = {"all-reduce": bluefog.FRAMEWORKS[0], "gossip": bluefog.FRAMEWORKS[1]}  # lines of the model, and whose they are
DASHES = {"held out": "-", "gossip_time": (0, (4, 2))}
CAPTION = (
    "Open markers: published. Solid: fitted to the other batch. Dashed: the bandwidth of gossip_time. Dotted: linear."
)

THROUGHPUT = """# BlueFog's throughput beside the model's

![Efficiency against GPUs](bluefog.png)

{caption}

Mean errors on the {spread} throughputs of several machines. One constant is fitted, the bandwidth between two machines.
Fitted to the rows of the other batch it is {rates}. Cluster v100_25g
has {own:.2f} GB/s, from the printed 150 ms with which gossip_time begins; results/scale uses the same.

{errors}

The model does better than both null models over all rows, and worse than linear for BlueFog's plain optimizer, whose
communication hardly shows.

Which method is faster depends on what hides communication. Each assumption has the bandwidth that suits it best on all
rows, so these errors are in-sample. {line:.2f} GB/s is the whole network, the most that a fit may take.

{assumptions}

BlueFog's optimizers send parameters at the end of forward and wait for them after backward. Gossip that begins after
the update has no computing to hide behind, while buckets of gradients have: then the all-reduce wins.

- Computing is given: {alone}, from 4 GPUs of one machine.
- BlueFog's ideal line, the box in its chart, is about 350 images/s a GPU with batch 64. 42,900 images/s are over 95 %
  of it.
- Most rows are read off bar charts by eye, within about 2 %.
- The model sends one message of the model's size from each machine in a step, for both of BlueFog's optimizers. It does
  not explain why the hierarchical one is slower.
- 16 GPUs are printed with 4,310.6 images/s on 4 machines, and read as 5,350 on 2 machines. The model does not explain
  it.
- 1.0 GB/s here and 0.68 GB/s in gossip_time are both on 25 Gb/s. What holds either below the line is not known.

{bluefog}

Made by `{command}` at commit {commit}; modelled, no hardware involved.
"""
CONTENTION = """# Contention: SimGrid 3.32 and the bytes on the busiest link

All {count} figures agree within {worst:.2f} %; SimGrid's are printed with three or four digits.

{simgrid}

{assumed}

Made by `{command}` at commit {commit}; modelled, no hardware involved.
"""


def throughput_rows(bandwidths: Mapping[int, float]) -> list[dict[str, Any]]:
    """BlueFog's rows, ours and both null models; rows on 4 GPUs of one machine are what computing is taken from."""
    rows = []
    for row in bluefog.ROWS:
        modelled = {
            "held out": bluefog.modelled(row, bandwidths[row.batch]),
            "gossip_time's": bluefog.modelled(row, bluefog.CLUSTER.inter.rate),
            "linear": 100.0 if row.unit == "%" else bluefog.linear(row),
        }
        rows.append(
            {
                "framework": row.framework,
                "batch": row.batch,
                "GPUs": row.gpus,
                "machines": row.machines,
                "unit": row.unit,
                "theirs": row.value,
                "source": row.source,
                **{name: round(value, 1) for name, value in modelled.items()},
                **{f"{name} (%)": round(100 * (value / row.value - 1), 1) for name, value in modelled.items()},
                "status": "predicted" if row.machines > 1 else "given" if row.gpus == 4 else "one machine",
            }
        )
    return rows


def throughput_page(bandwidths: Mapping[int, float]) -> Page:
    """The errors held out and of null models, what decides them, the figure, and every row."""
    rows = throughput_rows(bandwidths)
    words = {
        "command": COMMAND,
        "caption": CAPTION,
        "spread": len(bluefog.SPREAD),
        "rates": ", ".join(f"{rate / 1e9:.2f} GB/s for batch {batch}" for batch, rate in sorted(bandwidths.items())),
        "own": bluefog.CLUSTER.inter.rate / 1e9,
        "line": bluefog.CLUSTER.inter.bandwidth / 1e9,
        "alone": " and ".join(f"{rate:g} images/s a GPU with batch {batch}" for batch, rate in bluefog.ALONE.items()),
    }
    quoted = {"errors": bluefog.errors(bandwidths), "assumptions": bluefog.assumptions()}
    tables = [Table.of(records, name=name, data=pd.DataFrame()) for name, records in quoted.items()]
    return Page("bluefog", THROUGHPUT, [*tables, with_origin(rows, "bluefog")], [figure(rows, bandwidths)], words)


def with_origin(rows: Rows, name: str) -> Table:
    """A table whose file says what made it."""
    origin = {"made by": COMMAND, "commit": git_commit()}
    return Table.of(rows, name=name, data=pd.DataFrame([{**row, **origin} for row in rows]))


def efficiency(batch: int, bandwidths: Mapping[int, float]) -> Panel:
    """Published and modelled efficiency of one batch against GPUs."""

    def draw(axes: Axes) -> None:
        published = [row for row in bluefog.ROWS if row.batch == batch and row.unit != "%" and row.source == "eye"]
        axes.axhline(100, color=QUIET, linestyle=":", linewidth=1.2)
        for framework, (colour, marker) in THEIRS.items():
            curve = [row for row in published if row.framework == framework]
            y = [100 * row.value / bluefog.linear(row) for row in curve]
            axes.plot([row.gpus for row in curve], y, marker, color=colour, markerfacecolor="white", zorder=3)
        for name, framework in DRAWN.items():
            curve = [row for row in published if row.framework == framework]
            for label, rate in (("held out", bandwidths[batch]), ("gossip_time", bluefog.CLUSTER.inter.rate)):
                y = [100 * bluefog.modelled(row, rate) / bluefog.linear(row) for row in curve]
                axes.plot([row.gpus for row in curve], y, color=THEIRS[framework][0], linestyle=DASHES[label])
                if label == "held out":
                    axes.annotate(
                        name,
                        (curve[-1].gpus, y[-1]),
                        (4, -5),
                        textcoords="offset points",
                        va="center",
                        color=THEIRS[framework][0],
                    )
        axes.set_xscale("log", base=2)
        axes.set(
            xlim=(3.4, 420), ylim=(0, 112), xlabel="GPUs, 8 a machine", ylabel="% of linear" if batch == 64 else ""
        )
        axes.xaxis.set_major_locator(FixedLocator([4, 8, 16, 32, 64, 128]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_title(f"{batch} images a GPU")

    return Panel(f"batch-{batch}", draw, 3.6, 2.8)


def figure(rows: Rows, bandwidths: Mapping[int, float]) -> Figure:
    """Efficiency against GPUs, a panel for each batch."""
    legend = [(name, Look(colour, "", marker)) for name, (colour, marker) in THEIRS.items()]
    panels = [efficiency(batch, bandwidths) for batch in (64, 32)]
    return Figure("bluefog", "Efficiency against GPUs", CAPTION, panels, 2, pd.DataFrame(rows), legend)


def contention_rows() -> list[dict[str, Any]]:
    """SimGrid's figures and ours."""
    return [
        {
            "hosts": figure.hosts,
            "case": figure.case,
            "network": figure.network,
            "SimGrid (ms)": figure.simulated,
            "ours (ms)": round(figure.ours, 2),
            "error (%)": round(100 * (figure.ours / figure.simulated - 1), 2),
        }
        for figure in contention.FIGURES
    ]


def contention_page() -> Page:
    """SimGrid's table with what is assumed about the tree."""
    rows = contention_rows()
    words = {
        "command": COMMAND,
        "count": len(rows),
        "worst": max(abs(row["error (%)"]) for row in rows),
        "assumed": "\n".join(str(contention.__doc__).strip().splitlines()[2:]),
    }
    return Page("simgrid", CONTENTION, [with_origin(rows, "simgrid")], words=words)


def write_pages(out: Path) -> list[Path]:
    """Both tables as CSV and Markdown, and the figure; every file says which command and commit made it."""
    return [path for page in (throughput_page(bluefog.held_out()), contention_page()) for path in page.write(out)]


def main() -> None:
    """Write both pages from the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/cluster"), help="the folder to write into")
    for path in write_pages(parser.parse_args().out):
        print(path)


if __name__ == "__main__":
    main()
