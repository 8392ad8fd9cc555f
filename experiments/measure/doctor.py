"""`commeff doctor`: what works and how fast, on this machine or in a job of torchrun or srun.

Links are those of `commeff bench comm`, between GPUs where there are any. Methods are the cases of `commeff.laws`, and
models are split as `commeff.sharding` splits them. Both are compared with float64 in one process of the host.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import prod
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional as F

from commeff import Communicator, DistributedOptimizer, laws, methods, require
from commeff.cluster import GPU, Cluster
from commeff.communicator import observe
from commeff.communicator.wire.records import share_json
from commeff.experiments.measure.collectives import per_host
from commeff.experiments.measure.comm import Between, Effort, agreement, among
from commeff.experiments.measure.forks import on_job
from commeff.experiments.measure.links import SIZES
from commeff.experiments.measure.processor import copied_bytes, processor
from commeff.experiments.measure.profile import describe
from commeff.experiments.run.launch.membership import membership
from commeff.experiments.run.system import check_device, own_device, sys_info, whereabouts
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import AXES, Computation, Mesh, Objective, OnePass, cross_entropy, split

STEPS, EXACT, ROUNDED = 10, 1e-10, 0.02  # of a run; what float64 and bf16 may be apart from float64 of the host
EFFORTS = {
    "cpu": Effort(sizes=SIZES[::2], rounds=3),
    "cuda": Effort(sizes=SIZES[::2], rounds=3, length=2**28, width=8192),
}
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
VOCABULARY, ROWS, CONTEXT = 64, 8, 8  # of the model that is split, and of a worker's batch
SPLITS: dict[str, dict[str, Any]] = {  # how the processes of a worker share it
    "tensor": {"tensor": 2},
    "tensor, by sequence": {"tensor": 2, "sequence": True},
    "pipeline": {"pipeline": 2},
    **{f"shard, zero={zero}": {"shard": 2, "zero": zero} for zero in range(4)},
    "shard, zero=2, bf16": {"shard": 2, "zero": 2, "precision": "bf16"},
    "all three, zero=3": {"tensor": 2, "pipeline": 2, "shard": 2, "zero": 3},
}


@dataclass(frozen=True)
class Agreement:
    """How far processes are from the host.

    name : of the method, or of the split.
    difference : the largest one, of which `most` may be; None with a fault.
    fault : an error, in words.
    """

    name: str
    difference: float | None
    most: float
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Whether they agree."""
        return self.difference is not None and self.difference <= self.most


@dataclass(frozen=True)
class Findings:
    """The findings of all processes together.

    places : where each is, and what computes there.
    gpu : the processor of one.
    backend, between : of their group, and what was measured in it; "" and None of one process.
    verdicts : whether they agree with the host, of methods and of `SPLITS`.
    """

    places: Sequence[Mapping[str, Any]]
    gpu: GPU
    backend: str
    between: Between | None
    verdicts: Sequence[Agreement]

    def cluster(self, name: str) -> Cluster | None:
        """The description of these processes, for `plan`; None of one, and of hosts that are not alike."""
        between = self.between
        if between is None or per_host(between.hosts) is None:
            return None
        return describe(name, between.hosts, between.timings, self.gpu, between.pairs)

    def lines(self, cluster: Cluster | None) -> Iterator[str]:
        """The text, with collectives beside those of a description."""
        yield from (f"{name:<12}{value}" for name, value in sys_info().items())
        for rank, place in enumerate(self.places):
            variables = "".join(f", {name}={value}" for name, value in place["variables"].items())
            yield f"{f'rank {rank}':<12}{place['host']}, {place['device']}, {place['cores']} cores{variables}"
        peaks = ", ".join(f"{name} {1e-12 * peak:.3g} TFLOP/s" for name, peak in self.gpu.peak_flops.items())
        yield f"{'processor':<12}{self.gpu.name}: {peaks}, memory {1e-9 * self.gpu.memory_bandwidth:.3g} GB/s"
        if self.between is not None:
            links = [pair.link for pair in self.between.pairs]
            rates, delays = [1e-9 * link.bandwidth for link in links], [1e6 * link.latency for link in links]
            for name, unit, values in (("latency", "us", delays), ("bandwidth", "GB/s", rates)):
                spread = f"{min(values):.3g} to {max(values):.3g}, median {median(values):.3g} {unit}"
                yield f"{name:<12}{spread}, of {len(links)} pairs over {self.backend}"
        if self.between is not None and cluster is not None:
            yield f"{'busbw, GB/s':<24}{'measured':>10}{f'by {cluster.name}':>20}{'share':>8}"
            for timing, seconds in agreement(self.between, cluster):
                share, words = seconds / timing.seconds, f"{timing.operation}, {timing.size >> 20} MiB"
                yield f"{words:<24}{1e-9 * timing.busbw:>10.3g}{1e-9 * timing.busbw / share:>20.3g}{share:>8.2f}"
        for name, splits in (("methods", False), ("splits", True)):
            verdicts = [v for v in self.verdicts if (v.name in SPLITS) == splits]
            agree = f"{sum(v.holds for v in verdicts)} of {len(verdicts)} agree with float64 on the host"
            yield f"{name:<12}{agree if verdicts else 'not compared: they take several processes'}"
            for v in (v for v in verdicts if splits or not v.holds):
                yield f"  {v.name}: {v.fault or f'{v.difference:.1e} apart, of {v.most:.0e} that may be'}"


def run(nproc: int | None = None, kind: str = "cpu", effort: Effort | None = None) -> Findings | None:
    """Examine everything; None at all but one process of a job.

    Parameters
    ----------
    nproc : processes of this machine; as many as GPUs, or 4 on the CPU, by default.
    kind : "cpu" or "cuda".
    effort : of measurements.
    """
    effort = effort or require.choose(EFFORTS, device=kind)
    member = membership(os.environ)
    check_device(kind, 1 if nproc is None or member is not None else nproc)
    if nproc is None and kind == "cuda" and member is None:
        nproc = torch.cuda.device_count()
    if nproc != 1 or member is not None:
        return on_job(partial(examine, effort), nproc, kind)
    world = Communicator(workers=1)
    world.context.device = own_device(kind)
    return examine(effort, world)


def examine(effort: Effort, communicator: Communicator) -> Findings:
    """Examine in every process; processors compute at once, as in training, and rank 0's numbers are reported."""
    device, single = torch.device(communicator.context.device), communicator.transport.size == 1
    location = whereabouts() | {"device": "cpu"}
    if device.type == "cuda":
        version = ".".join(map(str, torch.cuda.nccl.version()))
        location["device"] = f"{torch.cuda.get_device_name(device)}, NCCL {version}"
    places: list[Mapping[str, Any]] = [location] if single else share_json(location)
    between = None if single else among(effort, communicator)
    verdicts = [asdict(verdict) for verdict in (*agreements(communicator), *split_agreements(communicator))]
    by_rank = [[Agreement(**verdict) for verdict in rank] for rank in ([verdicts] if single else share_json(verdicts))]
    worst = [max(ranks, key=badness) for ranks in zip(*by_rank, strict=True)]
    share = sum(place["host"] == location["host"] for place in places)
    gpu = processor(copied_bytes(effort.length, device), share, effort.width, device)
    return Findings(places, gpu, "" if single else dist.get_backend_config(), between, worst)


def badness(verdict: Agreement) -> tuple[bool, float]:
    """The key that orders verdicts on one thing; the worst is reported."""
    return not verdict.holds, math.inf if verdict.difference is None else verdict.difference


def tried(name: str, most: float, difference: Callable[[], float]) -> Agreement:
    """A difference, or why there is none."""
    try:
        value = difference()
    except Exception as error:
        return Agreement(name, None, most, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Agreement(name, value, most) if math.isfinite(value) else Agreement(name, None, most, f"{value} apart")


def agreements(communicator: Communicator) -> Iterator[Agreement]:
    """Ten steps of every method of the catalogue, one worker a process; four in one process alone."""
    n = communicator.n if communicator.n > 1 else laws.WORKERS

    def difference(case: laws.MethodCase) -> float:
        world, strategy = Communicator(n, seed=3, transport=communicator.transport), case.build(n)
        rows, _ = laws.run(strategy, STEPS, n, world, device=str(communicator.context.device))
        strategy.drain()  # nothing travels on when the next method begins
        host, _ = laws.run(case.build(n), STEPS, n)
        return float((rows.cpu() - host[:, list(world.workers)]).abs().max())

    for name in methods.__all__:
        yield from (tried(case.name, EXACT, partial(difference, case)) for case in laws.cases(getattr(methods, name)))


def split_agreements(communicator: Communicator) -> Iterator[Agreement]:
    """Ten losses of a worker on several processes, for each way of `SPLITS` that takes no more than there are."""
    for name, settings in SPLITS.items():
        degrees = {axis: settings.get(axis, 1) for axis in AXES[1:]}
        workers, rest = divmod(communicator.n, prod(degrees.values()))
        if workers and not rest:
            options = {key: value for key, value in settings.items() if key not in AXES}
            most = ROUNDED if "precision" in settings else EXACT
            yield tried(name, most, partial(losses_apart, communicator, degrees | {"worker": workers}, **options))


def losses_apart(
    communicator: Communicator, degrees: Mapping[str, int], sequence: bool = False, zero: int = 1, precision: str = ""
) -> float:
    """How far the losses of workers on a mesh are from those of one model that gets the batches of all."""
    from commeff.sharding.pipeline import Pipeline  # with FSDP, which takes half as long to import as torch

    device = torch.device(communicator.context.device)
    mesh = Mesh(**degrees, device=device.type)
    tensor, pipeline, shard = (mesh.axis(name) for name in ("tensor", "pipeline", "shard"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        whole = Llama(VOCABULARY, layers=4, width=32, heads=4, kv_heads=2, inner=64).double()
    vocabulary = tensor if tensor.size > 1 else None
    model = copy.deepcopy(whole).to(device, torch.float32 if precision else torch.float64)
    split(model, llama_plan(model), tensor, sequence=sequence)
    computation: Computation = OnePass(model, vocabulary)
    if pipeline.size > 1:
        computation = Pipeline(model, LLAMA_LAYERS, pipeline, micro_batches=2, vocabulary=vocabulary)
    optimizer = DistributedOptimizer(model, methods.psgd(SGD), mesh=mesh, zero=zero, precision=precision or "fp32")
    objective = Objective(
        lambda tokens: ((tokens[:, :-1],), tokens[:, 1:]),
        lambda logits, targets: cross_entropy(logits, targets, tensor),
    )
    plain, worst = SGD(whole.parameters()), 0.0
    for step in range(STEPS):
        shape, generator = (degrees["worker"], ROWS, CONTEXT + 1), torch.Generator().manual_seed(step)
        batches = torch.randint(VOCABULARY, shape, generator=generator)
        local_batch = shard.part(batches[mesh.coordinates["worker"]], 0).to(device)
        optimizer.zero_grad()
        loss = pipeline.size * observe(communicator, computation.backward(objective, (local_batch,), 1.0)[None])
        optimizer.step()
        plain.zero_grad()
        tokens = batches.flatten(0, 1)
        expected = F.cross_entropy(whole(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        expected.backward()
        plain.step()
        worst = max(worst, abs(float(loss) - float(expected.detach())))
    return worst
