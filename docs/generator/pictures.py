"""Small pictures as SVG in the page: they need no file and no network, and take the page's colours."""

from __future__ import annotations

from math import cos, pi, sin

from commeff.topologies import MixingMatrix

RADIUS, EDGE = 70, 12


def graph(matrix: MixingMatrix) -> str:
    """Who receives from whom, workers on a circle, worker 0 on top; the arrow of a one-way edge points at the receiver.

    >>> from commeff.topologies import ring
    >>> graph(ring(5).at(0)).count("<line"), graph(ring(5).at(0)).count("<circle")
    (5, 5)
    """
    n = matrix.n
    places = [(RADIUS * sin(2 * pi * i / n), -RADIUS * cos(2 * pi * i / n)) for i in range(n)]
    received = {(i, j) for i in range(n) for j in matrix.received(i) if j != i}
    lines = []
    for i, j in sorted(received):
        both = (j, i) in received
        if not both or i < j:
            (x, y), (u, v) = places[j], places[i]
            arrow = "" if both else ' marker-end="url(#arrow)"'
            lines.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{u:.1f}" y2="{v:.1f}"{arrow}/>')
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places]
    half = RADIUS + EDGE
    return (
        f'<svg class="graph" viewBox="{-half} {-half} {2 * half} {2 * half}" role="img" aria-label="the graph">'
        '<defs><marker id="arrow" viewBox="0 0 6 6" refX="11" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0 6 3 0 6z" fill="currentColor"/></marker></defs>'
        f'<g stroke="currentColor">{"".join(lines)}</g><g fill="currentColor">{"".join(dots)}</g></svg>'
    )
