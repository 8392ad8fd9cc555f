"""The engine law: n workers in one process, in n processes, or some in each, run the same method to 1e-12, with equal
state and ledger.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.distributed as dist

import topologies
from commeff import Chain, Communicator, Local, Strategy, laws, methods
from commeff.transforms import Average, ThroughServer
from compressors import QSGD, Dense, Natural, RandomK, ScaledSign, TopK
from tests.laws.processes import on_processes

N = laws.WORKERS
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
RING, EXPONENTIAL = topologies.ring(N), topologies.exponential(N)

METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "compressed_sgd shared random-k": lambda: methods.compressed_sgd(SGD, RandomK(k=3, shared=True)),
    "compressed_sgd natural": lambda: methods.compressed_sgd(SGD, Natural()),
    "mem_sgd top-k": lambda: methods.mem_sgd(SGD, TopK(k=3)),
    "mem_sgd sign": lambda: methods.mem_sgd(SGD, ScaledSign()),
    "mem_sgd random-k": lambda: methods.mem_sgd(SGD, RandomK(k=3)),
    "server after averaging": lambda: Strategy(Local(SGD), Chain(Average(), ThroughServer(Dense(), Dense()))),
    "double_squeeze qsgd": lambda: methods.double_squeeze(SGD, QSGD(levels=3)),
    "ef21 top-k": lambda: methods.ef21(SGD, TopK(k=3)),
    "dsgd ring": lambda: methods.dsgd(SGD, RING),
    "dsgd awc exponential": lambda: methods.dsgd(SGD, EXPONENTIAL, order="awc"),
    "dsgd one-peer": lambda: methods.dsgd(SGD, topologies.one_peer_exponential(N)),
    "dsgd star": lambda: methods.dsgd(SGD, topologies.star(N)),
    "d2": lambda: methods.d2(SGD, topologies.lazy(RING)),
    "gradient_tracking": lambda: methods.gradient_tracking(SGD, RING),
    "gossip_pga": lambda: methods.gossip_pga(SGD, RING, period=3),
    "local_sgd": lambda: methods.local_sgd(SGD, period=2),
    "slowmo": lambda: methods.slowmo(SGD, period=2),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "choco top-k": lambda: methods.choco(SGD, RING, TopK(k=3)),
    "choco sign B": lambda: methods.choco(SGD, EXPONENTIAL, ScaledSign(), order="B"),
    "power_sgd": lambda: methods.power_sgd(SGD, rank=1),
}


def merged(states):
    """One state from those of all processes: rows one after another; what is shared must be equal everywhere."""

    def rows(values):
        if isinstance(values[0], dict):
            return {name: rows([value[name] for value in values]) for name in values[0]}
        return torch.cat(values)

    for state in states[1:]:
        same(state["shared"], states[0]["shared"])
    return {
        "rows": {name: rows([state["rows"][name] for state in states]) for name in states[0]["rows"]},
        "shared": states[0]["shared"],
        "parts": {name: merged([state["parts"][name] for state in states]) for name in states[0]["parts"]},
    }


def same(left, right):
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for name in left:
            same(left[name], right[name])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right, strict=True):
            same(a, b)
    elif isinstance(left, torch.Tensor):
        assert left.shape == right.shape
        assert not left.numel() or (left.double() - right.double()).abs().max() <= 1e-12
    else:
        assert left == right


def run_all():
    """Every method on this engine: trajectory, state, ledger rows, bytes handed to the transport."""
    results = {}
    for name, build in METHODS.items():
        communicator = Communicator(workers=N, seed=3, group=dist.group.WORLD if dist.is_initialized() else None)
        strategy = build()
        trajectory, _ = laws.run(strategy, communicator=communicator)
        results[name] = trajectory, strategy.state_dict(), communicator.ledger.rows, dict(communicator.transport.sent)
    return results


@pytest.fixture(scope="module")
def engines():
    return {"1x4": [run_all()], "2x2": on_processes(2, run_all), "4x1": on_processes(4, run_all)}


@pytest.mark.parametrize("engine", ["2x2", "4x1"])
@pytest.mark.parametrize("name", METHODS)
def test_engines_agree(engines, engine, name):
    (one,), many = engines["1x4"], engines[engine]
    trajectory = torch.cat([result[name][0] for result in many], dim=1)
    assert (trajectory - one[name][0]).abs().max() <= 1e-12
    same(merged([result[name][1] for result in many]), one[name][1])
    for result in many:
        assert result[name][2] == one[name][2], "the ledger depends on the engine"
    assert not one[name][3], "rows hosted together cost nothing on the transport"


@pytest.mark.parametrize("name", METHODS)
def test_the_transport_carries_what_the_ledger_says(engines, name):
    """At one worker per process: what was handed over, times what the collective does with it, is the ledger's wire."""
    many = engines["4x1"]
    billed: dict[str, float] = {}
    for row in many[0][name][2]:
        billed[row.kind] = billed.get(row.kind, 0) + row.wire_bytes
    factor = {"all_reduce": 2 * (N - 1) / N, "all_gather": N - 1, "mix": 1, "to_server": 1, "from_server": 1}
    handed: dict[str, float] = {}
    for result in many:
        for kind, count in result[name][3].items():
            handed[kind] = handed.get(kind, 0) + factor[kind] * count / N
    if "to_server" in billed:
        # the server shares a process with worker 0, whose own messages stay there
        billed |= {kind: billed[kind] * (N - 1) / N for kind in ("to_server", "from_server")}
    assert handed == pytest.approx(billed, rel=1e-12)
