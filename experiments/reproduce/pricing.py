"""Numbers of a run that no clock measured: seconds on the table's cluster, and the bytes of each direction.

`modelled_seconds` and `modelled_hours` are those of `commeff report --cluster`; `sent_bytes` and `received_bytes` are
what collectives move from and to a worker. Both are by the profile of the run's method: a run whose ledger says another
sum than its profile has neither, since what it sends depends on values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from commeff.experiments.report.data.computing import square_matrices
from commeff.experiments.report.data.wallclock import Modeller
from commeff.experiments.reproduce.results import BYTES, SECONDS, Observation
from commeff.experiments.reproduce.table import TableCluster
from commeff.profiling import Operation

HOUR = 3600.0
OTHER_WAY = {"sent_bytes": "from_server", "received_bytes": "to_server"}  # what they leave out
SAME = 1e-9  # relative: sums of the same bytes


class Pricing:
    """Adds such numbers to observations.

    Parameters
    ----------
    cluster : of the table; None: no seconds.
    wanted : the names that the table speaks of; no more is worked out for a run.
    """

    def __init__(self, cluster: TableCluster | None, metrics: Collection[str]) -> None:
        self._cluster, self._seconds = cluster, cluster is not None and bool(set(SECONDS) & set(metrics))
        self._bytes = bool(set(BYTES) & set(metrics))
        self._modeller = self._cluster_modeller = Modeller()
        if cluster and cluster.parameters:
            self._cluster_modeller = Modeller(square_matrices(cluster.parameters))

    def priced(self, config: Mapping[str, Any], run: Observation) -> Observation:
        """The observation of a run with these numbers.

        Raises
        ------
        ValueError
            If the run's method cannot be profiled, or not be priced on the cluster.
        """
        curve = run.curve
        if curve.empty or not (self._seconds or self._bytes):
            return run
        steps, sent = int(curve["step"].max()), self._modeller.profile(config)[1]
        operations = [operation for step in range(steps) for operation in sent.operations(step)]
        whole = math.fsum(operation.wire_bytes for operation in operations)
        if abs(whole - float(curve["wire_bytes"].iloc[-1])) > SAME * whole:
            return run
        finals = dict(run.finals) | (directions(operations) if self._bytes else {})
        if self._cluster is not None and self._seconds:
            ends = [0.0, *map(float, self._cluster_modeller.timeline(config, self._cluster.place, steps).by_step)]
            curve = curve.assign(modelled_seconds=[ends[int(step)] for step in curve["step"]])
            curve = curve.assign(modelled_hours=curve["modelled_seconds"] / HOUR)
            finals |= {name: float(curve[name].iloc[-1]) for name in SECONDS}
        return replace(run, finals=finals, curve=curve)

    def planned(self, config: Mapping[str, Any]) -> dict[str, float]:
        """Seconds of a run that nobody trains on the cluster, and the part of a step that is communication."""
        assert self._cluster is not None
        line = self._cluster_modeller.timeline(config, self._cluster.place, config["steps"])
        return {
            "modelled_seconds": line.total,
            "modelled_hours": line.total / HOUR,
            "step_seconds": line.step,
            "communication_ms": 1e3 * float(line.communication.mean()),
            "exposed_ms": 1e3 * float(line.exposed.mean()),
        }


def directions(operations: Sequence[Operation]) -> dict[str, float]:
    """What a worker sends and what it receives.

    >>> up, down = (Operation(0, "", kind, 8, 8, 1, 1) for kind in ("to_server", "from_server"))
    >>> directions([up, up, down])
    {'sent_bytes': 16.0, 'received_bytes': 8.0}
    """
    return {
        name: math.fsum(operation.wire_bytes for operation in operations if operation.kind != other)
        for name, other in OTHER_WAY.items()
    }
