"""Methods over split models against the same over whole models, stacked in one process: the largest difference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from commeff import Communicator, Strategy, methods, topologies
from commeff.compressors import QSGD, ScaledSign
from commeff.experiments.run.crew import Fork, crew
from commeff.experiments.studies.splitting.small import RandomTokens
from commeff.replicas import Stacked
from commeff.sharding import Mesh
from commeff.sharding.pieces import fitted
from commeff.sharding.schedules import SCHEDULES
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from commeff.transforms import clipped

T = TypeVar("T")
STEPS, CLIP, PATIENCE = 4, 0.6, 120.0
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS: Mapping[str, Callable[[int], Strategy]] = {
    "psgd": lambda n: methods.psgd(SGD),
    "dsgd, ring": lambda n: methods.dsgd(SGD, topologies.ring(n)),
    "gossip_pga, period 3": lambda n: methods.gossip_pga(SGD, topologies.ring(n), period=3),
    "diloco, period 2": lambda n: methods.diloco(SGD, period=2),
    "streaming_diloco, 2 fragments": lambda n: methods.streaming_diloco(SGD, period=2, fragments=2),
    "power_sgd, rank 2": lambda n: methods.power_sgd(SGD, rank=2),
    "compressed_sgd, qsgd": lambda n: methods.compressed_sgd(SGD, QSGD(levels=7)),
    "mem_sgd, scaled sign": lambda n: methods.mem_sgd(SGD, ScaledSign()),
    "ef21, scaled sign": lambda n: methods.ef21(SGD, ScaledSign()),
    "choco, ring, qsgd": lambda n: methods.choco(SGD, topologies.ring(n), QSGD(levels=7), gamma=0.2),
}
CLIPPED = "diloco, period 2"  # once more with clipping that bites


class Composition(NamedTuple):
    """How a worker's model lies on ranks."""

    name: str
    degrees: dict[str, Any]
    options: Mapping[str, Any] = {}
    tied: bool = False

    @property
    def ranks(self) -> int:
        """The product of the degrees."""
        return int(torch.tensor([*self.degrees.values()]).prod())


def _pipelines(worker: int) -> Iterator[Composition]:
    for schedule in SCHEDULES:
        options = {"schedule": schedule, "micro_batches": 4}
        yield Composition(f"pipeline 2, {schedule}", {"worker": worker, "pipeline": 2}, options)


FEW = [
    Composition("tensor 2", {"worker": 2, "tensor": 2}),
    Composition("tensor 2, tied embeddings", {"worker": 2, "tensor": 2}, tied=True),
    Composition("tensor 2, sequence", {"worker": 2, "tensor": 2}, {"sequence": True}),
    Composition("tensor 2, layers recomputed", {"worker": 2, "tensor": 2}, {"recompute": "full"}),
    Composition("tensor 4 over 2 KV heads", {"worker": 1, "tensor": 4}),
    *(Composition(f"shard 2, ZeRO {stage}", {"worker": 2, "shard": 2}, {"zero": stage}) for stage in range(4)),
    *_pipelines(2),
    Composition("pipeline 2, tied embeddings", {"worker": 2, "pipeline": 2}, {"micro_batches": 2}, tied=True),
]
MANY = [  # of 8 ranks
    Composition("tensor 2, four workers", {"worker": 4, "tensor": 2}),
    Composition("shard 2 x tensor 2, ZeRO 1", {"worker": 2, "shard": 2, "tensor": 2}, {"zero": 1, "sequence": True}),
    Composition("shard 2 x tensor 2, ZeRO 3", {"worker": 2, "shard": 2, "tensor": 2}, {"zero": 3, "sequence": True}),
    Composition(
        "pipeline 2 x tensor 2, 1f1b", {"worker": 2, "pipeline": 2, "tensor": 2}, {"micro_batches": 4, "sequence": True}
    ),
    Composition(
        "pipeline 2 x shard 2, 1f1b, ZeRO 2", {"worker": 2, "pipeline": 2, "shard": 2}, {"micro_batches": 2, "zero": 2}
    ),
    Composition(
        "pipeline 2 x shard 2, 1f1b, ZeRO 3", {"worker": 2, "pipeline": 2, "shard": 2}, {"micro_batches": 2, "zero": 3}
    ),
]


def on_processes(count: int, work: Callable[[], T]) -> list[T]:
    """What each of so many processes of one thread gives, which may talk to each other."""

    def member(fork: Fork) -> T:
        torch.set_num_threads(1)
        with fork.group(PATIENCE):
            return work()

    with crew(count, member) as forks:
        return forks.results()


def differences(compositions: list[Composition]) -> list[dict[str, Any]]:
    """A row for each composition and method: max |x - stacked| over all pieces at all ranks, and max |x - x_0|."""
    cases = [(place, method) for place in compositions for method in METHODS]
    cases += [(place, "") for place in compositions]  # the clipped one

    def work() -> list[dict[str, Any]]:
        meshes = {str(place.degrees): Mesh(**place.degrees) for place in compositions}  # groups take seconds
        return [_on_ranks(place, method, meshes[str(place.degrees)]) for place, method in cases]

    rows = []
    for (place, method), *ranks in zip(cases, *on_processes(compositions[0].ranks, work), strict=True):
        whole, first = _stacked(place, method)
        far = [_distance(rank, whole[rank["worker"]]) for rank in ranks]
        covered = {name for rank in ranks for name in rank["pieces"]}
        assert covered == set(whole[0]), "a tensor that no rank holds"
        moved = max(float((whole[0][name] - first[name]).abs().max()) for name in first)
        name = method or f"{CLIPPED}, clipped at {CLIP}"
        rows.append(
            {
                "split": place.name,
                "ranks": place.ranks,
                "method": name,
                "difference": max(far),
                "moved": round(moved, 3),
            }
        )
    return rows


def _strategy(method: str, n: int) -> tuple[Strategy, float | None]:
    return METHODS[method or CLIPPED](n), None if method else CLIP


def _on_ranks(place: Composition, method: str, mesh: Mesh) -> dict[str, Any]:
    """This rank's worker, and its pieces at the end, each with its cut."""
    strategy, clip = _strategy(method, place.degrees["worker"])
    worker = on_mesh(RandomTokens(place.degrees["worker"], place.tied), mesh, **place.options)
    train(
        RandomTokens(place.degrees["worker"], place.tied),
        clipped(fitted(strategy, worker.partition, None), clip),
        Communicator(group=mesh.group("worker")),
        RunSettings(steps=STEPS, evaluate_every=STEPS),
        worker=worker,
    )
    pieces = {}
    for name, parameter in worker.computation.parameters.items():
        full_tensor = getattr(parameter, "full_tensor", lambda tensor=parameter: tensor)  # of what FSDP2 has sharded
        pieces[name] = full_tensor().detach().clone(), getattr(parameter, "cut", None)
    return {"worker": mesh.coordinates["worker"], "pieces": pieces}


def _stacked(place: Composition, method: str) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """The parameters of every worker at the end, and of all at the start, from whole models in this process."""
    n, (strategy, clip) = place.degrees["worker"], _strategy(method, place.degrees["worker"])
    task, communicator = RandomTokens(n, place.tied), Communicator(workers=n)
    replicas, strategy = Stacked(task.model, communicator.workers), clipped(strategy, clip)
    first = {name: p.detach().clone() for name, p in replicas.models[0].named_parameters()}
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STEPS):
        gradient, _ = replicas.compute(task.loss, [task.batch(communicator.step, range(n))], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    return [{name: p.detach() for name, p in model.named_parameters()} for model in replicas.models], first


def _distance(rank: Mapping[str, Any], whole: Mapping[str, Tensor]) -> float:
    far = 0.0
    for name, (piece, cut) in rank["pieces"].items():
        expected = whole[name] if cut is None else cut.take(whole[name])
        far = max(far, float((piece - expected).abs().max()))
    return far
