"""The clusters that a grid file or `commeff report --cluster` names, and how fast a worker computes on them.

clusters: [v100_25g, mine.yaml]                                # shipped ones by name, your own by their file
clusters: [{cluster: v100_25g, efficiency: 0.3}, {cluster: mine.yaml, step_seconds: 0.02}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from commeff import require
from commeff.cluster.cluster import Cluster, names, read

EFFICIENCY = 0.4  # of a GPU's peak: what training that keeps it busy reaches (published figures are 0.3 to 0.55)
KEYS = ("cluster", "step_seconds", "efficiency")
FILES = (".yaml", ".yml")


@dataclass(frozen=True)
class Place:
    """A described cluster, and how long a worker computes there.

    Parameters
    ----------
    name : what tables and figures call it.
    cluster : with as many GPUs as its description says; see `holding`.
    step_seconds : of computing, forward and backward on one minibatch of one worker; None: from FLOPs and efficiency.
    efficiency : the share of the GPU's peak that computing reaches.
    """

    name: str
    cluster: Cluster
    step_seconds: float | None = None
    efficiency: float = EFFICIENCY

    def holding(self, workers: int) -> Cluster:
        """The cluster with enough GPUs for so many workers, in whole nodes where they need several.

        >>> place = read_place({"cluster": "v100_25g"})
        >>> [place.holding(n).gpus for n in (3, 8, 12)]
        [3, 8, 16]
        """
        per_node = self.cluster.per_node
        return self.cluster.with_gpus(workers if workers <= per_node else -(-workers // per_node) * per_node)

    def with_link(self, bandwidth: float, workers: int) -> Place:
        """The place with another bandwidth (bytes/s) of the link that so many workers share."""
        name = self.link(workers)
        link = replace(getattr(self.cluster, name), bandwidth=bandwidth)
        return replace(self, cluster=replace(self.cluster, **{name: link}))

    def link(self, workers: int) -> str:
        """Which link decides: "inter" between nodes, "intra" where one node holds all workers."""
        return "inter" if workers > self.cluster.per_node else "intra"


def entries(clusters: Any, folder: Path, step_seconds: Any = None) -> list[dict[str, Any]]:
    """The `clusters:` of a grid file, checked: one mapping each, which holds what a file says as `described`.

    Parameters
    ----------
    clusters : a list of names, files, or mappings with `cluster`, `step_seconds`, `efficiency`.
    folder : of the grid file, from which files are named.
    step_seconds : of the whole grid.

    Raises
    ------
    ValueError
        If something of it is no cluster, or no number of seconds.

    >>> entries(["ethernet_1g", {"cluster": "v100_25g", "efficiency": 0.3}], Path("."), step_seconds=0.01)
    [{'cluster': 'ethernet_1g', 'step_seconds': 0.01}, {'cluster': 'v100_25g', 'efficiency': 0.3, 'step_seconds': 0.01}]
    """
    if not isinstance(clusters, list) or not all(isinstance(item, (str, Mapping)) for item in clusters):
        raise ValueError(f"clusters must be a list of clusters, such as [v100_25g, mine.yaml], got {clusters!r}")
    places = []
    for item in clusters:
        entry = {"cluster": item} if isinstance(item, str) else dict(item)
        unknown = next((key for key in entry if key not in KEYS), None)
        if unknown is not None:
            raise ValueError(f"clusters has no use for {unknown!r}{require.did_you_mean(str(unknown), KEYS)}")
        name = str(entry.get("cluster", ""))
        if name.endswith(FILES):
            entry["cluster"] = str((folder / name).resolve())
        if step_seconds is not None:
            entry.setdefault("step_seconds", step_seconds)
        places.append(entry)
    read_places(places)
    for entry in places:
        if _is_file(entry["cluster"]):
            entry["described"] = read(Path(entry["cluster"]))
    return places


def read_places(clusters: Sequence[Mapping[str, Any]]) -> list[Place]:
    """The places of checked entries; each may be named once."""
    places = [read_place(entry) for entry in clusters]
    given = [place.name for place in places]
    twice = next((name for name in given if given.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"each cluster must be named once, got {twice} twice; give one of them a name: in its file")
    return places


def read_place(entry: Mapping[str, Any]) -> Place:
    """One place."""
    name = str(entry.get("cluster") or "")
    if "described" in entry:
        cluster = Cluster.parse(entry["described"], Path(name).stem)
    else:
        cluster = Cluster.load(name) if _is_file(name) else Cluster.named(name)
    seconds, efficiency = entry.get("step_seconds"), entry.get("efficiency", EFFICIENCY)
    if seconds is not None:
        require.at_least(0, step_seconds=seconds)
    require.within("(0, 1]", efficiency=efficiency)
    return Place(cluster.name, cluster, seconds, efficiency)


def _is_file(name: str) -> bool:
    return name.endswith(FILES) or (name not in names() and Path(name).is_file())
