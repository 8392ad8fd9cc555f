"""16 bits: the same policy on one process, rows in 32 as master weights, and what happens when a gradient overflows."""

from __future__ import annotations

import copy
import math
from functools import partial
from itertools import product, starmap

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from commeff import Communicator, DistributedOptimizer, Layout, methods
from commeff.compressors import TopK
from commeff.core import Keep
from commeff.core.properties import is_rowwise
from commeff.replicas import LowStacked, MixedStacked
from commeff.replicas.engines import engine_in
from commeff.sharding import Mesh
from commeff.sharding.pieces import fitted
from commeff.sharding.precision import PRECISIONS, LossScale, named_precision, step_of_finite
from commeff.training.checkpoint import Checkpoints
from commeff.training.settings import RunSettings
from commeff.training.sharding import on_mesh
from commeff.training.trainer import train
from commeff.transforms import Average, Blocks, Clipped
from tests.commeff.sharding import test_trainer
from tests.commeff.sharding.test_zero import SGD, STEPS, batch, kept, llama
from tests.laws.processes import by_case, on_processes
from tests.states import parameters, tensors

METHODS = {
    "psgd": lambda: methods.psgd(SGD),
    "diloco": lambda: methods.diloco(SGD, period=2),
    "mem_sgd": lambda: methods.mem_sgd(SGD, TopK(ratio=0.1)),
}


class Tokens(test_trainer.Tokens):
    """The same for one worker, in 32 bits."""

    workers = 1

    def model(self):
        return super().model().float()


WIDE = "bf16_reduce_fp32"
OVERFLOW = (1, 1)  # the step and the worker, of which one row of the first rank's gradient is not finite
CASES = [
    *((name, "psgd", zero, False) for name in ("bf16", WIDE) for zero in range(4)),
    *(("fp16", "diloco", zero, False) for zero in range(4)),
    *(("fp16", method, 0, True) for method in ("diloco", "mem_sgd")),
    *(("fp16", "diloco", zero, True) for zero in (2, 3)),
    ("fp16", "psgd", 3, True),  # shards that could leave before the vote
]


def loss_of(model, tokens):
    """The loss of a model in 16 bits, taken in 32."""
    return nn.functional.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())


def overflowing(embedding, inputs, out):
    """Let the gradient of one token overflow, whose row one rank updates."""
    first = inputs[0] == inputs[0].min()
    out.register_hook(lambda gradient: gradient.masked_fill(first[..., None], math.inf))


def on_a_mesh(name, method, zero, overflows):
    mesh = Mesh(worker=2, shard=2)
    model = llama().float()
    worker, shard = mesh.coordinates["worker"], mesh.coordinates["shard"]
    strategy = METHODS[method]()
    optimizer = DistributedOptimizer(model, strategy, mesh=mesh, zero=zero, precision=name, bucket_mb=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        broken = overflows and (step, worker, shard) == (*OVERFLOW, 0)
        hook = model.tokens.register_forward_hook(overflowing) if broken else None
        loss = loss_of(model, batch(step, worker).chunk(2)[shard])
        if hook is not None:
            hook.remove()
        optimizer.scaled(loss).backward()
        optimizer.step()
    row = optimizer._row.whole(optimizer._row.parameters)
    state = optimizer.state_dict()
    finite = all(bool(t.isfinite().all()) for t in tree_leaves(state["strategy"]) if torch.is_tensor(t))
    return worker, row[0], finite, state.get("scale", {}).get("value")


def on_one_process(name, method, overflows, kept=False):
    """Rows in 32 bits, models in 16, halves of a batch added in 16, or in 32, which gradients made in 32 keep."""
    (dtype, _, sums), communicator, strategy = PRECISIONS[name], Communicator(workers=2), METHODS[method]()
    model = llama().float()
    layout = Layout.of([(n, tuple(p.shape)) for n, p in model.named_parameters()])
    first = torch.cat([p.detach().flatten() for p in model.parameters()]).expand(2, -1)
    x, model = first.clone(), model.to(dtype)
    for parameter in model.parameters() if kept else ():
        parameter.grad_dtype = sums
    strategy.start(x, layout, communicator)
    for communicator.step in range(STEPS):
        gradient = torch.zeros_like(x)
        for worker in range(2):
            for parameter, field in zip(model.parameters(), layout.fields, strict=True):
                parameter.data = x[worker, field.start : field.stop].view(field.shape).to(dtype)
            halves = []
            for tokens in batch(communicator.step, worker).chunk(2):
                model.zero_grad()
                (loss_of(model, tokens) * (2.0**15 if name == "fp16" else 1)).backward()
                halves.append(torch.cat([p.grad.flatten() for p in model.parameters()]).to(sums or dtype))
            gradient[worker] = (sum(halves) / 2).float() / (2.0**15 if name == "fp16" else 1)
        moving = None
        if overflows and communicator.step == OVERFLOW[0]:
            if not is_rowwise(strategy.gradients):
                continue
            gradient[OVERFLOW[1]] = 0
            moving = torch.arange(2) != OVERFLOW[1]
        x = strategy.step(x, gradient, communicator, moving=moving)
    assert (x - first).abs().max() > 0.02, "nothing moved: the comparison says nothing"
    return x


@pytest.fixture(scope="module")
def outcomes():
    return on_processes(4, lambda: by_case(CASES, lambda case: on_a_mesh(*case)))


@pytest.mark.parametrize(("name", "method", "zero", "overflows"), CASES)
def test_ranks_train_in_16_bits_as_one_process_does(outcomes, name, method, zero, overflows):
    fsdp = zero == 3 and name == WIDE  # which from torch 2.15 on rounds no gradient that is made in 32 bits
    expected = [on_one_process(name, method, overflows, kept) for kept in (False, True)[: 1 + fsdp]]
    for worker, row, finite, scale in (rank[name, method, zero, overflows] for rank in outcomes):
        assert row.dtype == torch.float32
        assert min((row - x[worker]).abs().max() for x in expected) <= 1e-6  # 4 eps of 16 bits would be 4e-3 or more
        assert finite, "a memory has seen what is not"
        if name == "fp16":
            assert scale == 2.0 ** (14 if overflows and worker == OVERFLOW[1] else 15)


PSI_PARTS = {0: (16, 0), 1: (4, 12), 2: (2, 14), 3: (0, 16)}  # bytes a parameter, at every rank and shared


WIDE_PARTS = {**PSI_PARTS, 2: (2, 16)}


@pytest.mark.parametrize(("name", "parts"), [("bf16", PSI_PARTS), (WIDE, WIDE_PARTS)])
def test_what_lives_between_steps_is_two_copies_in_16_bits_and_states_in_32(name, parts):
    for rank in on_processes(2, lambda: by_case(parts, partial(kept, precision=name))):
        for zero, (everywhere, shared) in parts.items():
            live, psi = rank[zero]
            assert live == pytest.approx((everywhere + shared / 2) * psi, rel=0.02), zero


def sent(zero, name):
    """Bytes that a rank sends to the other one in a step."""
    mesh, model = Mesh(shard=2), llama().float()
    optimizer = DistributedOptimizer(model, METHODS["psgd"](), mesh=mesh, zero=zero, precision=name, bucket_mb=0.01)
    loss_of(model, batch(0, 0)).backward()
    optimizer.step()
    return mesh.axis("shard").bytes


def test_gradients_that_are_summed_in_32_bits_take_twice_the_bytes():
    """Of what a step sends, gradients are all in stage 0, a half in 1 and 2, and a third in 3."""
    cases = [*product(range(4), ("bf16", WIDE))]
    for rank in on_processes(2, lambda: by_case(cases, lambda case: sent(*case))):
        ratios = [rank[zero, WIDE] / rank[zero, "bf16"] for zero in range(4)]
        assert ratios == pytest.approx([2, 3 / 2, 3 / 2, 4 / 3], rel=0.02)


def test_what_a_gradient_goes_through_first_decides_who_leaves_out_a_step():
    assert is_rowwise(Keep())
    assert is_rowwise(Clipped(1.0, Blocks(Keep(), ())))
    assert not is_rowwise(Clipped(1.0, Average()))
    assert not is_rowwise(METHODS["mem_sgd"]().gradients)
    communicator, x = Communicator(workers=2), torch.ones(2, 3)
    for method in ("psgd", "diloco"):
        strategy = METHODS[method]()
        strategy.start(x, Layout.flat(3), communicator)
        after = step_of_finite(strategy, x.clone(), torch.full((2, 3), math.inf), communicator, finite=False)
        assert torch.equal(after, x)


def halved(folder, steps):
    """Where a run of fp16 ends, and its scale, which begins too large."""
    mesh = Mesh(shard=2)
    worker = on_mesh(Tokens(), mesh, zero=2, precision="fp16")
    worker.scale.value = 2.0**40
    communicator = Communicator(group=mesh.group("worker"))
    strategy = fitted(METHODS["psgd"](), worker.partition, "own")
    train(Tokens(), strategy, communicator, RunSettings(steps=steps), worker=worker, checkpoints=Checkpoints(folder))
    return worker.scale.value, worker.parameters


def test_a_run_in_16_bits_goes_on_with_its_scale(tmp_path):
    def member():
        halved(tmp_path / "stopped", 3)
        return halved(tmp_path / "whole", 6), halved(tmp_path / "stopped", 6)

    for (scale, x), (resumed, y) in on_processes(2, member):
        assert resumed == scale == 2.0**34
        assert torch.equal(x, y)


def test_a_loop_in_16_bits_is_the_same_whenever_gradients_leave():
    """Also where those of the last step are added to, and where some are dropped, which scaled ones may be."""

    def run(precision, megabytes):
        model = llama().float()
        optimizer = DistributedOptimizer(model, METHODS["psgd"](), precision=precision, bucket_mb=megabytes)
        worker = optimizer.communicator.workers[0]
        for step in range(STEPS):
            if step == 2 and precision == "fp16":
                optimizer.scaled(loss_of(model, batch(STEPS, worker))).backward()
            if step < STEPS - 1:
                optimizer.zero_grad()
            optimizer.scaled(loss_of(model, batch(step, worker))).backward()
            assert optimizer._gradients.sent == (precision == "bf16" and megabytes > 0 and step > 0)
            optimizer.step()
        return optimizer._row.parameters.clone()

    for early, late, scaled, last in on_processes(2, lambda: [*starmap(run, product(("bf16", "fp16"), (0.01, 0)))]):
        assert torch.equal(early, late)
        assert torch.equal(scaled, last)


def test_gradients_of_whole_workers_in_16_bits_leave_while_others_are_computed():
    """And are those of a step in which nobody waits for them."""
    tokens, gradients = torch.stack([batch(0, worker) for worker in range(2)]), []
    for wanted in (False, True):
        replicas = LowStacked(lambda: llama().float(), range(2), precision="bf16")
        awaited, seen = replicas.layout.blocks(5_000, 5_000) if wanted else (), []

        def ready(start, stop, replicas=replicas, seen=seen):
            seen.append((start, replicas.gradients[:, start:stop].clone(), torch._C._current_graph_task_id() >= 0))

        gradient, _ = replicas.compute(loss_of, [(tokens,)], 0, 0.1, awaited, ready)
        gradients.append(gradient)
        assert len(seen) == len(awaited)
    assert len(seen) > 5
    assert all(during for *_, during in seen)
    for start, early, _ in seen:
        assert torch.equal(early, gradient[:, start : start + early.shape[1]])
    assert torch.equal(*gradients)
    scaled, sent = LowStacked(lambda: llama().float(), range(2), precision="fp16"), []
    scaled.compute(loss_of, [(tokens,)], 0, 0.1, awaited, lambda *span: sent.append(span))
    assert not sent, "a scaled gradient, which may not be finite, has left"


class Two(Tokens):
    workers = 2


def trained(folder, name, method, steps=STEPS, stacked=True):
    """What two workers come to, whole ones in this process, or a rank each: rows, losses and scales."""
    mesh = None if stacked else Mesh(worker=2)
    worker = mesh and on_mesh(Two(), mesh, precision=name)
    communicator = Communicator(group=mesh.group("worker")) if mesh else Communicator(workers=2)
    checkpoints = Checkpoints(folder)
    summary = train(
        Two(),
        METHODS[method](),
        communicator,
        RunSettings(steps=steps, precision=name),
        worker=worker,
        checkpoints=checkpoints,
    )
    if worker:
        return worker.parameters[0], summary["minibatch_loss"], summary["val_loss"], worker.scale and worker.scale.value
    state = checkpoints.load()
    return parameters(state), summary["minibatch_loss"], summary["val_loss"], tensors(state).get("rank0/scale/value")


WHOLE = [("bf16", "psgd"), ("fp16", "diloco"), ("fp16", "mem_sgd")]


@pytest.mark.parametrize("overflows", [False, True])
def test_whole_workers_compute_in_16_bits_as_a_mesh_does(tmp_path, monkeypatch, overflows):
    """Bit by bit; with gradients that overflow until scales have come down, too."""
    if overflows:
        monkeypatch.setattr(LossScale.__init__, "__defaults__", (2.0**40, 2000))

    def member():
        return {case: trained(tmp_path / f"{case} mesh", *case, stacked=False) for case in WHOLE[overflows:]}

    ranks = on_processes(2, member)
    for case in WHOLE[overflows:]:
        rows, minibatch, loss, scales = trained(tmp_path / f"{case}", *case)
        assert rows.dtype == torch.float32
        for worker, (row, *others) in enumerate(rank[case] for rank in ranks):
            assert torch.equal(row, rows[worker])
            assert others[:2] == pytest.approx([minibatch, loss], rel=1e-6)
            assert others[2] == (None if scales is None else scales[worker])
        if overflows:
            assert bool((scales < 2.0**40).all())


def test_a_worker_whose_gradient_overflows_leaves_out_a_step_alone(monkeypatch):
    """Of two in one process; its scale is halved, and the other one's is not."""
    replicas = LowStacked(Tokens().model, range(2), precision="fp16")
    strategy, communicator = METHODS["diloco"](), Communicator(workers=2)
    strategy.start(replicas.parameters, replicas.layout, communicator)
    first = replicas.parameters.clone()
    hook = replicas.models[1].tokens.register_forward_hook(overflowing)
    gradient, _ = replicas.compute(Tokens().loss, [Two().batch(0, range(2))], 0)
    hook.remove()
    assert replicas.finite.tolist() == [True, False]
    replicas.load(step_of_finite(strategy, replicas.parameters, gradient, communicator, replicas.finite))
    assert [scale.value for scale in replicas.scales] == [2.0**15, 2.0**14]
    assert torch.equal(replicas.parameters[1], first[1])
    assert not torch.equal(replicas.parameters[0], first[0])
    assert torch.equal(replicas.models[0].tokens.weight.flatten(), replicas.parameters[0, : 64 * 32].half())


def test_whole_workers_in_16_bits_go_on_with_their_scales(tmp_path):
    trained(tmp_path / "stopped", "fp16", "mem_sgd", 2)
    resumed, whole = (trained(tmp_path / name, "fp16", "mem_sgd") for name in ("stopped", "whole"))
    assert torch.equal(resumed[0], whole[0])
    assert resumed[3].tolist() == [2.0**15] * 2


def test_what_whole_workers_cannot_do_in_16_bits_is_refused():
    with pytest.raises(ValueError, match="precision must be fp32 for a model with BatchNorm"):
        LowStacked(lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)), range(1), precision="bf16")
    with pytest.raises(ValueError, match="must be bf16 or fp16, got bf16_reduce_fp32: no ranks share their batch"):
        LowStacked(lambda: nn.Linear(2, 3), range(1), precision=WIDE)
    with pytest.raises(ValueError, match="engine must be loop in 16 bits, got vmap with precision=fp16"):
        engine_in("fp16", "vmap")


def test_a_scale_grows_after_good_steps_in_a_row():
    scale, saved = LossScale((), first=4.0, patience=2), LossScale((), patience=2)
    bad, good = torch.full((1, 1), math.inf), torch.ones(1, 1)
    assert [(scale.unscale(gradient.clone()), scale.value)[1] for gradient in (good, bad, good)] == [4.0, 2.0, 2.0]
    saved.load_state_dict(scale.state_dict())
    assert [(each.unscale(good.clone()), each.value) for each in (scale, saved)] == [(True, 4.0)] * 2


def test_an_unknown_precision_and_a_loss_without_scale_are_refused():
    with pytest.raises(ValueError, match="precision must be one of fp32, bf16, fp16, bf16_reduce_fp32, got 'fp8'"):
        named_precision("fp8")

    def member():
        for mesh in (None, Mesh()):
            with pytest.raises(ValueError, match="precision must be bf16 where a worker has one shard rank"):
                DistributedOptimizer(nn.Linear(2, 1), METHODS["psgd"](), mesh=mesh, precision=WIDE)
        model = nn.Linear(2, 1)
        optimizer = DistributedOptimizer(model, METHODS["psgd"](), precision="fp16")
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(1, 2).half()).sum().backward()
            with pytest.raises(ValueError, match="fp16 needs a scale"):
                optimizer.step()
            optimizer.zero_grad()
            optimizer.scaled(model(torch.ones(1, 2).half()).float().sum()).backward()
            optimizer.step()

    on_processes(1, member)


class Convolutional(nn.Module):
    """A convolution, batch statistics and a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5))

    def forward(self, images):
        return self.layers(images)


def test_mixed_precision_multiplies_in_16_bits_and_keeps_the_rest_in_32():
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(2, 16, 3, 8, 8, generator=generator), torch.randint(5, (2, 16), generator=generator)

    def loss(model, images, labels):
        return nn.functional.cross_entropy(model(images), labels)

    computed = {}
    for name in ("fp32", "bf16_mixed"):
        torch.manual_seed(0)
        model = Convolutional()
        replicas = engine_in(name, "loop")(lambda: copy.deepcopy(model), range(2))  # noqa: B023
        gradients, losses = replicas.compute(loss, [batch], 0)
        computed[name] = gradients.clone()
        assert gradients.dtype == losses.dtype == replicas.parameters.dtype == torch.float32
        assert {b.dtype for n, b in replicas.buffers.items() if "running" in n} == {torch.float32}
    exact, mixed = computed.values()
    error = ((mixed - exact).norm() / exact.norm()).item()
    assert 2**-12 < error < 2**-5  # bfloat16 rounds by 2^-9


def test_mixed_precision_is_of_models_in_float32():
    with pytest.raises(ValueError, match=r"bf16_mixed needs a model of float32, got float64: .* omit precision="):
        MixedStacked(lambda: nn.Linear(2, 1).double(), range(1))
