"""Where labels stand: beside points, and at the ends of lines; no two upon each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from numpy.typing import NDArray

from commeff.experiments.report.draw.figures import LOWER, QUIET, SMALL, letters

OUTWARD = np.array([-1, -1, 1, 1])  # by which all sides of a box grow
Box = tuple[float, float, float, float]  # left, bottom, right, top
Boxes = NDArray[np.float64]  # shape (..., 4)
RINGS = (7.0, 13.0, 20.0, 28.0, 38.0, 50.0, 64.0, 80.0, 98.0, 118.0, 140.0)  # points from the marker to the label
ANGLES = (0.0, 45.0, -45.0, 180.0, 135.0, -135.0, 90.0, -90.0)
HANGING = 3.0  # square points of overlap that one outside the frame is worth
CROSSED = 4.0  # and one upon a line
FAR = 4.0  # square points of overlap that are worth a point of distance
LEGIBLE = 1e4  # square points that a label upon a label is worth, twice one upon a marker
LEADER = 13.0  # from here on a line leads from the label to its point
ASIDE = 0.12  # inches between the axes and the labels of ends


@dataclass(frozen=True)
class Label:
    """A text for a point in data coordinates, and the number of its variant."""

    x: float
    y: float
    text: str
    colour: str
    number: int


def write_labels(
    axes: Axes, labels: Sequence[Label], lines: Sequence[Box] = (), markers: Sequence[tuple[float, float]] = ()
) -> None:
    """Write the labels on axes whose limits are final, `lines` and `markers` kept clear; all in data coordinates.

    Everything is weighed in points, from the lower left corner of the canvas.
    """
    axes.autoscale_view()  # limits that wait to be made are made now
    point = axes.figure.dpi / 72
    centres = axes.transData.transform([(label.x, label.y) for label in labels]) / point
    inside = np.array(axes.get_window_extent().extents) / point + np.array([2, 0, 4, 10])
    ends = axes.transData.transform(np.reshape(np.array(lines, dtype=float), (-1, 2))).reshape(-1, 4) / point
    marked = axes.transData.transform(np.reshape(np.array(markers, dtype=float), (-1, 2))) / point
    solid = np.tile(np.concatenate([centres, marked]), 2) + 4 * OUTWARD
    renderer = FigureCanvasAgg(cast(Canvas, axes.figure)).get_renderer()  # one for all labels: making it takes longest
    turns = np.tile(np.radians(ANGLES), len(RINGS))
    ways = np.stack([np.cos(turns), np.sin(turns)], axis=1).round(9)  # in which a label lies, and grows, from its point
    distances = np.repeat(RINGS, len(ANGLES))
    extents = [text.get_window_extent(renderer).extents for text in axes.texts]
    written = np.reshape(extents, (-1, 4)) / point + OUTWARD
    for label, centre in zip(labels, centres, strict=True):
        text = axes.annotate(label.text, (label.x, label.y), fontsize=letters(SMALL))
        extent = text.get_window_extent(renderer)
        text.remove()
        half = np.array([extent.width, extent.height]) / point / 2
        middles = centre + ways * distances[:, None] + np.sign(ways) * half
        boxes = np.concatenate([middles - half, middles + half], axis=1)
        outside = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) - _common(boxes, inside)
        costs = CROSSED * _common(boxes[:, None], ends + OUTWARD).sum(axis=1) + HANGING * outside
        upon = [(_common(boxes[:, None], these).sum(axis=1) > 0) for these in (written, solid)]
        costs += LEGIBLE * (upon[0] + 0.5 * upon[1]) + FAR * distances
        best = int(costs.argmin())
        written = np.append(written, [boxes[best] + OUTWARD], axis=0)
        side = tuple(0.5 - 0.5 * ways[best].round())  # of the label that looks at the point
        leader = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "relpos": side}
        axes.annotate(
            label.text,
            (label.x, label.y),
            boxes[best, :2] - centre,
            textcoords="offset points",
            fontsize=letters(SMALL),
            color=label.colour,
            gid=f"variant-{label.number}",
            arrowprops=leader if distances[best] >= LEADER else None,
        )


def _common(one: Boxes, other: Boxes) -> Boxes:
    """The areas that boxes share, the last axis being their left, bottom, right and top.

    >>> _common(np.array([[0, 0, 2, 2], [0, 0, 1, 1]]), np.array([[1, 1, 3, 3], [1, 0, 2, 1]])).tolist()
    [1, 0]
    """
    sides = np.minimum(one[..., 2:], other[..., 2:]) - np.maximum(one[..., :2], other[..., :2])
    return np.maximum(sides, 0).prod(axis=-1)


def end_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Labels to the right of axes whose limits are final, each as near to the end of its line as there is room."""
    if not labels:
        return
    point, frame = axes.figure.dpi / 72, axes.bbox
    ends = axes.transData.transform([(label.x, label.y) for label in labels])
    lines = np.array([label.text.count("\n") + 1 for label in labels])
    heights = (letters(LOWER) * lines + 0.02) * axes.figure.dpi  # with some space
    order = np.argsort(ends[:, 1], kind="stable")
    places = spread(ends[order, 1], heights[order], (frame.y0, frame.y1))
    for i, place in zip(order, places, strict=True):
        label, aside = labels[i], frame.x1 + ASIDE * axes.figure.dpi
        offset = (np.array([aside, place]) - ends[i]) / point
        moved = abs(offset[1]) > 2 or ends[i, 0] < frame.x1 - 0.1 * frame.width
        leader = {"arrowstyle": "-", "color": QUIET, "linestyle": ":", "linewidth": 0.7, "relpos": (0, 0.5)}
        axes.annotate(
            label.text,
            (label.x, label.y),
            offset,
            textcoords="offset points",
            fontsize=letters(SMALL),
            va="center",
            color=label.colour,
            gid=f"variant-{label.number}",
            annotation_clip=False,
            arrowprops=leader | {"shrinkA": 1, "shrinkB": 1} if moved else None,
        )


def spread(
    ideal: NDArray[np.float64], heights: NDArray[np.float64], inside: tuple[float, float]
) -> NDArray[np.float64]:
    """The centres of labels of some heights, from below: moved from `ideal` as little as must be.

    >>> spread(np.array([0.0, 1.0, 9.0]), np.array([2.0, 2.0, 2.0]), (0.0, 10.0)).tolist()
    [1.0, 3.0, 9.0]
    """
    before = np.cumsum(heights) - heights / 2
    blocks: list[list[float]] = []  # labels that touch move as one: their mean, and how many they are
    for place in ideal - before:
        blocks.append([float(place), 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (one, few), (other, more) = blocks[-2:]
            blocks[-2:] = [[(one * few + other * more) / (few + more), few + more]]
    moved = np.concatenate([np.full(int(count), place) for place, count in blocks])
    return np.clip(moved, inside[0], max(inside[0], inside[1] - heights.sum())) + before
