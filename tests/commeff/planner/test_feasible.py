"""The mask over many policies says yes exactly where `Policy` and `Policy.check` do not refuse."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from commeff.cluster import Cluster
from commeff.planner import Model, Policies, Policy
from commeff.planner.policies import CHOICES, CONTEXTS, SCHEDULES
from commeff.planner.refusals import feasible
from tests.commeff.planner.ways import method, way

MODELS = (
    Model(24, 2304, 24, 1024, 51200),
    Model(12, 2304, 24, 1000, 51200, kv_heads=6),
    Model(8, 1024, 16, 1022, 1000, ffn_hidden=2060),
    Model(6, 2304, 24, 1024, 51200, experts=12, active_experts=2, expert_hidden=1020, expert_every=2),
)
METHODS = (
    way(),
    way("dsgd degree=1"),
    way("dsgd topology=hypercube"),  # not of three workers
    way("local_sgd period=4"),
    way("mem_sgd compressor=scaled_sign"),
    way("gossip_pga period=2 degree=2"),
)
CLUSTER = Cluster.named("a100_selene", gpus=24)


def drawn(random: np.random.Generator) -> dict[str, object]:
    """Fields of a policy, some of them nonsense together."""

    def pick(*values):
        return values[random.integers(len(values))]

    tensor, pipeline, context = pick(1, 2, 3, 4, 6, 8), pick(1, 1, 2, 3, 4), pick(1, 1, 2, 3)
    data = CLUSTER.gpus // (tensor * pipeline * context) if random.random() < 0.9 else pick(1, 2, 5)
    return {
        "tensor": tensor,
        "pipeline": pipeline,
        "data": max(1, data),
        "workers": pick(1, 1, 2, 3, 4),
        "micro_batch": pick(1, 2, 3),
        "schedule": pick(*SCHEDULES),
        "chunks": pick(1, 1, 2, 3),
        "zero": pick(0, 1, 2, 3),
        "sequence_parallel": bool(pick(0, 1)),
        "unit": pick(1, 1, 0, 4),
        "context": context,
        "context_by": pick(*CONTEXTS),
        "prefetch": pick(1, 1, 0, 3),
        "reshard": bool(pick(1, 1, 1, 0)),
        "expert": pick(1, 1, 1, 2, 3, 4),
        "method": pick(*METHODS),
    }


def allowed(fields: dict[str, object], model: Model, batch: int) -> bool:
    """What a policy alone says."""
    fields = {**fields, **fields["method"].fields}
    try:
        Policy(**fields).check(model, CLUSTER, batch)
    except ValueError:
        return False
    return True


def arrays(rows: list[dict[str, object]]) -> Policies:
    """Fields as arrays, without asking `Policy` what it thinks of them together."""
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0] if name != "method"}
    for name in ("schedule", "context_by"):
        columns[name] = np.array([CHOICES[name].index(row[name]) for row in rows])
    columns["method"] = np.array([METHODS.index(row["method"]) for row in rows])
    rest = ("recompute", "overlap")
    return Policies(**columns, **dict.fromkeys(rest, np.zeros(len(rows), dtype=int)), methods=METHODS)


@pytest.mark.parametrize("model", MODELS)
def test_the_mask_says_yes_exactly_where_no_check_refuses(model):
    random = np.random.default_rng(model.layers)
    rows, batch = [drawn(random) for _ in range(4000)], 144
    said = feasible(model, arrays(rows), CLUSTER, batch)
    told = np.array([allowed(row, model, batch) for row in rows])
    assert told.any(), "the draw never makes a possible policy: the test would see nothing"
    assert not told.all()
    assert (said == told).all(), rows[int(np.flatnonzero(said != told)[0])]


def test_a_topology_without_so_many_workers_is_refused_by_both_in_its_own_words():
    three = Policy(data=24, workers=3, method=method("dsgd topology=hypercube"))
    assert not feasible(MODELS[0], Policies.of([three]), CLUSTER, 48).any()
    with pytest.raises(
        ValueError, match=r"method=dsgd, hypercube must take the workers, got workers=3: .*power of two"
    ):
        three.check(MODELS[0], CLUSTER, 48)


def test_uneven_layers_are_possible_exactly_where_some_split_is():
    model = Model(7, 2304, 24, 1024, 51200)
    for pipeline, schedule in product((1, 2, 3, 4, 8), ("1f1b", "gpipe")):
        policy = Policy(pipeline=pipeline, data=24 // pipeline, schedule=schedule)
        said = bool(feasible(model, Policies.of([policy]), CLUSTER, 48, uneven=True)[0])
        split = tuple(len(part) for part in np.array_split(np.arange(7), pipeline))
        try:
            Policy(pipeline=pipeline, data=24 // pipeline, schedule=schedule, stages=split).check(model, CLUSTER, 48)
            told = True
        except ValueError:
            told = False
        assert said == told


def test_a_precision_that_the_gpu_lacks_makes_everything_impossible():
    many = Policies.of([Policy(data=24, precision="fp8"), Policy(tensor=8, data=3, precision="fp8")])
    assert not feasible(MODELS[0], many, CLUSTER, 48).any()
