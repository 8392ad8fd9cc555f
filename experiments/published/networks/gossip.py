"""The lecture's table on gossip: seconds of communication, hours of ImageNet, hours of BERT, on servers of 8 V100.

Ten figures from two fitted constants, and two more as a prediction. A training step is

    seconds of computing a batch  +  seconds of communicating among the servers,

and the run is images x epochs / (GPUs x batch) steps of it. Communication is `commeff.cluster`'s ring all-reduce or one
round of one-peer gossip, with one worker for each server: inside a server NVLink is two orders of magnitude faster.

Sources: Chen, Yuan et al., "Accelerating Gossip SGD with Periodic Global Averaging", ICML 2021; Ying, Yuan et al.,
"Exponential Graph is Provably Efficient for Decentralized Deep Training", NeurIPS 2021; numbers as the lecture prints
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from commeff import topologies
from commeff.cluster import Cluster
from commeff.cluster.simulation import gossip, ring

RESNET50 = 25.5e6 * 4  # bytes of float32 gradients; the table prints 25.5 million parameters
BERT_LARGE = 330e6 * 4
IMAGES, EPOCHS = 1_281_167, 90  # ImageNet-1k; epochs as in the exponential-graph paper's protocol
BATCH = 32  # images on each GPU, 256 on each server: the protocol of these papers' line, recalled
PER_SERVER = 8
NODE = Cluster.named("v100_25g")

ASSUMPTIONS = (
    f"batch {BATCH} per GPU, {BATCH * PER_SERVER} per server (recalled; the tables do not print it)",
    f"{EPOCHS} epochs of {IMAGES:,} images, validation and input not apart: they are in the compute constant",
    "float32 gradients and parameters on the wire; one message among servers for each server, nothing inside",
    "communication after computing, no overlap; no stragglers; latency 30 us a message",
    "decentralised is one-peer exponential gossip (recalled): one message a step",
)


@dataclass(frozen=True)
class PrintedFigure:
    """A printed figure.

    Attributes
    ----------
    task : what was timed.
    method : psgd or one_peer.
    servers : of 8 GPUs.
    value, unit : ms of one communication, or h of training.
    """

    task: str
    method: str
    servers: int
    value: float
    unit: str


PRINTED = (
    PrintedFigure("one communication, ResNet-50", "psgd", 32, 278, "ms"),
    PrintedFigure("one communication, ResNet-50", "one_peer", 32, 150, "ms"),
    PrintedFigure("ImageNet", "psgd", 4, 11.6, "h"),
    PrintedFigure("ImageNet", "psgd", 8, 6.3, "h"),
    PrintedFigure("ImageNet", "psgd", 16, 3.7, "h"),
    PrintedFigure("ImageNet", "psgd", 32, 2.2, "h"),
    PrintedFigure("ImageNet", "one_peer", 4, 11.1, "h"),
    PrintedFigure("ImageNet", "one_peer", 8, 5.7, "h"),
    PrintedFigure("ImageNet", "one_peer", 16, 2.8, "h"),
    PrintedFigure("ImageNet", "one_peer", 32, 1.5, "h"),
)
BERT = (PrintedFigure("BERT-Large", "psgd", 8, 59.02, "h"), PrintedFigure("BERT-Large", "one_peer", 8, 30.4, "h"))


@dataclass(frozen=True)
class FittedConstants:
    """The fitted constants.

    Attributes
    ----------
    image : seconds that one GPU computes on one image, all included.
    bandwidth : bytes/s between two servers.
    """

    image: float
    bandwidth: float


def servers(count: int, bandwidth: float) -> Cluster:
    """`count` servers of one worker each, linked at the given bandwidth."""
    return replace(NODE.with_inter(bandwidth=bandwidth, efficiency=1.0), per_node=1, gpus=count)


def communication(method: str, cluster: Cluster, size: float) -> float:
    """Seconds of one step's communication among all servers of a cluster."""
    if method == "psgd":
        return ring(cluster, cluster.gpus, size)
    return gossip(cluster, topologies.one_peer_exponential(cluster.gpus).at(0), size)


def modelled(row: PrintedFigure, constants: FittedConstants, batch: int = BATCH) -> float:
    """The modelled value of a row, in its unit.

    >>> round(modelled(PRINTED[1], FittedConstants(image=0.0, bandwidth=1e9)), 2)
    102.03
    """
    sending = communication(row.method, servers(row.servers, constants.bandwidth), RESNET50)
    if row.unit == "ms":
        return 1e3 * sending
    steps = IMAGES * EPOCHS / (PER_SERVER * row.servers * batch)
    return steps * (constants.image * batch + sending) / 3600


def fit(batch: int = BATCH, rows: Iterable[PrintedFigure] = PRINTED) -> FittedConstants:
    """The constants with the least sum of squares of log(ours / theirs) over the rows."""
    from scipy.optimize import least_squares

    rows_used = [*rows]

    def misses(logs: np.ndarray) -> np.ndarray:
        constants = FittedConstants(*np.exp(logs))
        return np.log([modelled(row, constants, batch) / row.value for row in rows_used])

    solution = least_squares(misses, np.log([5e-3, 1e9]), xtol=1e-12, ftol=1e-12)
    image, bandwidth = np.exp(solution.x).tolist()
    return FittedConstants(image, bandwidth)


@dataclass(frozen=True)
class Pretraining:
    """BERT-Large as assumed for the prediction; none of it is printed beside the hours, and nothing is fitted.

    Attributes
    ----------
    name : in the table.
    sequences : of the original recipe, a million steps of 256.
    tokens : of a sequence in the mean, 128 for 90 % of the steps, 512 for the rest.
    batch : sequences on each GPU.
    peak : FLOP/s of the precision computed in; the share of the peak reached is that of ImageNet's constant.
    wire : bytes of a gradient.
    """

    name: str
    sequences: float = 256e6
    tokens: float = 0.9 * 128 + 0.1 * 512
    batch: int = 64
    peak: float = NODE.gpu.peak_flops["fp16"]
    wire: float = 4.0


PRETRAININGS = (Pretraining("16-bit compute, 32-bit gradients"), Pretraining("the same, 16-bit gradients", wire=2.0))
RESNET50_FLOPS = (
    3 * 2 * 4.1e9
)  # of one image, forward and backward: 4.1 billion multiply-adds forward (He et al., 2015)


def share_of_peak(constants: FittedConstants) -> float:
    """The share of a V100's float32 peak that the ImageNet constant means."""
    return RESNET50_FLOPS / constants.image / NODE.gpu.peak_flops["fp32"]


def bert(row: PrintedFigure, constants: FittedConstants, recipe: Pretraining) -> float:
    """Hours of BERT-Large: 6 FLOPs a parameter and token at ImageNet's share of the peak, plus communication."""
    parameters = BERT_LARGE / 4
    gpus = PER_SERVER * row.servers
    computing = 6 * parameters * recipe.sequences * recipe.tokens / gpus / (recipe.peak * share_of_peak(constants))
    steps = recipe.sequences / (gpus * recipe.batch)
    sending = communication(row.method, servers(row.servers, constants.bandwidth), parameters * recipe.wire)
    return (computing + steps * sending) / 3600
