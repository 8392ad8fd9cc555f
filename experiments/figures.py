"""Figures from tidy result files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
import seaborn as sns


def accuracy_figure(measurements: pd.DataFrame, methods: Sequence[str], caption: str, path: Path) -> None:
    """Validation accuracy against steps and against bytes on the wire, as path.png and path.pdf.

    measurements : columns method, seed, step, val_accuracy, wire_bytes. Lines are means over seeds, bands their range.
    """
    rows = measurements.assign(wire_megabytes=measurements["wire_bytes"] / 1e6)
    labels = {"step": "step", "wire_megabytes": "MB on the wire per worker (counted)"}
    sns.set_theme(context="paper", style="ticks", palette="colorblind")
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True)
    for axes, (x, label) in zip(panels, labels.items(), strict=True):
        sns.lineplot(
            rows,
            x=x,
            y="val_accuracy",
            hue="method",
            style="method",
            hue_order=methods,
            style_order=methods,
            errorbar=("pi", 100),
            legend=axes is panels[-1],
            ax=axes,
        )
        axes.set(xlabel=label, ylabel="validation accuracy of the average model")
        axes.grid(alpha=0.3)
    late = rows["step"] >= rows["step"].max() / 10
    panels[0].set_ylim(max(0.0, rows.loc[late, "val_accuracy"].min() - 0.02), 1.0)
    panels[1].set_xscale("log")
    sns.move_legend(panels[1], "center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title=None)
    sns.despine(figure)
    figure.text(0.01, 0.01, textwrap.fill(caption, 165), fontsize=7, color="0.3")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path.with_suffix(".png"), dpi=150, metadata={"Software": None})
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    plt.close(figure)
