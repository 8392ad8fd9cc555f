"""From which bandwidth on one method is slower than another, found by bisection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import inf

import numpy as np

LOWEST, HIGHEST = 1e6 / 8, 1e13 / 8  # bytes/s: 1 Mb/s to 10 Tb/s
POINTS = 29  # of the scan in which changes are looked for, four a decade
HALVINGS = 12  # of the span between two points of the scan: to 0.02 %
EQUAL = 1e-9  # a difference below this is rounding


def in_words(edges: Sequence[float]) -> str:
    """Where a method loses, by the bandwidths at which it begins and ends to, in turn.

    >>> in_words([]), in_words([0.0, inf]), in_words([1.25e9, inf]), in_words([0.0, 1.25e6])
    ('never', 'always', 'above 10 Gb/s', 'below 10 Mb/s')
    >>> in_words([0.0, 1.25e6, 1.25e9, inf]), in_words([1.25e6, 1.25e9])
    ('below 10 Mb/s, above 10 Gb/s', '10 Mb/s to 10 Gb/s')
    """
    if list(edges) in ([], [0.0, inf]):
        return "always" if edges else "never"
    return ", ".join(
        f"below {rate(b)}" if a == 0 else f"above {rate(a)}" if b == inf else f"{rate(a)} to {rate(b)}"
        for a, b in zip(edges[::2], edges[1::2], strict=True)
    )


def cross_over(slowness: Callable[[float], float]) -> list[float]:
    """Bandwidths (bytes/s) where `slowness` begins and ends to be above 0: a scan for changes of sign, and a bisection
    of each. From 0 on where it is at the lowest, up to infinity where it is at the highest.

    >>> in_words(cross_over(lambda bandwidth: 1.0 if bandwidth > 1e8 else -1.0))
    'above 800 Mb/s'
    """

    def loses(bandwidth: float) -> bool:
        return slowness(bandwidth) > EQUAL

    scanned = [(float(b), loses(float(b))) for b in np.geomspace(LOWEST, HIGHEST, POINTS)]
    edges = [0.0] if scanned[0][1] else []
    for (low, before), (high, after) in pairwise(scanned):
        if before == after:
            continue
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            low, high = (middle, high) if loses(middle) == before else (low, middle)
        edges.append((low * high) ** 0.5)
    return [*edges, inf] if len(edges) % 2 else edges


def rate(bandwidth: float) -> str:
    """Bytes a second as bits a second, three digits.

    >>> rate(1.25e8), rate(3.1e6), rate(1.25e5)
    ('1 Gb/s', '24.8 Mb/s', '1 Mb/s')
    """
    bits = 8 * bandwidth
    unit, scale = next((u, s) for u, s in (("Tb/s", 1e12), ("Gb/s", 1e9), ("Mb/s", 1e6), ("kb/s", 0)) if bits >= s)
    return f"{bits / (scale or 1e3):.3g} {unit}"
