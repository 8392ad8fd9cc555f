"""What processes tell each other arrives as it was, and nothing of it is pickled."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from commeff.communicator.wire.group import from_first
from commeff.communicator.wire.records import _place, gather_states, gather_tensors, share_json
from commeff.communicator.wire.transport import Transport
from tests.laws.processes import on_processes
from tests.laws.test_resume import same

ROOT = Path(__file__).parents[3]
OBJECTS = re.compile(r"\b(gather|scatter|broadcast|send|recv|all_gather)_object(_list)?\b")
PICKLES = re.compile(r"\bpickle\.(loads?|dumps?|Unpickler)\b|\btorch\.load\((?![^\n]*weights_only=True)")
MAY = {  # who reads pickles, and why nobody else can have written them
    "experiments/run/crew.py": "pipes without a name between a process and the forks that it has made",
    "experiments/tasks/cifar10.py": "CIFAR-10 is published so; its reader builds arrays and text alone",
}


def test_values_of_all_sizes_are_shared() -> None:
    def run() -> list[Any]:
        rank = dist.get_rank()
        return share_json({"rank": rank, "text": "ü" * 1000 * rank, "list": [0.1, None, True]})

    expected = [{"rank": rank, "text": "ü" * 1000 * rank, "list": [0.1, None, True]} for rank in range(3)]
    assert on_processes(3, run) == [expected] * 3


def test_a_group_without_a_named_backend_is_known_by_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """`init_process_group()` alone: torch's `get_backend` is "undefined" then."""
    monkeypatch.setattr(dist, "get_backend", lambda group=None: "undefined")
    monkeypatch.setattr(dist, "get_rank", lambda group=None: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    for config, place in (("cuda:nccl", "cuda:1"), ("cpu:gloo,cuda:nccl", "cpu")):
        monkeypatch.setattr(dist, "get_backend_config", lambda group=None, config=config: config)
        assert str(_place(None)) == place
        assert Transport(alone=False)._nccl


def state() -> dict[str, Any]:
    tensors = [torch.arange(6.0).view(2, 3).T, torch.tensor(True), torch.empty(0, 4), torch.ones(1).bfloat16()]
    tensors.append(torch.tensor(2.0).expand(1))  # of stride 0
    return {"a": tensors, "b": {2: (1, "x", None)}, "c": Counter([5, 5]), "d": [float("inf"), 1e-320, 2**70]}


def test_a_state_of_the_first_is_everybodys() -> None:
    received = on_processes(3, lambda: from_first(state))
    for mine in received:
        mine["c"] = Counter(mine["c"])
        same(mine, state())
    assert on_processes(2, lambda: from_first(lambda: None)) == [None, None]


def test_states_are_gathered_as_they_are() -> None:
    def run() -> Any:
        rank = dist.get_rank()
        return gather_states({"rank": rank, "more": [torch.full((rank, 2), float(rank)), {rank: (None, "x" * rank)}]})

    first, second = on_processes(2, run)
    assert second is None
    for rank, mine in enumerate(first):
        same(mine, {"rank": rank, "more": [torch.full((rank, 2), float(rank)), {rank: (None, "x" * rank)}]})


def test_tensors_are_gathered_as_they_are() -> None:
    def run() -> list[list[torch.Tensor]] | None:
        rank = dist.get_rank()
        return gather_tensors([torch.full((rank, 2), float(rank)), torch.tensor([rank > 0])][: 1 + rank])

    first, *others = on_processes(3, run)
    assert others == [None, None]
    for rank, tensors in enumerate(first):
        same(tensors, [torch.full((rank, 2), float(rank)), torch.tensor([rank > 0])][: 1 + rank])


@pytest.mark.parametrize("room", ["commeff", "compressors", "topologies", "experiments"])
def test_nothing_is_pickled_between_processes(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        assert not OBJECTS.search(text), f"{name} sends objects, which torch pickles: use share_json"
        assert name in MAY or not PICKLES.search(text), f"{name} reads pickles"
