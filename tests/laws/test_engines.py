"""The engine law: n workers in one process, in n processes, or some in each, run the same method to 1e-12, with equal
state and ledger.
"""

from __future__ import annotations

import inspect
from functools import cache, partial

import networkx
import pytest
import torch
import torch.distributed as dist

from commeff import Communicator, Local, Strategy, laws, methods, topologies
from commeff.boxes import Boxes
from commeff.communicator.collectives import COLLECTIVES
from commeff.communicator.wire import shared_memory as shared
from commeff.compressors import (
    QSGD,
    Blockwise,
    Coded,
    Composed,
    Dense,
    Int8,
    Natural,
    RandomK,
    ScaledSign,
    Threshold,
    TopK,
)
from commeff.core import Chain, saving
from commeff.transforms import (
    Average,
    Choco,
    Delayed,
    Doubling,
    Exchange,
    Gossip,
    Thinning,
    ThroughServer,
    attacked,
    bucketed,
    clipped,
)
from tests.laws.processes import on_processes

N = laws.WORKERS
SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.5)
RING, EXPONENTIAL = topologies.ring(N), topologies.exponential(N)
DIRECTED = topologies.from_graph(networkx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3), (2, 0)]))
PAIR = topologies.from_matrices([[[0.7, 0.3], [0.3, 0.7]], [[1, 0], [0, 1]]])

METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "compressed_sgd shared random-k": lambda: methods.compressed_sgd(SGD, RandomK(k=3, shared=True)),
    "compressed_sgd natural": lambda: methods.compressed_sgd(SGD, Natural()),
    "mem_sgd top-k": lambda: methods.mem_sgd(SGD, TopK(k=3)),
    "mem_sgd sign": lambda: methods.mem_sgd(SGD, ScaledSign()),
    "mem_sgd random-k": lambda: methods.mem_sgd(SGD, RandomK(k=3)),
    "mem_sgd threshold": lambda: methods.mem_sgd(SGD, Threshold(0.05)),
    "delayed threshold": lambda: Strategy(Local(SGD), Delayed(Average(Blockwise(Threshold(0.5), 7)), 1)),
    "double_squeeze threshold": lambda: methods.double_squeeze(SGD, Threshold(0.05)),
    "compressed_sgd coded": lambda: methods.compressed_sgd(SGD, Coded(QSGD(2))),
    "choco threshold": lambda: methods.choco(SGD, RING, Threshold(0.1)),
    "server after averaging": lambda: Strategy(Local(SGD), Chain(Average(), ThroughServer(Dense(), Dense()))),
    "double_squeeze qsgd": lambda: methods.double_squeeze(SGD, QSGD(levels=3)),
    "double_squeeze sharded": lambda: methods.double_squeeze(SGD, TopK(k=1), server="sharded"),
    "neolithic": lambda: methods.neolithic(SGD, TopK(k=2), rounds=2),
    "one_bit_adam": lambda: methods.one_bit_adam(SGD, warmup=2),
    "one_bit_adam sharded": lambda: methods.one_bit_adam(SGD, TopK(k=1), warmup=2, server="sharded"),
    "zero_one_adam": lambda: methods.zero_one_adam(
        partial(SGD, momentum=0), updates=Thinning(2, 1), meetings=Doubling(1, 2)
    ),
    "neolithic sharded": lambda: methods.neolithic(SGD, ScaledSign(), server="sharded"),
    "ef21_sgdm": lambda: methods.ef21_sgdm(SGD, ScaledSign(), eta=0.3),
    "econtrol": lambda: methods.econtrol(SGD, TopK(k=3), eta=0.2),
    "deep_squeeze one-peer": lambda: methods.deep_squeeze(SGD, topologies.one_peer_exponential(N), TopK(k=9)),
    "dcd_psgd": lambda: methods.dcd_psgd(SGD, RING, Int8(block=5)),
    "ecd_psgd": lambda: methods.ecd_psgd(SGD, EXPONENTIAL, Int8(block=5)),
    "qsparse_local_sgd": lambda: methods.qsparse_local_sgd(SGD, Composed(QSGD(3), TopK(k=4)), period=2),
    "ef21 top-k": lambda: methods.ef21(SGD, TopK(k=3)),
    "demo": lambda: methods.demo(SGD, k=2, chunk=3, beta=0.9),
    "demo striding": lambda: methods.demo(SGD, "striding", ratio=0.2, beta=0.9),
    "demo random": lambda: methods.demo(SGD, "random", ratio=0.25, beta=0.9, sign=False),
    "marina": lambda: methods.marina(SGD, Natural(), probability=0.4),
    "marina shared random-k": lambda: methods.marina(SGD, RandomK(k=3, shared=True), probability=0.4),
    "lag": lambda: methods.lag(SGD, threshold=0.02, memory=2),
    "lag server": lambda: methods.lag(SGD, rule="server", threshold=0.1, memory=2),
    "lasg": lambda: methods.lasg(SGD, threshold=0.02, memory=2, longest=3),
    "dsgd ring": lambda: methods.dsgd(SGD, RING),
    "dsgd awc exponential": lambda: methods.dsgd(SGD, EXPONENTIAL, order="awc"),
    "dsgd one-peer": lambda: methods.dsgd(SGD, topologies.one_peer_exponential(N)),
    "dsgd star": lambda: methods.dsgd(SGD, topologies.star(N)),
    "dsgd directed": lambda: methods.dsgd(SGD, topologies.od_equidyn(N, eta=0.5, seed=1)),
    "hierarchical_dsgd of 2 nodes": lambda: methods.hierarchical_dsgd(SGD, PAIR),
    "hierarchical_dsgd of 4 nodes": lambda: methods.hierarchical_dsgd(SGD, RING),
    "hierarchical_dsgd of 1 node": lambda: methods.hierarchical_dsgd(SGD, topologies.complete(1)),
    "d2": lambda: methods.d2(SGD, topologies.lazy(RING)),
    "gradient_tracking": lambda: methods.gradient_tracking(SGD, RING),
    "gradient_tracking awc": lambda: methods.gradient_tracking(SGD, RING, order="awc"),
    "push_diging": lambda: methods.push_diging(SGD, DIRECTED),
    "gossip_pga": lambda: methods.gossip_pga(SGD, RING, period=3),
    "gossip_aga": lambda: methods.gossip_aga(SGD, RING, period=2, warmup=2),
    "ada_comm": lambda: methods.ada_comm(SGD, period=3, interval=2),
    "local_sgd": lambda: methods.local_sgd(SGD, period=2),
    "dasgd": lambda: methods.dasgd(SGD, period=2, delay=1),
    "delayed gossip": lambda: Strategy(Local(SGD), parameters=Delayed(Choco(RING, ScaledSign(), 0.3), 2)),
    "slowmo": lambda: methods.slowmo(SGD, period=2),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "choco top-k": lambda: methods.choco(SGD, RING, TopK(k=3)),
    "choco sign B": lambda: methods.choco(SGD, EXPONENTIAL, ScaledSign(), order="B"),
    "power_sgd": lambda: methods.power_sgd(SGD, rank=1),
    "diana": lambda: methods.diana(SGD, Natural()),
    "diana random-k": lambda: methods.diana(SGD, RandomK(k=3, shared=True), alpha=0.2),
    "dmsgd": lambda: methods.dmsgd(SGD, RING),
    "decentlam": lambda: methods.decentlam(SGD, EXPONENTIAL),
    "qg_dsgdm": lambda: methods.qg_dsgdm(SGD, topologies.one_peer_exponential(N), nesterov=True),
    "exact_diffusion": lambda: methods.exact_diffusion(SGD, RING),
    "sgp": lambda: methods.sgp(SGD, DIRECTED),
    "post_local_sgd": lambda: methods.post_local_sgd(SGD, period=2, begin=3),
    "fedopt": lambda: methods.fedopt(SGD, period=2),
    "fedprox": lambda: methods.fedprox(SGD, period=2),
    "fedavg": lambda: methods.fedavg(SGD, period=2, weights=[3.0, 1.0, 2.0, 0.5]),
    "scaffnew": lambda: methods.scaffnew(SGD, probability=0.5),
    "scaffold one": lambda: methods.scaffold(SGD, period=2, option="one"),
    "scaffold": lambda: methods.scaffold(SGD, period=2),
    "streaming_diloco": lambda: methods.streaming_diloco(SGD, period=2, fragments=3),
    "streaming_diloco ahead": lambda: methods.streaming_diloco(
        SGD, period=4, fragments=2, exchange=Exchange(delay=1, mixing=1.0, ahead=1)
    ),
    "muloco": lambda: methods.muloco(SGD, period=2),
    "noloco": lambda: methods.noloco(SGD, topologies.random_matching(N, 0), period=2),
    "overlap_local_sgd": lambda: methods.overlap_local_sgd(SGD, period=2),
    "sparse_loco": lambda: methods.sparse_loco(SGD, TopK(k=3), period=2),
    "psgd clipped": lambda: clipped(bucketed(methods.psgd(SGD), 1e-5), 0.3),
    "local_sgd clipped": lambda: clipped(methods.local_sgd(SGD, period=2), 0.3),
    "robust_sgd multi-krum": lambda: methods.robust_sgd(SGD, rule="multi_krum", beta=0.5),
    "robust_sgd centred clipping": lambda: methods.robust_sgd(SGD, rule="centred_clipping", bucketing=2),
    "clipped_gossip ring": lambda: methods.clipped_gossip(SGD, RING, beta=0.5),
    "clipped_gossip star": lambda: methods.clipped_gossip(SGD, topologies.star(N), tau=0.1),
    "psgd attacked": lambda: attacked(methods.psgd(SGD), "a_little", 1),
    "local_sgd attacked": lambda: attacked(methods.local_sgd(SGD, period=2), "noise", 2),
    "sparta": lambda: methods.sparta(SGD, ratio=0.3),
    "async_sgd": lambda: methods.async_sgd(SGD, patience=1.0),
    "async_local_sgd": lambda: methods.async_local_sgd(SGD, period=2, buffer_size=3),
    "quorum_local_sgd": lambda: methods.quorum_local_sgd(SGD, period=2),
    "ad_psgd": lambda: methods.ad_psgd(SGD, EXPONENTIAL),
    "stale_dsgd": lambda: methods.stale_dsgd(SGD, EXPONENTIAL),
}


LAZY = ("lag", "lag server", "lasg")  # who is silent depends on values


def handed_up(many, name):
    """What processes handed over for the server, a worker."""
    return sum(result[name][3].get("to_server", 0) for result in many) / N


def merged(states, whole):
    """One state from those of all processes: rows one after another; what is shared must be equal everywhere."""
    found = {}
    for name in {name for state in states for name in state}:
        values = [state[name] for state in states if name in state]
        parts = [saving.boxes_of(value) for value in values if saving.is_table(value)]
        if parts:
            values = [Boxes(parts[0].shape, [box for part in parts for box in part.boxes.items()]).whole()]
        rows = [len(value) for value in values if isinstance(value, torch.Tensor) and value.ndim]
        if rows and sum(rows) == len(whole[name]):
            values = [torch.cat(values)]
        for value in values[1:]:
            same(value, values[0])
        found[name] = values[0]
    return found


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


def both_delayed():
    return Strategy(Local(SGD), gradients=Delayed(Average(), 1), parameters=Delayed(Gossip(RING), 2))


def slow(engine):
    """An engine that `make nightly` tries too."""
    return pytest.param(engine, marks=pytest.mark.slow)


SIZE = sum(field.stop - field.start for field in laws.LAYOUT.fields[1:]) * 8e-6 + 1e-9  # MB: two buckets
# Sums over the hosted rows first, so a sum of messages travels however it likes; other messages reach everybody.
TRAVEL = {f"psgd by {name}": (lambda: methods.psgd(SGD), name) for name in COLLECTIVES}
TRAVEL |= {f"dasgd by {name}": (lambda: methods.dasgd(SGD, period=2, delay=2), name) for name in COLLECTIVES}
TRAVEL |= {"delays in both by tree": (both_delayed, "tree")}
TRAVEL |= {"power_sgd by ring": (lambda: methods.power_sgd(SGD, rank=1), "ring")}
TRAVEL |= {"mem_sgd by all_gather": (lambda: methods.mem_sgd(SGD, TopK(k=3)), "all_gather")}
RUNS = {name: (build, "auto") for name, build in METHODS.items()} | TRAVEL


def world(collective="auto"):
    group = dist.group.WORLD if dist.is_initialized() else None
    return Communicator(workers=N, seed=3, group=group, collective=collective)


def run_all():
    """Every method on this engine: trajectory, state, ledger rows, bytes handed to the transport."""
    results = {}
    for name, (build, collective) in RUNS.items():
        communicator, strategy = world(collective), build()
        trajectory, _ = laws.run(strategy, communicator=communicator)
        results[name] = trajectory, strategy.state_dict(), communicator.ledger.rows, dict(communicator.transport.sent)
    return results


def run_early():
    """The same in buckets that are sent as soon as they are ready."""
    results = {}
    for name, (build, collective) in RUNS.items():
        communicator, strategy = world(collective), bucketed(build(), SIZE)
        trajectory, _ = laws.run(strategy, communicator=communicator, early=True)
        results[name] = trajectory, strategy.state_dict(), communicator.ledger, dict(communicator.transport.sent)
    return results


def shared_by(run):
    """The same with memory shared for every message, however small."""
    shared.LEAST = 1
    return run()


def on_engine(run, name):
    """What every process of an engine found; only what a test asks for is run."""
    processes = int(name[0])
    if processes == 1:
        return [run()]
    return on_processes(processes, partial(shared_by, run) if name.endswith("shared") else run)


@pytest.fixture(scope="module")
def engines():
    return cache(partial(on_engine, run_all))


@pytest.fixture(scope="module")
def early():
    return cache(partial(on_engine, run_early))


def test_every_method_is_here():
    published = {name for name, function in vars(methods).items() if inspect.isfunction(function) and name[0] != "_"}
    covered = {name.split()[0] for name in METHODS}
    assert published - {"contractive"} <= covered


@pytest.mark.parametrize("engine", ["2x2", slow("4x1"), "4x1 shared"])
@pytest.mark.parametrize("name", RUNS)
def test_engines_agree(engines, engine, name):
    (one,), many = engines("1x4"), engines(engine)
    trajectory = torch.cat([result[name][0] for result in many], dim=1)
    assert (trajectory - one[name][0]).abs().max() <= 1e-12
    same(merged([result[name][1] for result in many], one[name][1]), one[name][1])
    for result in many:
        assert result[name][2] == one[name][2], "the ledger depends on the engine"
    assert not one[name][3], "rows hosted together cost nothing on the transport"


@pytest.mark.parametrize("engine", [slow("2x2"), slow("4x1"), "4x1 shared"])
@pytest.mark.parametrize("name", RUNS)
def test_what_is_sent_while_gradients_are_computed_changes_nothing(engines, early, engine, name):
    (one,), many = engines("1x4"), early(engine)
    trajectory = torch.cat([result[name][0] for result in many], dim=1)
    assert (trajectory - one[name][0]).abs().max() <= 1e-12
    same(merged([result[name][1] for result in many], one[name][1]), one[name][1])
    for result, late in zip(many, engines(engine), strict=True):
        assert result[name][3].keys() == late[name][3].keys()


@pytest.mark.parametrize("engine", [slow("4x1"), "4x1 shared"])
@pytest.mark.parametrize("name", RUNS)
def test_the_transport_carries_what_the_ledger_says(engines, engine, name):
    """At one worker per process: what was handed over, times what the collective does with it, is the ledger's wire."""
    many = engines(engine)
    billed: dict[str, float] = {}
    for row in many[0][name][2]:
        billed[row.kind] = billed.get(row.kind, 0) + row.wire_bytes
    if name in LAZY:
        assert handed_up(many, name) <= billed["to_server"], "the server's own worker sends nothing through a wire"
        return
    factor = {"all_reduce": 2 * (N - 1) / N, "all_gather": N - 1}  # done by the process group; we do all others
    handed: dict[str, float] = {}
    for result in many:
        for kind, count in result[name][3].items():
            handed[kind] = handed.get(kind, 0) + factor.get(kind, 1) * count / N
    if "to_server" in billed:
        # the server shares a process with a worker, whose own messages stay there
        billed |= {kind: billed[kind] * (N - 1) / N for kind in ("to_server", "from_server")}
    assert handed == pytest.approx(billed, rel=1e-12)


def test_a_collective_that_adds_refuses_what_does_not_sum():
    for name in ("all_reduce", "ring", "tree", "server"):
        with pytest.raises(
            ValueError, match=f"collective={name} needs messages that sum.*; choose collective=all_gather"
        ):
            laws.run(methods.mem_sgd(SGD, TopK(k=3)), communicator=world(name))
    with pytest.raises(ValueError, match=r"collective must be one of auto, all_reduce, ring, .*, got 'rings'"):
        world("rings")


def test_buckets_go_out_one_by_one(engines, early):
    assert early("4x1 shared")[0]["psgd"][2].messages == 2 * laws.STEPS
    assert early("4x1 shared")[0]["compressed_sgd natural"][2].messages == 2 * laws.STEPS
    assert early("4x1 shared")[0]["mem_sgd top-k"][2].messages == laws.STEPS, "top-k of a bucket is another method"


def test_a_sharded_server_is_carried_by_all(engines):
    many = engines("4x1 shared")
    row, sharded = ([result[f"double_squeeze {name}"][3] for result in many] for name in ("qsgd", "sharded"))
    assert "from_server" in row[0]
    assert not any("from_server" in sent for sent in row[1:])
    assert all(sent == sharded[0] for sent in sharded)
    assert {"to_server", "from_server"} <= sharded[0].keys()
