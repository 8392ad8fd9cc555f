"""Labels beside points: each where it covers least of the others, of points and of lines, and near its own point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # left, bottom, right, top
RINGS = (7.0, 13.0, 20.0, 28.0, 38.0, 50.0)  # points from the marker to the label
ANGLES = (0.0, 45.0, -45.0, 180.0, 135.0, -135.0, 90.0, -90.0)
FAR = 4.0  # square points of overlap that are worth a point of distance
LEADER = 13.0  # from here on a line leads from the label to its point


@dataclass(frozen=True)
class Label:
    """A text for a point in data coordinates, and the number of its variant."""

    x: float
    y: float
    text: str
    colour: str
    number: int


def place(axes: Axes, labels: Sequence[Label], lines: Sequence[Box] = (), size: float = 8.0) -> None:
    """Write the labels on axes whose limits are final; `lines`, also in data coordinates, are to be kept clear too.

    Everything is weighed in points, from the lower left corner of the canvas.
    """
    axes.autoscale_view()  # limits that wait to be made are made now
    point = axes.figure.dpi / 72
    centres = [tuple(axes.transData.transform((label.x, label.y)) / point) for label in labels]
    frame = axes.get_window_extent()
    inside = (frame.x0 / point + 2, frame.y0 / point, frame.x1 / point + 4, frame.y1 / point + 10)
    obstacles: list[Box] = [(x - 4, y - 4, x + 4, y + 4) for x, y in centres]
    for line in lines:
        (left, bottom), (right, top) = axes.transData.transform([line[:2], line[2:]]) / point
        obstacles.append((left - 1, bottom - 1, right + 1, top + 1))
    for label, centre in zip(labels, centres, strict=True):
        text = axes.annotate(label.text, (label.x, label.y), fontsize=size)
        extent = text.get_window_extent()
        text.remove()
        boxes = {
            (ring, angle): _box(centre, ring, angle, (extent.width / point, extent.height / point))
            for ring in RINGS
            for angle in ANGLES
        }
        ring, angle = min(boxes, key=lambda spot: _cost(boxes[spot], obstacles, inside) + FAR * spot[0])
        box = boxes[ring, angle]
        obstacles.append(box)
        leader = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.5, "relpos": _end(angle)}
        axes.annotate(
            label.text,
            (label.x, label.y),
            (box[0] - centre[0], box[1] - centre[1]),
            textcoords="offset points",
            fontsize=size,
            color=label.colour,
            gid=f"variant-{label.number}",
            arrowprops=leader if ring >= LEADER else None,
        )


def _box(centre: tuple[float, float], ring: float, angle: float, size: tuple[float, float]) -> Box:
    """Where a label lies at a distance and angle from its point: it grows away from the point.

    >>> _box((0, 0), 10, 0, (40, 8)), _box((0, 0), 10, 180, (40, 8))
    ((10.0, -4.0, 50.0, 4.0), (-50.0, -4.0, -10.0, 4.0))
    """
    ways = (round(math.cos(math.radians(angle)), 9), round(math.sin(math.radians(angle)), 9))
    middle = [
        at + way * ring + (math.copysign(length / 2, way) if way else 0.0)
        for at, way, length in zip(centre, ways, size, strict=True)
    ]
    (x, y), (width, height) = middle, size
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _cost(box: Box, boxes: Sequence[Box], inside: Box) -> float:
    """How much a box covers of others and, three times as bad, hangs out of the frame."""
    covered = sum(_common(box, other) for other in boxes)
    area = (box[2] - box[0]) * (box[3] - box[1])
    return covered + 3 * (area - _common(box, inside))


def _common(one: Box, other: Box) -> float:
    """The area that two boxes share.

    >>> _common((0, 0, 2, 2), (1, 1, 3, 3)), _common((0, 0, 1, 1), (1, 0, 2, 1))
    (1, 0)
    """
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, width) * max(0, height)


def _end(angle: float) -> tuple[float, float]:
    """Where on the label a leader line ends: on the side that looks at the point."""
    return (0.5 - 0.5 * round(math.cos(math.radians(angle))), 0.5 - 0.5 * round(math.sin(math.radians(angle))))
