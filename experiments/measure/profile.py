"""What was measured, as files: rows of a CSV, and a hardware profile, a cluster that `commeff.cluster` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from commeff.cluster import GPU, Cluster, Link
from commeff.experiments.measure.collectives import BETWEEN, EXCHANGE, INSIDE, Timing, per_host
from commeff.experiments.measure.links import Pair, fit
from commeff.experiments.run.system import cpu_name, git_commit


def describe(
    name: str, hosts: Sequence[int], timings: Sequence[Timing], gpu: GPU, pairs: Sequence[Pair] = ()
) -> Cluster:
    """The cluster of the processes: a node for each host, a "GPU" for each process.

    Links are lines through exchanges in which everybody takes part at once, since that is how collectives use them;
    what processes of a host share (cores, memory, a NIC) is in them. Where there is one host only, the link between
    nodes is that inside it. The NIC of a node has the sum of what its processes got.

    `pairs`, measured while others are silent, say what a link carries, and so which share of it is lost to protocols
    (acknowledgements, retransmissions behind a traffic shaper) and sharing: the link's `efficiency`.
    """
    local = per_host(hosts)
    if local is None:
        raise ValueError(
            f"hosts of a profile must have equally many processes, with consecutive ranks, got {list(hosts)}: nodes "
            "of a described cluster are equal; start as many on each host, in order"
        )
    inside = [pair.link for pair in pairs if hosts[pair.first] == hosts[pair.second]]
    if local == len(hosts):
        intra = inter = with_efficiency(fit_operation(timings, EXCHANGE), inside)
    else:
        link = fit_operation(timings, BETWEEN)
        across = [pair.link for pair in pairs if hosts[pair.first] != hosts[pair.second]]
        inter = with_efficiency(replace(link, bandwidth=link.bandwidth * local), across)
        intra = with_efficiency(fit_operation(timings, INSIDE), inside) if local > 1 else inter
    return Cluster(name, gpus=len(hosts), gpu=gpu, per_node=local, intra=intra, inter=inter)


def with_efficiency(link: Link, pair_links: Sequence[Link]) -> Link:
    """The link with the bandwidth of a message alone, and the share of it that is left while everybody sends.

    >>> with_efficiency(Link(9e8, 1e-5), [Link(1e9, 1e-5), Link(1e9, 1e-5)])
    Link(bandwidth=1000000000.0, latency=1e-05, burst=0.0, efficiency=0.9)
    """
    most = median(pair.bandwidth for pair in pair_links) if pair_links else link.bandwidth
    return link if most <= link.bandwidth else replace(link, bandwidth=most, efficiency=link.bandwidth / most)


def fit_operation(timings: Sequence[Timing], operation: str) -> Link:
    """The link seen by an operation in which each process sends one message of the size."""
    sample = [timing for timing in timings if timing.operation == operation]
    return fit([timing.size for timing in sample], [timing.seconds for timing in sample])


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path, command: str, hardware: str | None = None) -> None:
    """A CSV file, with the command, the hardware (this processor unless given) and the commit of its rows."""
    import pandas as pd

    origin = {"measured by": command, "hardware": hardware or cpu_name(), "commit": git_commit()}
    path.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame([{**row, **origin} for row in rows]).to_csv(path, index=False)


def write(cluster: Cluster, path: Path, notes: Sequence[str]) -> None:
    """The YAML file, headed by notes on where its numbers come from."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cluster.save(path)
    path.write_text("".join(f"# {note}\n" for note in notes) + path.read_text())
