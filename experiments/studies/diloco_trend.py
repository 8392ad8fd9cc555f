"""`python -m commeff.experiments.studies.diloco_trend`: DiLoCo's loss above that of data parallelism, against the size
of the model, ours with two outer momenta beside published ones: results/converged/diloco_momentum/trend.pdf and .png.

Reads values.csv of `commeff reproduce diloco_momentum`. Published are the losses of Streaming DiLoCo, arXiv 2501.18512,
tables 5 and 6, and the power laws of arXiv 2503.09799, table 5, for H = 30.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from commeff.experiments.report.data.statistics import interval
from commeff.experiments.report.draw import lines as draw
from commeff.experiments.report.draw.figures import QUIET, Look, save
from commeff.experiments.report.draw.lines import Drawing, LinePanel, MeanLine

FOLDER = Path("results/converged/diloco_momentum")
MOMENTA = {"diloco": "outer momentum 0.9", "gentle": "outer momentum 0.5"}
SIZES = {"llama_40k": 43_080, "llama_130k": 127_424}
PLAIN = (18.129, 0.0953)  # a, alpha of the loss a N^-alpha of data parallelism
LAWS = {1: (18.363, 0.0961), 2: (18.768, 0.0969), 4: (19.762, 0.0992), 8: (21.051, 0.1018)}  # by replicas
FITTED = np.geomspace(35e6, 1e9, 2)  # of the 35 million to 2.4 billion parameters that the laws are fitted to
TWO = {  # losses of data parallelism and of DiLoCo
    **{35e6: (3.51, 3.54), 1e8: (3.19, 3.21), 2e8: (2.97, 2.98)},
    **{3e8: (2.80, 2.81), 5e8: (2.67, 2.68), 1e9: (2.49, 2.49)},
}


def law(n: np.ndarray, replicas: int) -> np.ndarray:
    """Per cent above data parallelism at N numbers."""
    (a, alpha), (b, beta) = PLAIN, LAWS[replicas]
    return 100 * (b * n**-beta / (a * n**-alpha) - 1)


def panel(losses: pd.Series, variant: str) -> LinePanel:
    """Means over seeds, paired with data parallelism; published losses of two replicas, and all laws."""
    plain, every = losses["psgd"].droplevel("workers"), []
    for colour, replicas in enumerate(LAWS):
        points = []
        for model, n in SIZES.items():
            gap = 100 * (losses[variant, model, replicas] / plain[model] - 1)
            points.append((n, *interval([*gap], False)))
        printed = [(n, 100 * (loss / base - 1)) for n, (base, loss) in TWO.items()] if replicas == 2 else []
        guides = {"": np.stack([FITTED, law(FITTED, replicas)], axis=1)}
        name = f"{replicas} replica{'s' if replicas > 1 else ''}"
        every.append(MeanLine(name, colour, 0, np.array(points), np.array(printed).reshape(-1, 2), guides))
    return LinePanel(MOMENTA[variant], every)


def drawing(values: pd.DataFrame) -> Drawing:
    """A panel for each outer momentum."""
    losses = values.set_index(["variant", "model", "workers", "seed"])["test_loss"].sort_index()
    axis = "loss above that of data parallelism (%)"
    return Drawing([panel(losses, variant) for variant in MOMENTA], "parameters", axis, log="x", guides={"": None})


def main() -> None:
    """Draw the figure."""
    drawn = drawing(pd.read_csv(FOLDER / "values.csv"))
    published = Look(QUIET, "", "s", hollow=True), Look(QUIET, "--", "")
    key = [*zip(("published losses of 2 replicas", "published laws"), published, strict=True)]
    save(draw.figure("trend", "DiLoCo and data parallelism by size", drawn, key, {"width": 8.5, "height": 3.2}), FOLDER)


if __name__ == "__main__":
    main()
