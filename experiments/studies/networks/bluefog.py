"""BlueFog's published throughput of ResNet-50 beside that of `commeff scale`'s model of the same machines.

A step computes, then waits for what the rest of backward could not hide. All-reduce (Horovod) sends gradients while
backward runs; BlueFog's optimizers send parameters when forward has ended and wait for them in the optimizer's step.
So both hide behind backward, two thirds of computing. In a step one model leaves each machine: in BlueFog's dynamic
graph one GPU of a machine talks to another machine and the others among themselves, its hierarchical optimizer averages
inside a machine first. The model knows no difference between these two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from commeff.cluster import Cluster
from commeff.cluster.modelled import BACKWARD
from commeff.experiments.planning.scale.modelled import point
from commeff.experiments.planning.scale.setting import ScalingSetting
from commeff.experiments.planning.scale.workloads import WORKLOADS
from commeff.experiments.planning.worker_words import MethodWords

CLUSTER = Cluster.named("v100_25g")
ALL_REDUCE = MethodWords(("method=psgd",))
AFTER = MethodWords(("method=dsgd", "topology=one_peer_exponential"))
BESIDE = MethodWords(("method=dsgd", "method.order=awc", "topology=one_peer_exponential"))
FRAMEWORKS = ("Horovod", "BlueFog", "BlueFog, hierarchical")


class Throughput(NamedTuple):
    """A published throughput.

    Attributes
    ----------
    framework : Horovod, or BlueFog with one of its two optimizers.
    batch : images of a GPU in a step.
    gpus, machines : on how many.
    unit, value : images/s, or % of their ideal line.
    source : printed, or read off a chart by eye.
    """

    framework: str
    batch: int
    gpus: int
    machines: int
    unit: str
    value: float
    source: str


def published() -> list[Throughput]:
    """The 39 rows of tables/bluefog.csv.

    >>> len(published())
    39
    """
    table = pd.read_csv(Path(__file__).parent / "tables" / "bluefog.csv", comment="#")
    return [Throughput(*row) for row in table.itertuples(index=False)]


ROWS = published()
ALONE = {row.batch: row.value / row.gpus for row in ROWS if row.gpus == 4}  # images/s of a GPU: one machine, no NIC
SPREAD = [row for row in ROWS if row.machines > 1 and row.unit == "images/s"]  # what a model can miss


class Hiding(NamedTuple):
    """What communication hides behind.

    Attributes
    ----------
    words : in the table.
    gossip : the order of gossip.
    overlap : the share of computing that hides any communication; None: what each method can hide by itself.
    """

    words: str
    gossip: MethodWords
    overlap: float | None


AS_PUBLISHED = Hiding("both hide behind backward, as their code has it", BESIDE, BACKWARD)
HIDINGS = (
    AS_PUBLISHED,
    Hiding("all-reduce hides behind backward, gossip after the update behind nothing", AFTER, None),
    Hiding("all-reduce hides behind backward, gossip behind all of computing", BESIDE, None),
    Hiding("nothing hides", AFTER, 0.0),
)


def throughput(row: Throughput, bandwidth: float, hiding: Hiding = AS_PUBLISHED) -> float:
    """Modelled images/s of all GPUs, with so many bytes/s between two machines."""
    workload = replace(WORKLOADS["resnet50"], batch=row.batch, per_second=ALONE[row.batch])
    inter = replace(CLUSTER.inter, bandwidth=bandwidth, efficiency=1.0)
    inside = row.gpus // row.machines
    setting = ScalingSetting(replace(CLUSTER, per_node=inside, gpus=inside, inter=inter), overlap=hiding.overlap)
    method = ALL_REDUCE if row.framework == "Horovod" else hiding.gossip
    return point(setting, workload, "weak", method, row.machines).samples_per_second


def modelled(row: Throughput, bandwidth: float) -> float:
    """The modelled value of a row, in its unit."""
    value = throughput(row, bandwidth)
    return 100 * value / linear(row) if row.unit == "%" else value


def linear(row: Throughput) -> float:
    """The null model in which nothing costs: as many times one GPU."""
    return row.gpus * ALONE[row.batch]


def same_share(row: Throughput) -> float:
    """The null model without physics: the share of linear of the same framework and GPUs at the other batch."""
    other = next(
        candidate
        for candidate in ROWS
        if (candidate.framework, candidate.gpus, candidate.unit) == (row.framework, row.gpus, row.unit)
        and candidate.batch != row.batch
        and candidate.source == "eye"
    )
    return linear(row) * other.value / linear(other)


def fit(rows: Iterable[Throughput], hiding: Hiding = AS_PUBLISHED) -> float:
    """The bytes/s between machines with the least mean absolute log(ours / theirs) over the rows."""
    from scipy.optimize import minimize_scalar

    used = [*rows]
    answer = minimize_scalar(
        lambda log: float(np.mean([abs(np.log(throughput(row, np.exp(log), hiding) / row.value)) for row in used])),
        bounds=(np.log(2e8), np.log(CLUSTER.inter.bandwidth)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(np.exp(answer.x))


def held_out() -> dict[int, float]:
    """For each batch the bandwidth fitted to the rows of the other one."""
    return {batch: fit(row for row in SPREAD if row.batch != batch) for batch in ALONE}


def mean_error(rows: Iterable[Throughput], model: Callable[[Throughput], float]) -> float:
    """Mean absolute error in percent."""
    return 100 * float(np.mean([abs(model(row) / row.value - 1) for row in rows]))


def errors(bandwidths: Mapping[int, float]) -> list[dict[str, object]]:
    """Each model's mean error on rows of several machines, held out first."""
    models: dict[str, Callable[[Throughput], float]] = {
        "one constant, fitted to the other batch": lambda row: modelled(row, bandwidths[row.batch]),
        "nothing fitted here: the bandwidth of gossip_time": lambda row: modelled(row, CLUSTER.inter.rate),
        "null: linear": linear,
        "null: the share of linear with the other batch": same_share,
    }
    return [{"model": name, **split(model)} for name, model in models.items()]


def split(model: Callable[[Throughput], float]) -> dict[str, float]:
    """Mean errors of all rows of several machines, and of each framework's."""
    groups = {"all": SPREAD} | {name: [row for row in SPREAD if row.framework == name] for name in FRAMEWORKS}
    return {f"error (%), {name}": round(mean_error(rows, model), 1) for name, rows in groups.items()}


def assumptions() -> list[dict[str, object]]:
    """What each assumption about hiding gives at its own best bandwidth, all rows fitted."""
    results = []
    for hiding in HIDINGS:
        bandwidth = fit(SPREAD, hiding)
        model = partial(throughput, bandwidth=bandwidth, hiding=hiding)
        results.append({"what hides": hiding.words, "GB/s, fitted to all": round(bandwidth / 1e9, 2), **split(model)})
    return results
