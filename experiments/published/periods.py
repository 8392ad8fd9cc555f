"""`python -m commeff.experiments.published.periods [STORE]`: loss against the steps between two exchanges.

Of the runs of llm.yaml that `make llm` has made, with AdamW in fp32: local SGD, and DiLoCo with outer momentum 0.5 from
the first step and after a tenth of the steps by psgd. psgd is the line that all come from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from commeff.experiments.python import Runs
from commeff.experiments.report.data.statistics import estimate

FAMILIES = {"local SGD": "local_sgd", "DiLoCo": "diloco", "psgd, then DiLoCo": "diloco"}


def losses(runs: Runs) -> pd.DataFrame:
    """A row a run: method in words, period (1 for psgd), seed, val_loss, per cent above psgd's mean, bytes saved."""
    cells = runs.cells
    numbers = cells[["method.period", "method.outer.momentum", "method.begin"]].apply(pd.to_numeric, errors="coerce")
    psgd = cells[cells["method"] == "psgd"].assign(period=1.0)
    ours = (numbers["method.outer.momentum"] == 0.5) | (cells["method"] == "local_sgd")
    later, parts = numbers["method.begin"].notna(), []
    for words, name in FAMILIES.items():
        chosen = cells[(cells["method"] == name) & ours & (later == words.startswith("psgd"))]
        parts += [part.assign(method=words) for part in (psgd, chosen.assign(period=numbers["method.period"]))]
    found = pd.concat(parts)[["method", "period", "seed", "val_loss", "wire_bytes"]]
    found["above psgd %"] = 100 * (found["val_loss"] / psgd["val_loss"].mean() - 1)
    found["saving"] = psgd["wire_bytes"].mean() / found["wire_bytes"]
    return found.sort_values(["method", "period", "seed"]).reset_index(drop=True)


def interval(values: pd.Series) -> tuple[float, float]:
    """95 %, by Student's t."""
    found = estimate(values)
    assert found is not None
    assert found.half is not None
    return found.mean - found.half, found.mean + found.half


def write(store: Path, out: Path) -> None:
    """periods.csv, and the figure as PDF and PNG."""
    import seaborn

    seaborn.set_theme(context="paper", style="ticks", font_scale=0.9)
    from matplotlib.figure import Figure

    found = losses(Runs(store))
    out.mkdir(parents=True, exist_ok=True)
    found.to_csv(out / "periods.csv", index=False, lineterminator="\n", float_format="%.6g")
    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    axes = figure.subplots()
    shown = {"hue": "method", "style": "method", "markers": True, "errorbar": interval, "ax": axes}
    seaborn.lineplot(found, x="period", y="val_loss", **shown)
    axes.set(xscale="log", xlabel="H, steps between two exchanges", ylabel="validation loss, nats a byte")
    axes.set_xticks(sorted(found["period"].unique()), [f"{period:g}" for period in sorted(found["period"].unique())])
    axes.minorticks_off()
    level = 1.03 * found["val_loss"][found["period"] == 1].mean()
    axes.axhline(level, color="0.6", lw=0.8, ls=":", zorder=0)
    axes.text(1, level, "3 % above psgd", va="bottom", color="0.4", fontsize=7)
    axes.legend(title=None, frameon=False)
    seaborn.despine(figure)
    figure.savefig(out / "periods.pdf", metadata={"CreationDate": None})
    figure.savefig(out / "periods.png", dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m commeff.experiments.published.periods", description=__doc__)
    parser.add_argument("store", type=Path, nargs="?", default=Path("runs/llm"), help="of llm.yaml's runs")
    parser.add_argument("--out", type=Path, default=Path("results/llm"), help="the folder of the figure and its data")
    given = parser.parse_args()
    write(given.store, given.out)
