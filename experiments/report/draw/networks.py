"""The topologies of a grid: how many messages, how fast they agree, who talks to whom."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.grids import short
from commeff.experiments.report.draw.figures import INK, RULE, folded, letters, room
from commeff.experiments.run.origins import inside
from commeff.topologies import Topology

WINDOW = 32  # steps over which a topology that never repeats is judged
LARGEST = 512  # workers up to which products of dense matrices are formed
MOST = 2048  # workers of a topology that is built, as its settings have it, so that no matrix fills the memory
FACTORS = (("rows", "cols"), ("inner", "outer"))  # settings whose numbers of workers multiply


@dataclass(frozen=True)
class UsedTopology:
    """A topology of the grid and who uses it."""

    name: str
    topology: Topology
    users: tuple[str, ...]

    @property
    def steps(self) -> int:
        """The steps that show all of it, or enough."""
        return min(self.topology.period or WINDOW, WINDOW)

    @property
    def messages(self) -> float:
        """Messages that all workers together send in a step, on average."""
        return float(np.mean([self.topology.at(step).off_diagonal.nnz for step in range(self.steps)]))

    @property
    def degree(self) -> int:
        """Messages that the busiest worker sends in a step."""
        return max(self.topology.at(step).degree for step in range(self.steps))

    def shrinkage(self) -> float | None:
        """The factor by which a step shrinks disagreement, as a geometric mean over `steps`; None for large graphs.

        >>> from commeff.topologies import one_peer_exponential, ring
        >>> round(UsedTopology("ring", ring(8), ()).shrinkage(), 4)
        0.8047
        >>> UsedTopology("pairs", one_peer_exponential(8), ()).shrinkage()
        0.0
        """
        if self.topology.period == 1:
            return self.topology.at(0).rho
        if self.topology.n > LARGEST:
            return None
        product = np.eye(self.topology.n) - 1 / self.topology.n
        for step in range(self.steps):
            product = self.topology.at(step).dense() @ product
        disagreement = float(np.linalg.norm(product, 2))
        return 0.0 if disagreement < 1e-12 else disagreement ** (1 / self.steps)

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sender, receiver) pairs of step 0, and those that only other steps have."""
        first = _pairs(self.topology, 0)
        every = np.unique(np.concatenate([_pairs(self.topology, step) for step in range(self.steps)]), axis=0)
        pairs = set(map(tuple, first.tolist()))
        later = [pair for pair in every.tolist() if tuple(pair) not in pairs]
        return first, np.array(later, dtype=np.int64).reshape(-1, 2)


def _pairs(topology: Topology, step: int) -> NDArray[np.int64]:
    receivers, senders = topology.at(step).off_diagonal.nonzero()
    return np.stack([senders, receivers], axis=1).astype(np.int64)


def networks(analysis: Analysis) -> tuple[list[UsedTopology], list[str]]:
    """The different topologies of a grid with the variants on them, and a line for each that cannot be built."""
    from commeff.experiments.config import build

    drawn: dict[str, UsedTopology] = {}
    faults: dict[str, str] = {}
    for variant in analysis.variants:
        record = next((run.record for run in variant.runs if "topology" in run.record.config), None)
        if record is None:
            continue
        text = json.dumps(record.config["topology"], sort_keys=True)
        try:
            node = inside(record.config["topology"], record.folder)
            if (largest := _largest(node)) > MOST:
                raise ValueError(f"reports build topologies of at most {MOST:,} workers, got {largest:,}")
            key = text + json.dumps(node)
            used = drawn.get(key) or UsedTopology(title(json.loads(text)), build.topology({"topology": node}), ())
            drawn[key] = replace(used, users=(*used.users, variant.name))
        except Exception as error:  # of a plug-in, or of arguments that somebody wrote by hand
            faults[text] = f"topology {text[:300]} cannot be built: {error}"
    return [*drawn.values()], [*faults.values()]


def _largest(node: object) -> int:
    """The largest whole number among the settings of a topology, its seed apart, or the largest product of FACTORS.

    >>> _largest({"n": 8, "seed": 10**9, "topology": {"n": 16}}), _largest({"rows": 8, "cols": 8})
    (16, 64)
    """
    if isinstance(node, dict):
        sizes = {name: _largest(value) for name, value in node.items() if name != "seed"}
        return max([*sizes.values(), *(sizes.get(one, 0) * sizes.get(other, 0) for one, other in FACTORS)], default=0)
    return node if isinstance(node, int) else 0


def title(node: dict[str, object]) -> str:
    """A topology and its own numbers; that of the workers stands elsewhere.

    >>> title({"_target_": "commeff.topologies.torus", "rows": 2, "cols": 4})
    'torus rows=2 cols=4'
    >>> title({"_target_": "commeff.topologies.lazy", "topology": {"_target_": "commeff.topologies.ring", "n": 8}})
    'lazy (ring)'
    """
    parts = [
        f"({title(value)})" if isinstance(value, dict) else f"{key}={value}"
        for key, value in node.items()
        if not key.startswith("_") and key != "n"
    ]
    return " ".join([short(str(node["_target_"])), *parts])


def draw_network(axes: Axes, name: str, n: int, first: NDArray[np.int64], later: NDArray[np.int64]) -> None:
    """Workers on a circle, clockwise from the top, and messages: those of the first step dark, of other steps pale."""
    angles = math.pi / 2 - 2 * math.pi * np.arange(n) / n
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    thin = min(1.0, 12 / math.sqrt(len(first) + 1))
    for pairs, colour in ((later, RULE), (first, INK)):
        once = np.unique(np.sort(pairs, axis=1), axis=0)
        axes.add_collection(LineCollection(list(at[once]), colors=colour, linewidths=0.9 * thin, zorder=1))
    first_pairs = set(map(tuple, first.tolist()))
    if len(first) <= 64 and any((receiver, sender) not in first_pairs for sender, receiver in first_pairs):
        for sender, receiver in first.tolist():
            head = {"arrowstyle": "-|>", "color": INK, "linewidth": 0, "mutation_scale": 8}
            axes.annotate("", at[sender] + 0.62 * (at[receiver] - at[sender]), at[sender], arrowprops=head)
    axes.plot(*at.T, "o", color=INK, markersize=max(1.5, 13 / math.sqrt(n)), zorder=2)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.set_title(folded(name, room(axes)), fontsize=letters(8), loc="center")
