"""Seconds to the target on every network, as measured and as modelled, from the stores that `commeff lab run` made.

The modelled run has the measured one's computing, which is what rank 0 did while it did not wait for others, and the
communication that its profile and the links of the network give; everybody waits for everybody after each step, as in
the trainer. Nothing is fitted to the run but that.

What links alone need for what a run has sent is less than any run can take. A clock that says less has not run while
others were waited for, and is no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from commeff.cluster import Cluster
from commeff.cluster.billing import Schedule
from commeff.experiments.report.data.grids import StoredCell, StoredGrid, choose
from commeff.experiments.report.data.records import Record, read_record
from commeff.experiments.report.data.statistics import first_reached
from commeff.experiments.report.data.wallclock import Modeller
from commeff.experiments.studies.lab.clocks import clocks
from commeff.experiments.studies.lab.grid import CLUSTER
from commeff.experiments.studies.lab.network import LAUNCHER, NETWORKS, LinkShape

SLACK = 0.9  # of what the links alone need: fewer seconds are impossible


@dataclass(frozen=True)
class Race:
    """One run up to the target.

    Attributes
    ----------
    network, method, seed : which run.
    steps : up to the target.
    measured, exposed : seconds up to there, and those of them that were spent waiting for others.
    modelled, floor : modelled seconds, and the seconds that the links alone need.
    commit, hardware : with which and on what it ran.
    """

    network: str
    method: str
    seed: int
    steps: int
    measured: float
    exposed: float
    modelled: float
    floor: float
    commit: str
    hardware: str

    @property
    def possible(self) -> bool:
        """Whether the measured seconds suffice for what was sent."""
        return self.measured >= SLACK * self.floor


@dataclass(frozen=True)
class NetworkRuns:
    """One network and the grid that was run there.

    Attributes
    ----------
    cluster : its description.
    grid : that was run.
    races : its runs up to the target.
    missed : the names of those that did not reach it.
    """

    cluster: Cluster
    grid: StoredGrid
    races: tuple[Race, ...]
    missed: tuple[str, ...]

    @property
    def title(self) -> str:
        """What the report calls the network."""
        return shape_of(self.cluster.name).title


def read_networks(root: Path, grid: str | None = None) -> list[NetworkRuns]:
    """Read every network of a root folder, the fastest last.

    Parameters
    ----------
    root : holds a store for each network.
    grid : which one, where several were run.
    """
    stores = sorted(place.parent for place in root.glob(f"*/{CLUSTER}"))
    if not stores:
        raise ValueError(
            f"{root} must hold a store of `commeff lab run` for each network, got none; "
            f"run `commeff lab run FILE --store {root}`"
        )
    every = [_read_network(store, grid) for store in stores]
    return sorted(every, key=lambda network: network.cluster.inter.bandwidth)


def _read_network(store: Path, chosen: str | None) -> NetworkRuns:
    cluster = Cluster.load(store / CLUSTER)
    grid = choose(store, chosen, [])
    if len(grid.target) != 1:
        raise ValueError(
            f"target of the grid {grid.name} in {store} must be given; write target: {{val_accuracy: 0.95}} into it"
        )
    races, missed, modeller = [], [], Modeller()
    for cell in grid.cells:
        record = read_record(store / cell.run)
        race = measure_race(record, cell, cluster, grid.target, modeller) if record.state == "done" else None
        if race is None:
            missed.append(f"{name(cell)}, seed {cell.seed}")
        else:
            races.append(race)
    return NetworkRuns(cluster, grid, tuple(races), tuple(missed))


def shape_of(network: str) -> LinkShape:
    """The network of the lab that has this name."""
    if network not in NETWORKS:
        raise ValueError(f"network must be one of the lab's, {', '.join(NETWORKS)}, got {network!r}")
    return NETWORKS[network]


def name(cell: StoredCell) -> str:
    """What a cell is called without its seed."""
    return cell.name or " ".join(cell.labels.values())


def measure_race(
    record: Record, cell: StoredCell, cluster: Cluster, target: Mapping[str, float], modeller: Modeller
) -> Race | None:
    """How a run came to the target; None if it did not."""
    if record.environment.get("launcher") != LAUNCHER:
        raise ValueError(
            f"{record.folder} must have been run in the lab, got another launcher; "
            "run `commeff lab run` on another --store"
        )
    ((metric, level),) = target.items()
    reached = first_reached(record.curve, metric, level)
    if reached is None:
        return None
    steps, seconds, exposed = math.ceil(reached["step"]), float(reached["seconds"]), float(reached["exposed_seconds"])
    _, sent = modeller.profile(record.parts)
    modelled, floor = modelled_seconds(sent, cluster, steps, compute=(seconds - exposed) / reached["step"])
    floor = floor if sent.exact else 0.0  # a bound on what was sent says nothing about the least
    origin = record.environment
    hardware = f"{origin.get('cpu', 'unknown processor')}, {origin.get('cores', '?')} cores"
    commit = str(origin.get("commit", "unknown"))
    return Race(cluster.name, name(cell), cell.seed, steps, seconds, exposed, modelled, floor, commit, hardware)


def modelled_seconds(sent: Schedule, cluster: Cluster, steps: int, compute: float) -> tuple[float, float]:
    """Seconds of so many steps of so much computing each and of what is sent in them; and the floor, what the links
    need for the bytes alone, nobody computing, and waiting only for those who are heard.
    """
    links = shape_of(cluster.name).links(sent.workers, cluster.inter.latency)
    ends = partial(clocks, sent, cluster, steps=steps, collective="one_ring")
    bare = [replace(link, latency=0.0) for link in links]
    return float(ends(links, compute=compute)[-1].max()), float(ends(bare)[-1].max())
