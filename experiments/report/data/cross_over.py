"""From which bandwidth on one method is slower than another, found by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np

LOWEST, HIGHEST = 1e6 / 8, 1e13 / 8  # bytes/s: 1 Mb/s to 10 Tb/s
POINTS = 29  # of the scan in which changes are looked for, four a decade
HALVINGS = 12  # of the span between two points of the scan: to 0.02 %
EQUAL = 1e-9  # a difference below this is rounding


@dataclass(frozen=True)
class CrossOver:
    """Where a method loses.

    Attributes
    ----------
    loses_first : whether it is slower at the lowest bandwidth.
    changes : bandwidths (bytes/s), ascending, at which it begins or ends to be slower.
    """

    loses_first: bool
    changes: tuple[float, ...]

    @property
    def words(self) -> str:
        """The ranges in words.

        >>> CrossOver(False, (1.25e9,)).words, CrossOver(True, (1.25e6,)).words, CrossOver(True, ()).words
        ('above 10 Gb/s', 'below 10 Mb/s', 'always')
        >>> CrossOver(True, (1.25e6, 1.25e9)).words, CrossOver(False, (1.25e6, 1.25e9)).words
        ('below 10 Mb/s, above 10 Gb/s', '10 Mb/s to 10 Gb/s')
        """
        if not self.changes:
            return "always" if self.loses_first else "never"
        edges = [0.0, *self.changes] if self.loses_first else list(self.changes)
        edges += [inf] if len(edges) % 2 else []
        spans = zip(edges[::2], edges[1::2], strict=True)
        return ", ".join(
            f"below {rate(b)}" if a == 0 else f"above {rate(a)}" if b == inf else f"{rate(a)} to {rate(b)}"
            for a, b in spans
        )


def cross_over(slowness: Callable[[float], float]) -> CrossOver:
    """Where `slowness(bandwidth)` is above 0: a scan for changes of sign, and a bisection of each.

    >>> cross_over(lambda bandwidth: 1.0 if bandwidth > 1e8 else -1.0).words
    'above 800 Mb/s'
    """

    def loses(bandwidth: float) -> bool:
        return slowness(bandwidth) > EQUAL

    scanned = [(float(b), loses(float(b))) for b in np.geomspace(LOWEST, HIGHEST, POINTS)]
    changes = []
    for (low, before), (high, after) in pairwise(scanned):
        if before == after:
            continue
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if loses(middle) == before else (low, middle)
        changes.append((low * high) ** 0.5)
    return CrossOver(scanned[0][1], tuple(changes))


def rate(bandwidth: float) -> str:
    """Bytes a second as bits a second, three digits.

    >>> rate(1.25e8), rate(3.1e6), rate(1.25e5)
    ('1 Gb/s', '24.8 Mb/s', '1 Mb/s')
    """
    bits = 8 * bandwidth
    unit, scale = next((u, s) for u, s in (("Tb/s", 1e12), ("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 0)) if bits >= s)
    return f"{bits / (scale or 1e3):.3g} {unit}"
