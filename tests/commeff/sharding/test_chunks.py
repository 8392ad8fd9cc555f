"""Losses whose logits are computed some tokens after others are those of all at once, and take less memory."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from commeff.experiments.config.build import build
from commeff.experiments.config.compose import compose
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.planning.peak import Peak
from commeff.experiments.tasks import Language
from commeff.experiments.tasks.language import GPT, Llama
from commeff.experiments.tasks.language import task as language
from commeff.experiments.tasks.shapes import shapes_only
from commeff.experiments.tasks.work import Work
from commeff.sharding import LossLinear, Mesh, fit
from commeff.sharding.played import PlayedMesh
from commeff.sharding.schedules import SCHEDULES
from commeff.training.on_device import OnDevice
from commeff.training.sharding import on_mesh
from commeff.training.task import objective
from tests.laws.processes import by_case, on_processes

MODELS = {
    "gpt": lambda: GPT(96, layers=1, heads=2, width=16, context=11),
    "llama": lambda: Llama(96, layers=1, width=16, heads=2, inner=32),
    "tied": lambda: Llama(96, layers=1, width=16, heads=2, inner=32, tied=True),
    "documents": lambda: Llama(96, layers=1, width=16, heads=2, inner=32, separator=3),
}
DIVIDED = {kind for kind, order in SCHEDULES.items() if order.splits}
CASES = {  # degrees of the mesh, and what else
    "tensor": ({"tensor": 2}, {}),
    "sequence": ({"tensor": 2}, {"sequence": True}),
    **{schedule: ({"pipeline": 2}, {"schedule": schedule, "micro_batches": 4}) for schedule in SCHEDULES},
    "stage 3": ({"shard": 2}, {"zero": 3}),
    "pipeline, stage 3": ({"pipeline": 2, "shard": 2}, {"micro_batches": 2, "zero": 3}),
    "stage 3, tensor": ({"shard": 2, "tensor": 2}, {"zero": 3, "sequence": True}),
    "pipeline, tensor": ({"pipeline": 2, "tensor": 2}, {"schedule": "zero_bubble", "micro_batches": 4}),
}
if not fit.DIVIDES:  # before torch 2.13
    CASES = {name: case for name, case in CASES.items() if case[1].get("schedule") not in DIVIDED}


def gradients(loss, model):
    return torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("chunks", [1, 2, 7, 1000])
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_all_logits(name, chunks):
    torch.manual_seed(0)
    whole = MODELS[name]().double()
    if name == "llama":
        whole.head.bias = torch.nn.Parameter(torch.randn(96).double())
    pieces = copy.deepcopy(whole)
    LossLinear.put(pieces.head, chunks)
    tokens = torch.randint(96, (3, 12))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    targets[1, 4:] = -100
    expected = F.cross_entropy(whole(inputs).flatten(0, 1), targets.flatten())
    losses = pieces(inputs, targets)
    found = losses.sum() / (targets != -100).sum()
    assert losses.shape == (3, 11, 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    for ours, theirs in zip(gradients(found, pieces), gradients(expected, whole), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-14)
    assert torch.equal(pieces(inputs), whole(inputs))
    scores = pieces.eval()(inputs, targets)
    assert not scores[1, 4:].any()
    torch.testing.assert_close(scores[..., 0], losses[..., 0], rtol=0, atol=1e-14)
    assert torch.equal(scores[..., 1] == 1, whole(inputs).argmax(-1) == targets)


@pytest.mark.parametrize("chunks", [2, 7])
def test_a_mean_has_the_weights_that_its_user_gives(chunks):
    """Backward gets another slope for each token, and none for a layer that is frozen."""
    head, x, weights = torch.nn.Linear(8, 50).double(), torch.randn(13, 8).double().requires_grad_(), torch.randn(13)
    targets = torch.randint(50, (13,))
    expected = torch.autograd.grad((F.cross_entropy(head(x), targets, reduction="none") * weights).sum(), x)
    LossLinear.put(head.requires_grad_(False), chunks)
    found = torch.autograd.grad((head(x, targets)[:, 0] * weights).sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_a_second_derivative_is_refused():
    head, x = torch.nn.Linear(8, 50), torch.randn(13, 8, requires_grad=True)
    LossLinear.put(head, 2)
    with pytest.raises(ValueError, match="losses in chunks have no second derivative: give loss_chunks=1"):
        torch.autograd.grad(head(x, torch.randint(50, (13,))).mean(), x, create_graph=True)


def test_products_under_autocast_are_in_16_bits_forward_and_backward():
    head, x, targets = torch.nn.Linear(32, 50), torch.randn(40, 32).requires_grad_(), torch.randint(50, (40,))
    pieces = copy.deepcopy(head)
    LossLinear.put(pieces, 3)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = F.cross_entropy(head(x), targets), pieces(x, targets).mean()
    torch.testing.assert_close(found, expected)
    (of_x,) = torch.autograd.grad(found, x, retain_graph=True)
    assert torch.equal(of_x, of_x.bfloat16().float())
    for ours, theirs in zip(gradients(found, pieces), gradients(expected, head), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2**-8 * theirs.abs().max().item())


def test_gradients_of_many_chunks_in_16_bits_are_summed_in_more():
    head, x, targets = torch.nn.Linear(32, 50).bfloat16(), torch.randn(4096, 32).bfloat16(), torch.randint(50, (4096,))
    exact = copy.deepcopy(head).double()
    expected = gradients(F.cross_entropy(exact(x.double()), targets), exact)
    LossLinear.put(head, 128)
    for ours, theirs in zip(gradients(head(x, targets).mean(), head), expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours - theirs).norm() < 2**-7 * theirs.norm()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(torch.randint(256, (20000,), generator=torch.Generator().manual_seed(1)).byte().numpy().tobytes())
    return str(path)


def tasks(text, **changed):
    """Without chunks and with some, which do not divide the tokens of a minibatch."""
    shape = {"layers": 4, "width": 16, "heads": 2, "context": 8, "batch": 8, "dtype": "float64", "probe": 512}
    return [Language(1, data=text, loss_chunks=chunks, **(shape | changed)) for chunks in (1, 3)]


def computed(task, degrees, given):
    """The loss, the gradient that this rank has, and what is measured in an evaluation."""
    mesh = Mesh(**degrees, worker=4 // math.prod(degrees.values()))
    worker = on_mesh(task, mesh, **given)
    gradient, loss = worker.compute(objective(task, worker.computation.vocabulary), [task.batch(0, [0])], 0)
    return loss.clone(), gradient.clone(), OnDevice(task, "cpu").evaluate(worker.models[0])


def test_on_every_mesh_gradients_and_evaluations_are_those_of_all_logits(text):
    plain, chunked = tasks(text)

    def member():
        return by_case(CASES, lambda case: [computed(task, *CASES[case]) for task in (plain, chunked)])

    expected = plain.evaluate(plain.model())
    for rank in on_processes(4, member):
        for case in CASES:
            (loss, gradient, _), (ours, found, measured) = rank[case]
            torch.testing.assert_close(ours, loss, rtol=0, atol=1e-13, msg=case)
            torch.testing.assert_close(found, gradient, rtol=0, atol=1e-13, msg=case)
            assert measured == pytest.approx(expected, rel=1e-12), case


@pytest.mark.parametrize("schedule", sorted(DIVIDED))
def test_a_divided_backward_of_pieces_is_refused_where_torch_has_none(text, schedule, monkeypatch):
    monkeypatch.setattr(fit, "DIVIDES", False)
    plain, chunked = tasks(text)
    how = {"schedule": schedule, "micro_batches": 4}
    on_mesh(plain, PlayedMesh({"pipeline": 2}), **how)
    with pytest.raises(ValueError, match=f"schedule={schedule} needs torch 2.13 with a loss in pieces"):
        on_mesh(chunked, PlayedMesh({"pipeline": 2}), **how)


def test_evaluations_have_no_more_logits_than_are_allowed_even_of_one_window(text, monkeypatch):
    monkeypatch.setattr(language, "LOGITS", 256)
    seen = []
    monkeypatch.setattr(language, "guesses", pytest.fail)
    _, task = tasks(text, width=8, layers=1)
    model = task.model()
    monkeypatch.setattr("commeff.sharding.vocabulary.guesses", lambda x, axis: seen.append(x.numel()) or x.argmax(-1))
    task.evaluate(model)
    assert max(seen) == 256 * math.ceil(8 / 3)


def test_the_most_memory_falls_by_the_logits():
    """Of three copies of all logits there are once 1/8 in forward and backward."""
    vocabulary, tokens, most = 50000, 512, {}
    targets = torch.zeros(2, tokens // 2, dtype=torch.long, device="meta")
    for chunks in (0, 1, 8):
        with shapes_only():
            model = GPT(vocabulary, layers=1, heads=2, width=16, context=tokens)
        if chunks:
            LossLinear.put(model.head, chunks)
        with Peak() as peak:
            outputs = model(targets, *([targets] if chunks else []))
            loss = outputs.mean() if chunks else F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
            del outputs
            loss.backward()
        most[chunks] = (peak.most - 4 * model.head.weight.numel()) / (4 * vocabulary * tokens)
    assert most[0] > 2.9
    assert most[1] < 1.1
    assert most[8] < 0.2


def test_a_plan_of_a_run_knows_them(text):
    """Its peak falls; its FLOPs, which are the model's, stay."""
    words = ["task=language", f"task.data={text}", "task.width=8", "task.context=256", "task.batch=64", "steps=2"]
    plain, chunked = (compose([*words, f"task.loss_chunks={chunks}"]) for chunks in (1, 8))
    logits = 4 * 256 * 256 * 64
    assert forecast(plain).peak - forecast(chunked).peak > logits
    one, other = (Work.of(task, "fp32").flops for task in tasks(text))
    assert one == other > 0


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("optimizer=sophia_h", "optimizer: curvature needs whole logits, got task.loss_chunks"),
        ("optimizer=sophia_g", "optimizer: curvature needs whole logits, got task.loss_chunks"),
        ("engine=vmap", "task: engine=vmap needs whole logits, got them in chunks"),
        ("task.loss_chunks=0", "task: loss_chunks must be at least 1, got 0"),
    ],
)
def test_what_needs_whole_logits_is_refused(text, word, line):
    with pytest.raises(ConfigError, match=line):
        build(compose(["task=language", f"task.data={text}", "task.loss_chunks=4", word]))
