"""Recomputation: the same gradients bit by bit from fewer activations, as many as the formulas say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from commeff.experiments.studies.splitting.kept import Kept
from commeff.experiments.studies.splitting.volumes import SHAPES
from commeff.experiments.tasks.language import GPT, Llama, llama_plan
from commeff.experiments.tasks.language.plans import GPT_LAYERS, LLAMA_LAYERS
from commeff.sharding import Axis, Mesh, Objective, cross_entropy, split
from commeff.sharding.pipeline import Pipeline
from commeff.sharding.played import PlayedMesh
from commeff.sharding.recompute import RECOMPUTATIONS, recompute
from commeff.sharding.schedules import SCHEDULES
from commeff.training.sharding import on_mesh
from tests.commeff.sharding.test_trainer import Tokens
from tests.laws.processes import by_case, census, on_processes


def llama(shape):
    torch.manual_seed(1)
    layers, width, heads, kv_heads, inner, vocabulary, *_ = shape
    return Llama(vocabulary, layers, width, heads, kv_heads, inner)


def batch(shape):
    *_, vocabulary, b, t = shape
    tokens = torch.randint(vocabulary, (b, t + 1), generator=torch.Generator().manual_seed(3))
    return tokens[:, :-1], tokens[:, 1:]


def gradients(model, layers, kind, inputs, targets):
    recompute(model, layers, kind)
    torch.manual_seed(5)  # of dropout
    F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("kind", RECOMPUTATIONS)
@pytest.mark.parametrize(
    ("make", "layers"),
    [
        (partial(llama, SHAPES[1]), LLAMA_LAYERS),
        (partial(GPT, 200, layers=2, heads=2, width=16, context=40, dropout=0.3), GPT_LAYERS),
    ],
    ids=["llama", "gpt with dropout"],
)
def test_gradients_are_equal_bit_by_bit(make, layers, kind):
    models = []
    for each in ("none", kind):
        torch.manual_seed(7)
        models.append(gradients(make(), layers, each, *batch(SHAPES[1])))
    assert all(torch.equal(plain, again) for plain, again in zip(*models, strict=True))


def of_a_layer(kind, d, e, f, h, size, sequence):
    """What is kept of a layer and token, as `recompute` has it."""
    inside = 2 * d + 2 * e + 4 * f + h
    return {
        "none": 2 * d + (4 * d + inside) / size if sequence else 6 * d + inside / size,
        "selective": 2 * d + (4 * d + 4 * f) / size if sequence else 6 * d + 4 * f / size,
        "full": d / size if sequence else d,
        "partitioned": d / size,
    }[kind]


def formula(shape, kind, size=1, sequence=False):
    layers, d, heads, kv_heads, f, vocabulary, b, t = shape
    last = d + (2 * d + vocabulary) / size if sequence else 3 * d + vocabulary / size
    return b * t * (layers * of_a_layer(kind, d, d * kv_heads // heads, f, heads, size, sequence) + last)


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_activations_are_the_formula(shape, kind):
    model, (inputs, targets) = llama(shape), batch(shape)
    recompute(model, LLAMA_LAYERS, kind)
    with Kept(model.parameters()) as kept:
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
    assert kept.now == 0
    assert 1 <= kept.most / 4 / formula(shape, kind) <= 1.03


def on_tensor_ranks(shape, kind, sequence):
    """Numbers kept, all numbers that live after forward, gradients, and all-reduces of b t d that were sent."""
    mesh, model, (inputs, targets) = Mesh(tensor=2), llama(shape), batch(shape)
    axis = mesh.axis("tensor")
    split(model, llama_plan(model), axis, sequence=sequence)
    recompute(model, LLAMA_LAYERS, kind, axis)
    model.zero_grad()
    counted = kind in ("full", "partitioned") and not sequence
    axis.bytes, before = 0.0, census() if counted else 0
    with Kept(model.parameters()) as kept:
        loss = cross_entropy(model(inputs), targets, axis)
        lives = census() - before if counted else 0
        loss.backward()
    _, d, *_, b, t = shape
    loss_and_norms = 3 * b * t + sequence * (2 * shape[0] + 1) * d
    return kept.most / 4, lives / 4, [p.grad for p in model.parameters()], (axis.bytes / 4 - loss_and_norms) / b / t / d


TENSOR_SHAPES = (2, 3)  # of SHAPES
DIVIDED = ("none", "selective", "full", "offloaded")  # what goes with sequence parallelism


@pytest.fixture(scope="module")
def on_two_ranks():
    """By rank, everything that is measured: starting processes costs more than a measurement."""
    kinds = [*((kind, False) for kind in RECOMPUTATIONS), *((kind, True) for kind in RECOMPUTATIONS if kind in DIVIDED)]
    given = [(kind, sequence, i) for kind, sequence in kinds for i in TENSOR_SHAPES]

    def member(case):
        kind, sequence, i = case
        return on_tensor_ranks(SHAPES[i], kind, sequence)

    return on_processes(2, lambda: by_case(given, member))


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
@pytest.mark.parametrize("i", TENSOR_SHAPES)
def test_tensor_ranks_keep_their_share(on_two_ranks, sequence, i):
    for rank in on_two_ranks:
        for kind in ("none", "selective", "full"):
            assert 1 <= rank[kind, sequence, i][0] / formula(SHAPES[i], kind, 2, sequence) <= 1.03, kind


@pytest.mark.parametrize("i", TENSOR_SHAPES)
def test_partitioned_checkpoints_are_divided_by_the_tensor_ranks(on_two_ranks, i):
    layers, d, *_, b, t = SHAPES[i]
    for rank in on_two_ranks:
        full, parts = (rank[kind, False, i][1] for kind in ("full", "partitioned"))
        assert full - parts == layers * b * t * d / 2


@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
def test_gradients_on_tensor_ranks_are_equal_bit_by_bit(on_two_ranks, sequence):
    for rank in on_two_ranks:
        for kind in DIVIDED if sequence else RECOMPUTATIONS:
            plain, again = rank["none", sequence, 2][2], rank[kind, sequence, 2][2]
            assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)), kind


def test_bytes_of_the_tensor_axis_with_recomputation_are_the_formula(on_two_ranks):
    """4 L + 2 all-reduces of b t d without, and with attention alone, whose own all-reduce nothing behind it needs.

    For the same reason a whole layer repeats one of its two; with sequence parallelism two gathers and one scatter,
    half an all-reduce each. Partitioned inputs are gathered beside that.
    """
    for rank in on_two_ranks:
        for (kind, sequence, i), (*_, sent) in rank.items():
            again = {"none": 0, "selective": 0, "full": 1, "offloaded": 1, "partitioned": 1}[kind]
            again += 0.5 * (sequence and again) + 0.5 * (kind == "partitioned")
            assert sent == (4 + again) * SHAPES[i][0] + 2, (kind, sequence)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"recompute must be one of none, .*, got 'all'"):
        recompute(llama(SHAPES[0]), LLAMA_LAYERS, "all")
    model = llama(SHAPES[0])
    split(model, llama_plan(model), Axis("tensor"), sequence=True)
    with pytest.raises(ValueError, match="recompute=partitioned must be without sequence parallelism, got both"):
        recompute(model, LLAMA_LAYERS, "partitioned")


class Misnamed(Tokens):
    def layers(self, model):
        return replace(super().layers(model), name="layers")


def test_stages_are_looked_at_before_layers_are_computed_anew():
    wrong = "schedule must be one of .*, got '2b'\nlayers must name modules of the model, got 'layers'"
    with pytest.raises(ValueError, match=wrong):
        on_mesh(Misnamed(), PlayedMesh({"pipeline": 2}), schedule="2b", micro_batches=2, recompute="full")


PARTS = 4
IN_FLIGHT = {"gpipe": 4, "1f1b": 2, "interleaved": 5, "zero_bubble": 4, "zbv": 4}  # forwards that wait for backwards


def in_stages(schedule):
    """Numbers kept at most by this rank of two in a batch of as many micro-batches."""
    model, (inputs, targets) = llama(SHAPES[2]), batch(SHAPES[2])
    axis = Mesh(pipeline=2).axis("pipeline")
    piped = Pipeline(model, LLAMA_LAYERS, axis, schedule=schedule, micro_batches=PARTS)
    objective = Objective(
        lambda *given: ((given[0],), given[1]), lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())
    )
    given = (inputs.repeat(PARTS, 1), targets.repeat(PARTS, 1))
    piped.backward(objective, given, 1.0)
    with Kept(model.parameters()) as kept:
        piped.backward(objective, given, 1.0)
    return kept.most / 4


def test_a_pipeline_keeps_those_of_all_micro_batches_in_flight():
    """At a rank whose stages are alike: the first one, or in a V the last.

    Where gradients of inputs and of parameters are apart, torch 2.13 holds a third of it until the batch has ended.
    """
    layers, d, heads, kv_heads, f, _, b, t = SHAPES[2]
    ranks = on_processes(2, lambda: by_case(SCHEDULES, in_stages))
    for schedule, order in SCHEDULES.items():
        rank = order.ranks(2)[1 if order.turns else 0]
        stage = layers / 2 / order.chunks * b * t * of_a_layer("none", d, d * kv_heads // heads, f, heads, 1, False)
        flying, kept = IN_FLIGHT[schedule], ranks[rank][schedule] / stage
        most = flying + (order.chunks * PARTS - flying) * order.splits / 3
        assert flying <= kept <= 1.03 * most, schedule
