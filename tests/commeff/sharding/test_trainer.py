"""The trainer on a mesh is the trainer on one process: the same parameters, losses and record.

The mesh gets its task through `OnDevice`, as a GPU does.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from commeff import Communicator, methods
from commeff.core.strategy import Strategy
from commeff.experiments.tasks.language import Llama, llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh, cross_entropy
from commeff.sharding.pieces import fitted
from commeff.sharding.played import PlayedMesh
from commeff.training.checkpoint import Checkpoints
from commeff.training.on_device import OnDevice
from commeff.training.recorder import Recorder
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from commeff.transforms import clipped
from tests.laws.processes import by_case, on_processes
from tests.states import parameters

STEPS, VOCABULARY = 4, 64
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "clipped diloco": lambda: methods.diloco(SGD, period=3),
}
TAKEN = {"psgd": 2, "clipped diloco": STEPS}
MESHES = {
    "T2W2": {"worker": 2, "tensor": 2},
    "S2W2": {"worker": 2, "shard": 2},
    "P2W2": {"worker": 2, "pipeline": 2},
}
CASES = {
    "T2W2": (MESHES["T2W2"], {}),
    "T2W2 sequence": (MESHES["T2W2"], {"sequence": True}),
    "S2W2": (MESHES["S2W2"], {}),
    "S2W2 zero 1": (MESHES["S2W2"], {"zero": 1}),
    "P2W2": (MESHES["P2W2"], {"schedule": "1f1b", "micro_batches": 2, "recompute": "full"}),
    "S2W2 zero 2": (MESHES["S2W2"], {"zero": 2}),
    "S2W2 zero 3": (MESHES["S2W2"], {"zero": 3}),
}
CRASHED = ("T2W2", "S2W2 zero 3", "P2W2")


class Tokens:
    """Random tokens for a small Llama in float64."""

    workers, size, depth = 2, 0, 2

    def model(self):
        torch.manual_seed(1)
        return Llama(VOCABULARY, layers=self.depth, width=32, heads=4, kv_heads=2, inner=64).double()

    def plan(self, model):
        return llama_plan(model)

    def layers(self, model):
        return LLAMA_LAYERS

    def batch(self, step, workers):
        seeds = [torch.Generator().manual_seed(100 * step + worker) for worker in workers]
        return (torch.stack([torch.randint(VOCABULARY, (6, 9), generator=seed) for seed in seeds]),)

    def loss(self, model, *batch):
        inputs, targets = self.inputs_targets(*batch)
        return self.criterion(model(*inputs), targets)

    def inputs_targets(self, tokens):
        return (tokens[:, :-1],), tokens[:, 1:]

    def criterion(self, outputs, targets, vocabulary=None):
        if vocabulary is not None:
            return cross_entropy(outputs, targets, vocabulary)
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def evaluate(self, model):
        with torch.no_grad():
            return {"val_loss": float(self.loss(model, *(part[0] for part in self.batch(999, [0]))))}

    def test(self, model):
        return {f"test_{name}": value for name, value in self.evaluate(model).items()}

    def calibration(self):
        return ()


def decay(method):
    """x is added to gradients where they are clipped."""
    return 0.1 if "clipped" in method else 0.0


def built(method, partition=()):
    """Where gradients are clipped they are those of two minibatches."""
    strategy = fitted(METHODS[method](), partition, "own")
    if "clipped" not in method:
        return strategy
    return clipped(Strategy(strategy.local, strategy.gradients, strategy.parameters, accumulate=2), 0.6)


def on_one_process(method, folder):
    """The summary, the rows and the final parameters of whole models in this process."""
    checkpoints = Checkpoints(folder)
    summary = train(
        Tokens(),
        built(method),
        Communicator(workers=2),
        RunSettings(steps=TAKEN[method], l2=decay(method), evaluate_every=2),
        recorder=Recorder(folder),
        checkpoints=checkpoints,
    )
    return summary, Recorder(folder).rows(), parameters(checkpoints.load())


class Crash(Exception):
    """The end of a run between two checkpoints."""


def on_ranks(case, method, folder, crash=None, checkpoints=None):
    """This rank's summary, its place, and its pieces of the final model."""
    degrees, given = CASES[case]
    mesh, task = Mesh(**degrees), OnDevice(Tokens(), "cpu")
    worker = on_mesh(task, mesh, **given)
    communicator = Communicator(group=mesh.group("worker"))

    def progress(step, row):
        if step == crash:
            raise Crash

    summary = train(
        task,
        built(method, worker.partition),
        communicator,
        RunSettings(steps=TAKEN[method], l2=decay(method), evaluate_every=2),
        worker=worker,
        recorder=None if any(mesh.coordinates.values()) else Recorder(folder),
        checkpoints=checkpoints,
        progress=progress,
    )
    whole = {n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in worker.computation.parameters.items()}
    pieces = {name: (p.detach(), getattr(p, "cut", None)) for name, p in whole.items()}
    return summary, mesh.coordinates["worker"], pieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def outcomes(folder):
    """By rank, what all cases came to, with one case that crashed and went on: starting ranks costs more."""

    def member(case):
        name, method = case
        if method in METHODS:
            return on_ranks(name, method, folder / f"{name} {method}")
        place = folder / f"{name} {method}"
        given = {"method": "clipped diloco", "folder": place, "checkpoints": Checkpoints(place, every=2)}
        with pytest.raises(Crash):
            on_ranks(name, **given, crash=3)
        return on_ranks(name, **given)

    cases = [*product(CASES, METHODS), *((case, "resumed") for case in CRASHED)]
    return on_processes(4, lambda: by_case(cases, member) | {"dealt": dealt()})


PROBES = {"even": 6, "odd": 5, "training": 6}


def dealt():
    """Of each probe, how many samples a rank of two has computed, and the outputs that it has got."""
    worker, found = on_mesh(Tokens(), Mesh(worker=2, shard=2)), {}
    (model,), seen = worker.computation.modules, []
    model.tokens.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    for name, count in PROBES.items():
        worker.models[0].train(name == "training")
        with torch.no_grad():
            found[name] = worker.models[0](Tokens().batch(7, [0])[0][0, :count]), seen.pop()
    return found


@pytest.fixture(scope="module")
def references(folder):
    return {method: on_one_process(method, folder / method) for method in METHODS}


LAYOUT = {name: tuple(p.shape) for name, p in Tokens().model().named_parameters()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_a_run_on_a_mesh_is_the_run_on_one_process(outcomes, references, folder, case, method):
    _, rows, parameters = references[method]
    sizes = [torch.Size(shape).numel() for shape in LAYOUT.values()]
    first = torch.cat([p.detach().flatten() for p in Tokens().model().parameters()])
    assert (parameters - first).abs().max() > 0.02, "nothing moved: the comparison says nothing"
    for _, worker, pieces in (rank[case, method] for rank in outcomes):
        for (name, shape), whole in zip(LAYOUT.items(), parameters[worker].split(sizes), strict=True):
            if name in pieces or "P2" not in case:
                piece, cut = pieces[name]
                expected = cut.take(whole.view(shape)) if cut else whole.view(shape)
                assert (piece - expected).abs().max() <= 1e-12, (name, worker)
    ours = Recorder(folder / f"{case} {method}").rows()
    for row, reference in zip(ours, rows, strict=True):
        for key in ("step", "minibatch_loss", "val_loss", "samples"):
            assert row[key] == pytest.approx(reference[key], abs=1e-11), key
        assert ("gradient_norm" in row) == ("clipped" in method)
        assert row.get("gradient_norm") == pytest.approx(reference.get("gradient_norm"), abs=1e-11)
        assert row["consensus_distance"] == pytest.approx(reference["consensus_distance"], abs=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_the_end_of_a_run_is_measured_without_a_whole_model(outcomes, references, case):
    summary, _, _ = references["clipped diloco"]
    for ours in (rank[case, "clipped diloco"][0] for rank in outcomes):
        assert ours["state"] == "done"
        for key in ("test_val_loss", "local_val_loss", "start_loss", "parameter_norm"):
            assert ours[key] == pytest.approx(summary[key], abs=1e-11), key


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"engine": "vmap"}, "engine must be loop for workers in pieces, got vmap"),
        ({"precision": "bf16"}, "precision must be the worker's fp32, got bf16: give it to on_mesh"),
        ({"groups": lambda name, parameter: int(parameter.ndim < 2)}, "groups must be omitted for workers in pieces"),
    ],
)
def test_what_a_worker_in_pieces_cannot_be_told_is_refused(given, fault):
    worker = on_mesh(Tokens(), PlayedMesh({"worker": 2, "tensor": 2}))
    with pytest.raises(ValueError, match=fault):
        train(Tokens(), built("psgd"), Communicator(workers=2), RunSettings(steps=1, **given), worker=worker)


@pytest.mark.parametrize("schedule", ["zero_bubble", "zbv"])
def test_stages_that_divide_backward_are_not_compiled(schedule):
    task = Tokens()
    task.workers, task.depth = 1, 4
    worker = on_mesh(task, PlayedMesh({"pipeline": 2}), schedule=schedule, micro_batches=2)
    settings = RunSettings(steps=1, compiled=True)
    with pytest.raises(ValueError, match="must not be compiled in a schedule that divides backward"):
        train(task, built("psgd"), Communicator(workers=1), settings, worker=worker)


@pytest.mark.parametrize("case", CRASHED)
def test_a_run_that_crashed_ends_bit_by_bit_where_it_would_have(outcomes, folder, case):
    for rank in outcomes:
        pairs = zip(rank[case, "resumed"][2].values(), rank[case, "clipped diloco"][2].values(), strict=True)
        assert all(torch.equal(a, b) for (a, _), (b, _) in pairs)
    whole, resumed = (Recorder(folder / f"{case} {what}").rows() for what in ("clipped diloco", "resumed"))
    seconds = {key for key in whole[0] if "seconds" in key}
    assert [{k: v for k, v in row.items() if k not in seconds} for row in resumed] == [
        {k: v for k, v in row.items() if k not in seconds} for row in whole
    ]


def test_the_record_adds_up_the_pieces_and_has_the_bytes_of_every_axis(references, folder):
    """Copies travel, too: 5 norms of 32 numbers at both tensor ranks. The shard axis carries twice the row a step,
    thrice where parameters are gathered forward and backward.
    """
    d = sum(torch.Size(shape).numel() for shape in LAYOUT.values())
    steps, tokens, norms = TAKEN["psgd"], 6 * 8, 5 * 32
    for case, copies, sent in (
        ("T2W2", norms, {"tensor_bytes": 2 * steps * 8 * ((4 * 2 + 2) * tokens * 32 + 3 * tokens)}),
        ("S2W2", d, {"shard_bytes": 2 * steps * 8 * d}),
        ("S2W2 zero 1", 0, {"shard_bytes": 2 * steps * 8 * d}),
        ("S2W2 zero 2", 0, {"shard_bytes": 2 * steps * 8 * d}),
        ("S2W2 zero 3", 0, {"shard_bytes": 3 * steps * 8 * d}),
        ("P2W2", 0, {"pipeline_bytes": 2 * steps * 8 * tokens * 32}),
    ):
        row = Recorder(folder / f"{case} psgd").rows()[-1]
        assert row["payload_bytes"] == steps * 8 * (d + copies)
        assert {
            key: row[key] for key in row if key.endswith("_bytes") and key not in ("payload_bytes", "wire_bytes")
        } == sent
    assert references["psgd"][1][-1]["payload_bytes"] == steps * 8 * d
