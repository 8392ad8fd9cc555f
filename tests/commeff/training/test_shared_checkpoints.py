"""A checkpoint of workers that lie on several processes is gone on from on any mesh."""

from __future__ import annotations

import errno
import logging
import math
import os
import random
import re
import shutil
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, methods, topologies
from commeff.compressors import QSGD, Compressor, DenseMessage
from commeff.experiments.run.crew import MemberLost
from commeff.experiments.tasks import Quadratic
from commeff.replicas import Stacked
from commeff.sharding import Mesh
from commeff.sharding.pieces import fitted
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import CheckpointRefused, read_document, write_document
from commeff.training.run import Run
from commeff.training.run_state import mean_model, read_state
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.shared_checkpoints import SharedCheckpoints
from commeff.training.trainer import train
from commeff.transforms import clipped
from tests.commeff.sharding.test_trainer import Tokens
from tests.laws.processes import by_case, on_processes
from tests.states import parameters, tensors

STEPS, STOP = 7, 4  # in the middle of a period of 3
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAM = partial(torch.optim.AdamW, lr=0.003)


@dataclass(frozen=True)
class Rounded(Compressor):
    """Four digits after the point: what is rounded away is remembered, and no message is of fewer bits."""

    scope, summable = "coordinate", True

    def omega(self, d):
        return None

    def delta(self, d):
        return 0.5

    def compress(self, vectors, random):
        return DenseMessage.of(vectors.round(decimals=4))


METHODS = {
    "diloco": lambda n: methods.diloco(SGD, period=3),
    "adam": lambda n: methods.diloco(ADAM, period=3),
    "mem_sgd": lambda n: methods.mem_sgd(SGD, Rounded()),
    "choco": lambda n: methods.choco(SGD, topologies.ring(n), Rounded()),
    "server": lambda n: methods.double_squeeze(SGD, Rounded()),
}
NIGHTLY = {
    "ef21": lambda n: methods.ef21(SGD, Rounded()),
    "qsgd": lambda n: methods.mem_sgd(SGD, QSGD(levels=15)),
    "streaming_diloco": lambda n: methods.streaming_diloco(SGD, period=3, fragments=2),
    "power_sgd": lambda n: methods.power_sgd(SGD, rank=2),
}
T2, S2, P2 = ({"worker": 2, axis: 2} for axis in ("tensor", "shard", "pipeline"))
MOVES = {  # from where to where, what is given beside the mesh, and by which methods
    "S2 to T2": (S2, {"zero": 3}, T2, {"sequence": True}, ("diloco", "server")),
    "P2 to S2": (P2, {"micro_batches": 2}, S2, {"zero": 2}, ("adam", "choco")),
}
CASES = [(move, method) for move in MOVES for method in MOVES[move][-1]]


class Four(Tokens):
    workers = 4


class One(Tokens):
    workers = 1


def built(method, n, partition=()):
    return clipped(fitted((METHODS | NIGHTLY)[method](n), partition, "own"), 0.6)


def on_ranks(method, folder, degrees, given, task=None, every=0, steps=STEPS, progress=lambda step, row: None):
    """Train on a mesh; gives the worker and this rank's pieces."""
    mesh = Mesh(**degrees)
    task = task or Tokens()
    worker = on_mesh(task, mesh, **given)
    summary = train(
        task,
        built(method, mesh.degrees["worker"], worker.partition),
        Communicator(group=mesh.group("worker")),
        RunSettings(steps=steps, evaluate_every=steps),
        worker=worker,
        checkpoints=Checkpoints(folder, every=every),
        progress=progress,
    )
    pieces = {n: (p.detach().clone(), getattr(p, "cut", None)) for n, p in worker.computation.parameters.items()}
    return summary["state"], mesh.coordinates["worker"], pieces


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def outcomes(folder):
    """By rank, what every method came to after a move, and workers that were two before; starting ranks costs more."""

    def moved(case):
        move, method = case
        before, given_before, after, given_after, _ = MOVES[move]
        path = folder / f"{move} {method}"
        assert on_ranks(method, path, before, given_before, steps=STOP)[0] == "done"
        return on_ranks(method, path, after, given_after)

    def were_two(workers):
        dist.barrier()
        if not dist.get_rank():
            for name in (workers, f"{workers} before"):
                shutil.copytree(folder / "two", folder / name)
        dist.barrier()
        if workers == "four":
            return on_ranks("diloco", folder / "four", {"worker": 4}, {}, task=Four(), steps=STOP)
        return on_ranks("diloco", folder / "one", {"shard": 2, "tensor": 2}, {"zero": 1}, task=One())

    def member():
        found = by_case(CASES, moved)
        on_ranks("diloco", folder / "two", T2, {}, steps=STOP)
        return found | by_case(["four", "one"], were_two)

    return on_processes(4, member)


@pytest.fixture(scope="module")
def references(folder):
    found = {}
    for method in METHODS:
        checkpoints = Checkpoints(folder / f"{method} whole")
        train(Tokens(), built(method, 2), Communicator(workers=2), RunSettings(steps=STEPS), checkpoints=checkpoints)
        found[method] = parameters(checkpoints.load())
    return found


SHAPES = {name: tuple(p.shape) for name, p in Tokens().model().named_parameters()}


def same(pieces, whole, tolerance=1e-12):
    sizes = [torch.Size(shape).numel() for shape in SHAPES.values()]
    wholes = dict(zip(SHAPES, whole.split(sizes), strict=True))
    assert pieces
    for name, (piece, cut) in pieces.items():
        expected = wholes[name].view(SHAPES[name])
        assert (piece - (cut.take(expected) if cut else expected)).abs().max() <= tolerance, name


@pytest.mark.parametrize(("move", "method"), CASES)
def test_another_mesh_goes_on_as_if_nothing_had_happened(outcomes, references, move, method):
    for state, worker, pieces in (rank[move, method] for rank in outcomes):
        assert state == "done"
        same(pieces, references[method][worker])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mem_sgd", *NIGHTLY])
def test_more_methods_go_on_over_another_mesh(tmp_path, method):
    checkpoints = Checkpoints(tmp_path / "whole")
    train(Tokens(), built(method, 2), Communicator(workers=2), RunSettings(steps=STEPS), checkpoints=checkpoints)

    def member():
        on_ranks(method, tmp_path / "parts", S2, {"zero": 1}, steps=STOP)
        return on_ranks(method, tmp_path / "parts", T2, {"sequence": True})

    for _, worker, pieces in on_processes(4, member):
        same(pieces, parameters(checkpoints.load())[worker])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["diloco", "mem_sgd", "ef21"])
def test_eight_ranks_become_four(tmp_path, method):
    """In the middle of a period, and with feedback memories; then four become eight again."""
    checkpoints = Checkpoints(tmp_path / "whole")
    train(Tokens(), built(method, 2), Communicator(workers=2), RunSettings(steps=STEPS + 2), checkpoints=checkpoints)
    eight, four = {"worker": 2, "shard": 2, "tensor": 2}, {"worker": 2, "pipeline": 2}
    go_on = partial(on_ranks, method, tmp_path / "parts")
    on_processes(8, lambda: go_on(eight, {"zero": 1, "sequence": True}, steps=STOP))
    on_processes(4, lambda: go_on(four, {"micro_batches": 2}, steps=STEPS))
    for state, worker, pieces in on_processes(8, lambda: go_on(eight, {"zero": 2}, steps=STEPS + 2)):
        assert state == "done"
        same(pieces, parameters(checkpoints.load())[worker])


def test_four_ranks_become_two(outcomes, references, folder):
    for _, worker, pieces in on_processes(2, lambda: on_ranks("diloco", folder / "two", {"worker": 2}, {})):
        same(pieces, references["diloco"][worker])


def test_a_worker_that_needs_fewer_processes_has_sent_what_all_of_them_have(tmp_path):
    going = alone(tmp_path)
    sent, state = going.communicator.ledger.payload_bytes, Checkpoints(tmp_path).load()
    counted = {name.replace("rank0", "rank1"): rows for name, rows in state["tensors"].items() if "rank0" in name}
    state |= {"mesh": S2, "tensors": state["tensors"] | counted}
    read_state(going, state, going.method, going.replicas.where.shapes)[0]()
    assert going.communicator.ledger.payload_bytes == 2 * sent > 0


def test_another_number_of_workers_begins_at_their_mean(outcomes, folder):
    saved = tensors(Checkpoints(folder / "one before").load())
    mean = torch.cat([saved[f"model/{name}"].flatten(1) for name in SHAPES], 1).mean(0)
    for _, _, pieces in (rank["four"] for rank in outcomes):
        same(pieces, mean)

    task, communicator, strategy = One(), Communicator(workers=1), built("diloco", 1)
    replicas = Stacked(task.model, range(1))
    replicas.parameters.copy_(mean)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    for communicator.step in range(STOP, STEPS):
        gradient, _ = replicas.compute(task.loss, [task.batch(communicator.step, range(1))], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradient, communicator))
    for _, _, pieces in (rank["one"] for rank in outcomes):
        same(pieces, replicas.parameters[0])


def test_a_loss_scale_goes_on(tmp_path):
    def member():
        found = []
        for axis, steps in (("shard", 3), ("shard", 3), ("tensor", 3)):
            mesh, task = Mesh(**{axis: 2}), One()
            worker = on_mesh(task, mesh, precision="fp16")
            assert worker.scale is not None
            if not found:
                worker.scale.load_state_dict({"value": 64.0, "good": 5})
            strategy = fitted(methods.diloco(SGD, period=3), worker.partition, "own")
            checkpoints, communicator = Checkpoints(tmp_path), Communicator(group=mesh.group("worker"))
            train(task, strategy, communicator, RunSettings(steps=steps), worker=worker, checkpoints=checkpoints)
            found.append(worker.scale.state_dict())
        return found

    for first, *others in on_processes(2, member):
        assert first == {"value": 64.0, "good": 8}
        assert others == [first] * 2


@pytest.mark.parametrize(
    ("degrees", "given"),
    [
        (S2, {"zero": 1}),
        pytest.param({"worker": 2, "shard": 2, "tensor": 2}, {"zero": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_run_of_which_a_process_is_killed_ends_bit_by_bit_where_it_would_have(tmp_path, degrees, given):
    """At a random step, while the checkpoint of the step before may still be on its way."""
    n, when = math.prod(degrees.values()), random.randrange(1, STOP)

    def killed(step, row):
        if step == when and dist.get_rank() == when % n:
            os.kill(os.getpid(), signal.SIGKILL)

    def resumed():
        again = on_ranks("mem_sgd", tmp_path / "killed", degrees, given, every=1, steps=STOP)
        return again, on_ranks("mem_sgd", tmp_path / "whole", degrees, given, steps=STOP)

    def disturbed():
        on_ranks("mem_sgd", tmp_path / "killed", degrees, given, every=1, progress=killed, steps=STOP)

    with pytest.raises(MemberLost):
        on_processes(n, disturbed)
    assert (Checkpoints(tmp_path / "killed").step() or 0) < STOP
    for again, whole in on_processes(n, resumed):
        pairs = zip(again[2].values(), whole[2].values(), strict=True)
        assert all(torch.equal(a, b) for (a, _), (b, _) in pairs), when


def alone(folder: Path, method: str = "diloco", width: int = 3, steps: int = 4, run: str = "", workers: int = 2) -> Run:
    """A run in this process, gone on with to a step and saved there."""
    task, communicator = Quadratic(workers, dimension=width), Communicator(workers=workers)
    strategy, replicas = METHODS[method](workers), Stacked(task.model, range(workers))
    going, checkpoints = Run.start(replicas, strategy, communicator), SharedCheckpoints(Checkpoints(folder, run=run))
    checkpoints.restore(going)
    for communicator.step in range(going.step, steps):
        gradient = going.gradient(task.loss, going.draw(task))
        going.finish_step(strategy.step(replicas.parameters, gradient, communicator))
        checkpoints.keep(going)
    checkpoints.wait()
    return going


def test_a_run_goes_on_and_keeps_the_last_two_checkpoints(tmp_path):
    whole = alone(tmp_path / "whole", steps=6)
    alone(tmp_path / "parts", steps=4)
    for left in ("step-3.1.pt", ".step-3.2.pt.draft"):  # by processes that were killed
        (tmp_path / "parts" / left).touch()
    (tmp_path / "parts" / "best-step-3.pt").touch()  # by nobody here
    resumed = alone(tmp_path / "parts", steps=6)
    assert torch.equal(whole.replicas.parameters, resumed.replicas.parameters)
    assert torch.equal(whole.losses, resumed.losses)
    assert (whole.samples, whole.counted) == (resumed.samples, resumed.counted)
    assert whole.communicator.ledger.payload_bytes == resumed.communicator.ledger.payload_bytes
    assert steps(tmp_path / "parts") == [6, 5]
    assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["best-step-3.pt", "latest.pt", "previous.pt"]


@pytest.mark.parametrize("kind", [Checkpoints, lambda folder: SharedCheckpoints(Checkpoints(folder))])
def test_what_is_written_while_a_run_goes_on_is_the_state_at_which_it_was_begun(tmp_path, monkeypatch, kind):
    going, moved = alone(tmp_path, "choco"), Event()  # whose memories are written over
    checkpoints, before = kind(tmp_path), tensors(Checkpoints(tmp_path).load())
    monkeypatch.setattr(
        "commeff.training.checkpoint.write_document", lambda *given: moved.wait(60) and write_document(*given)
    )
    checkpoints.keep(going)
    going.finish_step(going.strategy.step(going.replicas.parameters, going.replicas.parameters, going.communicator))
    moved.set()
    checkpoints.wait()
    after = tensors(Checkpoints(tmp_path).load())
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def test_memories_that_begin_anew_are_told_of(tmp_path, caplog):
    mean = alone(tmp_path).replicas.parameters.mean(0)
    with caplog.at_level(logging.WARNING):
        more = alone(tmp_path, workers=3)
    assert "is of 2 workers, the run of 3: all begin at the mean of its parameters" in caplog.text
    assert more.replicas.parameters.sub(mean).abs().max() <= 1e-15
    assert more.samples == alone(tmp_path / "other").samples


def steps(folder: Path) -> list[int]:
    """Of the last checkpoint and the one before it."""
    paths = (folder / "latest.pt", folder / "previous.pt")
    return [read_document(path)["state"]["step"] for path in paths if path.exists()]


def test_an_older_form_is_refused_in_a_sentence(tmp_path):
    """Of several processes: a folder a step, and files that name two of them."""
    (tmp_path / "latest").write_text("step-4")
    with pytest.raises(CheckpointRefused, match=r"latest must have format 4, got 3: another version .*; delete"):
        alone(tmp_path)


def test_an_older_form_is_refused_at_all_processes_whichever_of_them_sees_it(tmp_path):
    def member():
        folder = tmp_path / str(dist.get_rank())
        folder.mkdir()
        if not dist.get_rank():
            (folder / "latest").write_text("step-4")
        with pytest.raises(CheckpointRefused, match="latest must have format 4, got 3"):
            SharedCheckpoints(Checkpoints(folder)).check()

    on_processes(2, member)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": "mine"}, "must be of the run mine, got one of a run without a name"),
        ({"width": 4}, r"must be of this run's model, in which \S+ is \(4,\), got one where it is \(3,\)"),
        ({"method": "mem_sgd"}, r"must be of this run's method, in which .*Average.*, got one where .*Outer"),
    ],
)
def test_another_runs_checkpoint_is_refused(tmp_path, given, words):
    alone(tmp_path)
    with pytest.raises(CheckpointRefused, match=f"latest.pt {words}.*; delete {tmp_path} to start anew") as refusal:
        alone(tmp_path, **given)
    assert "\n" not in str(refusal.value)


def test_whose_a_checkpoint_is_is_seen_before_anything_starts(tmp_path):
    alone(tmp_path, run="mine", steps=2)
    Checkpoints(tmp_path, run="mine").check()
    with pytest.raises(CheckpointRefused, match=r"latest\.pt must be of the run other, got one of mine; delete"):
        Checkpoints(tmp_path, run="other").check()


def test_the_mean_model_of_a_checkpoint_is_that_of_its_workers(tmp_path):
    replicas = alone(tmp_path, "choco").replicas
    state = Checkpoints(tmp_path).load()
    mean = mean_model(state, replicas.where)
    assert state["step"] == 4
    assert (replicas.parameters[0] - mean).abs().max() > 1e-4
    assert (replicas.parameters.mean(0) - mean).abs().max() <= 1e-15


def test_a_full_disk_is_said_and_the_last_checkpoint_stays(tmp_path, monkeypatch):
    alone(tmp_path, steps=2)

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("commeff.training.checkpoint.write_document", full)
    with pytest.raises(OSError, match="No space left"):
        alone(tmp_path, steps=3)
    monkeypatch.undo()
    assert steps(tmp_path) == [2, 1]
    assert alone(tmp_path, steps=3).step == 3


def test_what_one_process_cannot_write_is_an_error_of_all_and_the_last_checkpoint_stays(tmp_path):
    def member():
        on_ranks("diloco", tmp_path, {"worker": 2}, {}, steps=2)
        if dist.get_rank():
            (tmp_path / ".step-4.1.pt.draft").symlink_to("/dev/full")
        dist.barrier()
        with pytest.raises(OSError, match="is a link") as error:
            on_ranks("diloco", tmp_path, {"worker": 2}, {}, steps=4)
        return str(error.value)

    first, second = on_processes(2, member)
    assert re.fullmatch("process 1 could not write its part of a checkpoint: OSError: .*is a link.*", first)
    assert "could not write" not in second
    assert steps(tmp_path) == [2]


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: os.truncate(path, 500)])
def test_a_checkpoint_of_which_a_part_is_damaged_is_passed_over(tmp_path, harm):
    def member():
        found = on_ranks("mem_sgd", tmp_path, {"worker": 2}, {}, every=1, steps=4)
        dist.barrier()
        if not dist.get_rank():
            harm(tmp_path / "step-4.1.pt")
        dist.barrier()
        return found, on_ranks("mem_sgd", tmp_path, {"worker": 2}, {}, every=1, steps=4)

    for (_, _, whole), (_, _, again) in on_processes(2, member):
        assert all(torch.equal(whole[name][0], again[name][0]) for name in whole)
    assert steps(tmp_path) == [4, 4]
    assert not (tmp_path / "step-3.1.pt").exists()
