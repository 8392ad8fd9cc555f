"""Checkpoints are data: nothing in them is executed, and a run goes on from its own only."""

from __future__ import annotations

import errno
import os
import pickle
import re
import signal
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from commeff import Communicator, Layout, Strategy, methods, topologies
from commeff.compressors import TopK
from commeff.experiments.tasks import Quadratic
from commeff.training.checkpoint import Checkpoints
from commeff.training.documents import FORMAT, CheckpointRefused, write_document
from commeff.training.identity import describe, run_identity
from commeff.training.settings import RunSettings
from commeff.training.trainer import train
from commeff.transforms import bucketed
from tests import owned
from tests.states import tensors

SGD = partial(torch.optim.SGD, lr=0.1)


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def psgd(lr: float = 0.1) -> Strategy:
    return methods.psgd(partial(torch.optim.SGD, lr=lr))


def run(folder: Path, strategy: Strategy, steps: int = 4, workers: int = 2, seed: int = 0) -> dict[str, Any]:
    task = Quadratic(workers, dimension=3)
    communicator = Communicator(workers=workers, seed=seed)
    return train(task, strategy, communicator, RunSettings(steps=steps), checkpoints=Checkpoints(folder))


@pytest.mark.parametrize("kept", [True, False], ids=["with one before it", "alone"])
def test_nothing_in_a_checkpoint_is_executed(kept: bool, tmp_path: Path) -> None:
    checkpoints, sentinel = Checkpoints(tmp_path), tmp_path / "executed"
    if kept:
        checkpoints.save({"step": 1})
        checkpoints.save({"step": 2})
    torch.save({"format": FORMAT, "run": "", "method": "", "state": {"step": Harmful(sentinel)}}, checkpoints.path)
    with pytest.raises(CheckpointRefused, match="holds more than tensors, numbers and text"):
        checkpoints.load()
    checkpoints.path.write_bytes(pickle.dumps(Harmful(sentinel)))
    assert (checkpoints.load() == {"step": 1}) if kept else _refuses(checkpoints.load)
    assert not sentinel.exists()


def _refuses(load: Callable[[], Any]) -> bool:
    with pytest.raises(CheckpointRefused, match="cannot be read"):
        load()
    return True


def test_a_small_file_cannot_fill_the_memory(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with zipfile.ZipFile(checkpoints.path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**6))
    with pytest.raises(CheckpointRefused, match="is compressed"):
        checkpoints.load()


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"x": torch.full((100,), 0.5)})
    content = checkpoints.path.read_bytes()
    numbers = torch.full((100,), 0.5).numpy().tobytes()
    assert content.count(numbers) == 1
    checkpoints.path.write_bytes(content.replace(numbers, numbers[:-1] + b"@"))
    with pytest.raises(CheckpointRefused, match=r"checksum of .* is wrong"):
        checkpoints.load()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"step": 3, "replicas": {}}, "must have format 4, got 1: another version of commeff wrote it"),
        ({"format": 3, "run": "", "method": "", "state": {"step": 3}}, "must have format 4, got 3: another version"),
        ({"format": 99, "run": "", "method": "", "state": {}}, "must have format 4, got 99"),
        ([1, 2], "must have format 4, got None"),
        ({"format": FORMAT, "run": 7, "method": "", "state": {}}, "must hold a run, its method and its state"),
        ({"format": FORMAT, "run": "", "method": "", "state": []}, "must hold a run, its method and its state"),
    ],
)
def test_other_formats_are_refused(content: Any, reason: str, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"step": 1})
    checkpoints.save({"step": 2})
    torch.save(content, checkpoints.path)
    for read in (checkpoints.load, checkpoints.check):
        with pytest.raises(CheckpointRefused, match=rf"latest\.pt {reason}.*; delete {tmp_path} to start anew"):
            read()


def test_another_runs_checkpoint_is_refused_also_where_ones_own_is_damaged(tmp_path: Path) -> None:
    own, other = (Checkpoints(tmp_path, run=name) for name in ("own", "other"))
    other.save({"step": 1})
    own.save({"step": 2})
    assert own.load() == {"step": 2}
    own.path.write_bytes(own.path.read_bytes()[:-50])
    for read in (own.load, own.check):
        with pytest.raises(CheckpointRefused, match=r"previous\.pt must be of the run own, got one of other; delete"):
            read()
    assert other.load() == {"step": 1}
    assert Checkpoints(tmp_path).load() == {"step": 1}, "who only looks may read any"


OTHERS: dict[str, Callable[[Path], Any]] = {
    "method": lambda folder: run(folder, methods.dsgd(SGD, topologies.ring(2)), 8),
    "setting": lambda folder: run(folder, psgd(0.2), 8),
    "workers": lambda folder: run(folder, psgd(), 8, workers=3),
    "seed": lambda folder: run(folder, psgd(), 8, seed=1),
}


@pytest.mark.parametrize("other", OTHERS)
def test_train_goes_on_from_its_own_run_only(other: str, tmp_path: Path) -> None:
    run(tmp_path, psgd())
    with pytest.raises(CheckpointRefused, match=r"must be of the run Strategy\(.* with "):
        OTHERS[other](tmp_path)
    assert run(tmp_path, bucketed(psgd(), 1e-3), 8)["steps"] == 8, "buckets do not make another run"


def test_methods_are_told_apart_by_what_they_were_given() -> None:
    graphs = [topologies.ring(4), topologies.lazy(topologies.ring(4)), topologies.ring(5), topologies.complete(4)]
    texts = [describe(methods.dsgd(SGD, graph)) for graph in graphs]
    texts += [describe(methods.compressed_sgd(SGD, TopK(k=k))) for k in (1, 2)]
    texts += [describe(methods.psgd(partial(torch.optim.SGD, lr=0.1, momentum=m))) for m in (0.0, 0.9)]
    texts += [describe(methods.ad_psgd(SGD, topologies.ring(4), one_sided=side)) for side in (False, True)]
    assert len({*texts}) == len(texts)
    assert texts[0] == describe(methods.dsgd(SGD, topologies.ring(4)))
    assert not any("0x" in text for text in texts), "no addresses"


def test_what_is_saved_are_plain_types(tmp_path: Path) -> None:
    state = {"a": np.float64(0.5), "b": (np.int64(3), True, None), "c": Counter([2, 2, 5]), "d": torch.ones(2)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state)
    loaded = checkpoints.load()
    assert loaded is not None
    assert torch.equal(loaded.pop("d"), state.pop("d"))
    assert loaded == {"a": 0.5, "b": (3, True, None), "c": {2: 2, 5: 1}}
    assert [type(value) for value in (loaded["a"], loaded["b"][0], loaded["c"])] == [float, int, dict]
    with pytest.raises(TypeError, match="state/e/1 must be a tensor, number or text, got set"):
        checkpoints.save({"e": [1, {2}]})
    assert checkpoints.load() is not None, "the last one stays"


def test_a_state_of_another_form_is_refused(tmp_path: Path) -> None:
    run(tmp_path, psgd())
    checkpoints = Checkpoints(tmp_path)
    whole = torch.load(checkpoints.path, weights_only=True)
    state, tensors = whole["state"], whole["state"]["tensors"]
    for wrong in (
        {},
        {"step": "x"} | {name: value for name, value in state.items() if name != "step"},
        {name: value for name, value in state.items() if name != "tensors"},
        state | {"strategy": {}},
        state | {"tensors": tensors | {"rank0/losses": [[3], [[[0], torch.zeros(3)]]]}},
        state | {"tensors": tensors | {"rank0/losses": [[2], [[[0], "x"]]]}},
        state | {"tensors": {name: boxes for name, boxes in tensors.items() if name != "rank0/ledger"}},
        state | {"row": [1]},
    ):
        torch.save(whole | {"state": wrong}, checkpoints.path)
        with pytest.raises(CheckpointRefused, match=rf"must hold the state of this run, .*; delete {tmp_path} to"):
            run(tmp_path, psgd(), 8)
    for more in (
        {"strategy": state["strategy"] | {"gradients/age": 3}},
        {"tensors": tensors | {"gradients/age": tensors["rank0/losses"]}},
    ):
        torch.save(whole | {"state": state | more}, checkpoints.path)
        with pytest.raises(CheckpointRefused, match=r"must not hold gradients/age: it is another method's state"):
            run(tmp_path, psgd(), 8)
    torch.save(whole, checkpoints.path)
    assert run(tmp_path, psgd(), 8)["steps"] == 8


def test_a_run_is_told_apart_by_all_that_decides_it() -> None:
    flat, other = Layout.of([("w", (2, 3))]), Layout.of([("w", (3, 2))])
    one = run_identity(psgd(), 2, 0, flat)
    others = [(psgd(), 3, 0, flat), (psgd(), 2, 1, flat), (psgd(), 2, 0, other), (psgd(0.2), 2, 0, flat)]
    assert len({one, *(run_identity(*each) for each in others)}) == 1 + len(others)
    ring, all_to_all = topologies.ring(4).at(0), topologies.complete(4).at(0)
    graphs = [topologies.from_matrices(list(each)) for each in ([ring], [ring, all_to_all], [ring, ring, all_to_all])]
    graphs.append(topologies.lazy(topologies.ring(4)))
    assert len({describe(methods.dsgd(SGD, graph)) for graph in graphs}) == len(graphs)


def test_what_a_method_has_done_does_not_change_its_words() -> None:
    for make in (
        lambda: methods.choco(partial(SGD, momentum=0.9), topologies.ring(2), TopK(k=1)),
        lambda: methods.diloco(SGD, period=2),
    ):
        strategy, communicator = make(), Communicator(workers=2)
        before, x = describe(strategy), torch.ones(2, 3)
        strategy.start(x, Layout.flat(3), communicator)
        for communicator.step in range(3):
            x = strategy.step(x, torch.ones(2, 3), communicator)
        assert describe(strategy) == before


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_fragments_inside_a_tensor_of_which_not_all_have_begun(stop: int, tmp_path: Path) -> None:
    """Their outer optimizers have memories of some columns of the tensor, and none of others yet."""

    def go(folder: Path, stop: int = 99) -> dict[str, Any]:
        strategy = methods.streaming_diloco(SGD, period=4, fragments=4)
        task, communicator, at = Quadratic(2, dimension=24, columns=4), Communicator(workers=2), iter(range(99))
        settings = RunSettings(steps=9, evaluate_every=3)
        checkpoints = Checkpoints(folder, every=1)
        summary = train(
            task, strategy, communicator, settings, checkpoints=checkpoints, should_stop=lambda: next(at) == stop
        )
        return {name: value for name, value in summary.items() if "seconds" not in name}

    whole = go(tmp_path / "whole")
    assert go(tmp_path / "stopped", stop) == {"state": "stopped", "steps": stop}
    assert go(tmp_path / "stopped") == whole


Write = Callable[..., None]


def go(folder: Path, write: Write = write_document, at: Callable[[int], None] = lambda step: None) -> dict[str, Any]:
    """A run of eight steps with a checkpoint after every second; `at` is called after each step, before it."""
    strategy = methods.choco(partial(SGD, momentum=0.9), topologies.ring(2), TopK(k=1))
    task, communicator, checkpoints = Quadratic(2, dimension=3), Communicator(workers=2), Checkpoints(folder, every=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("commeff.training.checkpoint.write_document", write)
        return train(
            task,
            strategy,
            communicator,
            RunSettings(steps=8),
            checkpoints=checkpoints,
            progress=lambda step, row: at(step),
        )


def ends_as_if_nothing_had_happened(folder: Path, step: int) -> bool:
    """A run that has a checkpoint of this step only, or one before it."""
    assert Checkpoints(folder).step() == step
    assert go(folder)["steps"] == go(folder / "whole")["steps"] == 8
    after, whole = (tensors(Checkpoints(place).load()) for place in (folder, folder / "whole"))
    return after.keys() == whole.keys() and all(torch.equal(after[name], whole[name]) for name in whole)


def test_a_run_that_is_killed_while_it_writes_and_goes_on_ends_where_it_would_have(tmp_path: Path) -> None:
    moved = threading.Event()

    def killed(path: Path, state: dict[str, Any], *whose: str) -> None:
        if state["step"] < 4:
            return write_document(path, state, *whose)
        path.write_bytes(b"half of it")
        assert moved.wait(owned.PATIENCE)
        os.kill(os.getpid(), signal.SIGKILL)

    process = owned.process(go, (tmp_path, killed, lambda step: moved.set() if step == 5 else None))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert ends_as_if_nothing_had_happened(tmp_path, 2)


@pytest.mark.parametrize(("fault", "end"), [(4, 6), (8, 8)])
def test_what_cannot_be_written_ends_a_run_at_the_next_checkpoint_or_its_end(
    fault: int, end: int, tmp_path: Path
) -> None:
    threads, taken = threading.enumerate(), list[int]()

    def full(path: Path, state: dict[str, Any], *whose: str) -> None:
        if state["step"] == fault:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_document(path, state, *whose)

    with pytest.raises(OSError, match=r"No space left on device: \S*latest\.pt"):
        go(tmp_path, full, taken.append)
    assert taken[-1] == end
    assert threading.enumerate() == threads
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest.pt", "previous.pt"][: fault // 4]
    assert ends_as_if_nothing_had_happened(tmp_path, fault - 2)


def test_an_interrupted_run_leaves_neither_half_a_checkpoint_nor_a_thread(tmp_path: Path) -> None:
    threads, interrupted = threading.enumerate(), threading.Event()

    def slow(*given: Any) -> None:
        assert interrupted.wait(owned.PATIENCE)
        write_document(*given)

    def interrupt(step: int) -> None:
        if step == 3:
            interrupted.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, slow, interrupt)
    assert threading.enumerate() == threads
    assert [path.name for path in tmp_path.iterdir()] == ["latest.pt"]
    assert ends_as_if_nothing_had_happened(tmp_path, 2)


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_waits_for_what_is_being_written(
    fails: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    threads, interrupted = threading.enumerate(), threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def slow(path: Path, state: dict[str, Any], *whose: str) -> None:
        if state["step"] == 8:
            owned.until(waits, "the end of the run")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert interrupted.wait(owned.PATIENCE)
            time.sleep(owned.PAUSE)  # in which a run that does not wait goes on
            if fails:
                raise OSError("the disk is gone")
        write_document(path, state, *whose)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path, slow)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (Checkpoints(tmp_path).step(), threading.enumerate()) == (6 if fails else 8, threads)
    assert ("could not be written: the disk is gone" in caplog.text) == fails


def waits() -> bool:
    """Whether the main thread waits for a checkpoint."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return any(inner.f_code is Checkpoints.wait.__code__ for inner, _ in walk_stack(frame))


def test_a_run_that_fails_tells_of_a_checkpoint_that_could_not_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(step: int) -> None:
        if step == 3:
            raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        go(tmp_path, full, fail)
    assert re.search(r"could not be written: .*No space left on device: \S*latest\.pt", caplog.text)
