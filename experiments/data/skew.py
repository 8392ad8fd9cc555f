"""Label skew of a partition: class counts by worker, one number, one figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def class_counts(labels: NDArray, indices: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(n, classes): samples of each class that each worker holds; the classes are the labels that occur, sorted.

    >>> class_counts(np.array([5, 5, 7, 7]), [np.array([0, 1, 2]), np.array([3])])
    array([[2, 1],
           [0, 1]])
    """
    _, classes = np.unique(labels, return_inverse=True)
    return np.stack([np.bincount(classes[rows], minlength=classes.max() + 1) for rows in indices])


def heterogeneity(counts: NDArray[np.int64]) -> float:
    """The mean over workers of the total variation distance of their label distribution to that of all samples.

    0: all alike. With n workers of one class each, the classes equally large, it is 1 - 1/n.

    >>> heterogeneity(np.array([[5, 5], [1, 1]])), heterogeneity(np.array([[4, 0], [0, 4]]))
    (0.0, 0.5)
    """
    local = counts / counts.sum(1, keepdims=True)
    everyone = counts.sum(0) / counts.sum()
    return float(0.5 * np.abs(local - everyone).sum(1).mean())


def draw(counts: NDArray[np.int64], classes: list[str], title: str, path: Path) -> None:
    """A figure of the counts, workers down and classes across; the ending of `path` decides the format."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd
    import seaborn as sns

    n, width = counts.shape
    table = pd.DataFrame(counts, index=pd.RangeIndex(n, name="worker"), columns=pd.Index(classes, name="class"))
    figure, axes = plt.subplots(figsize=(2.5 + 0.5 * width, 1.8 + 0.28 * n))
    small = counts.size <= 400
    sns.heatmap(table, annot=small, fmt="d", cmap="Blues", linewidths=0.5, cbar_kws={"label": "samples"}, ax=axes)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(axis="y", rotation=0)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}); choose another file") from None
    finally:
        plt.close(figure)
