"""`python -m commeff.experiments.studies.periods [FOLDER]`: loss against the steps between two exchanges.

Of the final losses in `figures/convergence.csv` of the report of llm.yaml, with AdamW in fp32: local SGD, and DiLoCo
with outer momentum 0.5 from the first step and after a tenth of the steps by psgd; as published is momentum 0.9.
Differences are paired by seed.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from commeff.experiments.report.data.names import readable
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.draw.axes import few
from commeff.experiments.report.draw.figures import INK, QUIET, Figure, Panel, folded, look, save, write_csv
from commeff.experiments.report.draw.labels import Label, end_labels

FAMILIES = ("local SGD", "DiLoCo", "psgd then DiLoCo")
BASE, LEVEL = "psgd", 3.0  # per cent above it, where a line is drawn
NAMED = r"(?P<method>.*) H=(?P<period>\d+)(?P<published> as published)?"


def losses(curves: pd.DataFrame) -> pd.DataFrame:
    """A row a run: its method, period, whether as published, seed, final loss, per cent above psgd's of the same seed,
    and how many times as many bytes psgd sends."""
    last = curves.sort_values("step").groupby(["variant", "seed"], as_index=False).last()
    base = last[last["variant"] == BASE].set_index("seed")
    found = pd.concat([last, last["variant"].str.fullmatch(NAMED).rename("named")], axis=1)
    found = pd.concat([found, found["variant"].str.extract(f"^{NAMED}$")], axis=1)
    found = found[found["named"] & found["method"].isin(FAMILIES)]
    found = found.assign(
        period=found["period"].astype(int),
        published=found["published"].notna(),
        above=100 * (found["val_loss"] / found["seed"].map(base["val_loss"]) - 1),
        saving=found["seed"].map(base["wire_bytes"]) / found["wire_bytes"],
    )
    columns = ["method", "published", "period", "seed", "val_loss", "above", "saving"]
    return found[columns].sort_values(columns[:4]).reset_index(drop=True)


def draw(axes: Axes, found: pd.DataFrame) -> None:
    """Means and intervals of the differences, a line for each method; as published open and alone."""
    axes.set(xscale="log", xlabel="steps between two exchanges", ylabel="final loss above parallel SGD's, per cent")
    axes.axhline(0, color=INK, linewidth=0.9, zorder=1)
    axes.axhline(LEVEL, color=QUIET, linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
    right = found["period"].max()
    ends = [Label(right, 0.0, readable(BASE), INK, 0), Label(right, LEVEL, "3 %", QUIET, 0)]
    for (method, published), own in found.groupby(["method", "published"], sort=False):
        number = FAMILIES.index(str(method)) + 1
        style, aside = look(number), 1 + 0.04 * (number - 2)
        means = {period: estimate(each["above"]) for period, each in own.groupby("period")}
        points = [(period * aside, each) for period, each in means.items() if each is not None]
        fill = "none" if published else "full"
        x, y = [x for x, _ in points], [each.mean for _, each in points]
        axes.plot(x, y, color=style.colour, linestyle=style.dash, marker=style.marker, markersize=5, fillstyle=fill)
        for place, each in points:
            half = each.half or 0.0
            axes.plot([place, place], [each.mean - half, each.mean + half], color=style.colour, linewidth=1, alpha=0.5)
        words = f"{method} as published" if published else str(method)
        ends.append(Label(x[-1], y[-1], folded(readable(words), 1.5), style.colour, number))
    axes.set_xlim(found["period"].min() / 1.2, found["period"].max() * 1.2)
    few(axes, sorted(found["period"].unique()))
    end_labels(axes, ends)


def write(folder: Path) -> None:
    """periods.csv, and the figure as PDF and PNG, in the folder of the report."""
    found = losses(pd.read_csv(folder / "figures" / "convergence.csv"))
    write_csv(found, folder / "periods.csv")
    panel = Panel("all", partial(draw, found=found), 5.4, 3.2, (0.65, 1.75, 0.45, 0.15))
    save(Figure("periods", "", "", [panel], 1), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m commeff.experiments.studies.periods", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results/llm"), help="of llm.yaml's report")
    write(parser.parse_args().folder)
