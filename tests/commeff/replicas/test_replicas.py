"""Stacked replicas are n models; the batched engine is the loop."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from commeff import Communicator
from commeff.experiments.tasks import Digits
from commeff.replicas import ShardedWorker, Stacked, Vmapped, stacked
from commeff.replicas.stacked import write_row
from commeff.sharding import OnePass
from commeff.sharding.played import PlayedMesh
from commeff.training.evaluation import calibrate, measure_locals

W, B = 4, 6


class Tied(nn.Module):
    """Two layers that share one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Attention(nn.Module):
    """Samples read each other."""

    def __init__(self):
        super().__init__()
        self.widen = nn.Linear(5, 12)
        self.project = nn.Linear(4, 5)

    def forward(self, x):
        parts = self.widen(x)[None, None].chunk(3, dim=-1)
        return self.project(nn.functional.scaled_dot_product_attention(*parts)[0, 0])


MODELS = {
    "attention": Attention,
    "mlp": lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 5)),
    "batch norm": lambda: nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 5)),
    "tied": Tied,
}


DROPOUT = {"dropout": lambda: nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 5))}


def model(name):
    def make():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return (MODELS | DROPOUT)[name]().double()

    return make


def loss(model, x, y):
    return nn.functional.cross_entropy(model(x), y)


def batch(step=0):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(W, B, 5, generator=generator, dtype=torch.float64), torch.randint(5, (W, B), generator=generator)


def moved(replicas):
    """Rows that differ, as after local steps."""
    shift = torch.randn(replicas.parameters.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    replicas.load(replicas.parameters + 0.1 * shift)
    return replicas


@pytest.mark.parametrize("name", [*MODELS, "dropout"])
@pytest.mark.parametrize("groups", [2, 1])
def test_models_that_go_backward_together_are_those_that_go_one_after_the_other(name, groups, monkeypatch):
    def found(together):
        size = sum(parameter.numel() for parameter in model(name)().parameters())
        monkeypatch.setattr(stacked, "TOGETHER", together * size)
        replicas = moved(Stacked(model(name), range(W), seed=3))
        results = [replicas.compute(loss, [batch(step), batch(step + 10)], step, l2=0.01) for step in range(3)]
        return [tensor.clone() for result in results for tensor in result] + list(replicas.buffers.values())

    for one, other in zip(found(1), found(W // groups), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_the_loop_is_backward_on_each_model(name):
    replicas = moved(Stacked(model(name), range(W)))
    x, y = batch()
    gradients, losses = replicas.compute(loss, [(x, y)], step=0, l2=0.1)
    for i in range(W):
        single = write_row(model(name)(), replicas.parameters[i], replicas.layout).train()
        value = loss(single, x[i], y[i])
        value.backward()
        expected = torch.cat([p.grad.flatten() for p in single.parameters()]) + 0.1 * replicas.parameters[i]
        torch.testing.assert_close(gradients[i], expected, rtol=0, atol=1e-14)
        torch.testing.assert_close(losses[i], value.detach())
        for key, buffer in single.named_buffers():
            torch.testing.assert_close(replicas.buffers[key][i], buffer)


@pytest.mark.filterwarnings("error")  # of kernels that vmap cannot batch
@pytest.mark.parametrize("name", MODELS)
def test_vmap_is_the_loop(name):
    one, other = moved(Stacked(model(name), range(W))), moved(Vmapped(model(name), range(W)))
    for step in range(3):
        g, l1 = one.compute(loss, [batch(step), batch(step + 10)], step)
        h, l2 = other.compute(loss, [batch(step), batch(step + 10)], step)
        torch.testing.assert_close(h, g, rtol=0, atol=1e-13)
        torch.testing.assert_close(l2, l1)
        for key, buffer in one.buffers.items():
            torch.testing.assert_close(other.buffers[key], buffer, rtol=0, atol=1e-13)
        one.load(one.parameters - 0.1 * g)
        other.load(other.parameters - 0.1 * h)


def test_accumulated_gradients_are_the_mean_over_minibatches():
    replicas = moved(Stacked(model("mlp"), range(W)))
    first, second = (replicas.compute(loss, [batch(k)], 0)[0].clone() for k in (0, 1))
    both, _ = replicas.compute(loss, [batch(0), batch(1)], 0)
    torch.testing.assert_close(both, (first + second) / 2)


@pytest.mark.parametrize("engine", [Stacked, Vmapped])
def test_dropout_draws_differ_between_workers_and_steps_and_repeat(engine):
    def dropping():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 5)).double()

    x, y = torch.ones(W, B, 5, dtype=torch.float64), torch.zeros(W, B, dtype=torch.int64)
    replicas = engine(lambda: write_row(dropping(), torch.ones(30), Stacked(dropping, [0]).layout), range(W), seed=1)
    outside = torch.random.get_rng_state()
    first = replicas.compute(loss, [(x, y)], step=0)[0].clone()
    assert torch.equal(torch.random.get_rng_state(), outside), "the process's own randomness is left alone"
    assert torch.equal(first, replicas.compute(loss, [(x, y)], step=0)[0])
    assert not torch.equal(first, replicas.compute(loss, [(x, y)], step=1)[0])
    assert not torch.equal(first[0], first[1])


def test_dropout_of_a_worker_does_not_depend_on_who_else_is_here():
    def dropping():
        torch.manual_seed(0)
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 5)).double()

    x, y = batch()
    everybody = Stacked(dropping, range(W)).compute(loss, [(x, y)], step=2)[0]
    some = Stacked(dropping, range(2, W)).compute(loss, [(x[2:], y[2:])], step=2)[0]
    assert torch.equal(everybody[2:], some)


def test_groups_reach_the_layout():
    replicas = Stacked(model("mlp"), range(W), groups=lambda name, parameter: int(parameter.ndim < 2))
    assert [field.group for field in replicas.layout.fields] == [0, 1, 0, 1]


def test_calibration_is_the_statistics_of_the_data():
    data = [(torch.randn(50, 3, dtype=torch.float64) * 2 + 1,) for _ in range(4)]
    norm = calibrate(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).double().eval(), data)[0]
    torch.testing.assert_close(norm.running_mean, torch.stack([x.mean(0) for (x,) in data]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([x.var(0) for (x,) in data]).mean(0))
    assert norm.momentum == 0.1
    assert not norm.training


@pytest.mark.parametrize("kind", ["batch norm", "convolution"])
def test_calibration_is_that_of_torch(kind: str):
    """`torch.optim.swa_utils.update_bn` over the same batches, of unequal sizes, on networks without dropout."""
    draw = torch.Generator().manual_seed(0)
    if kind == "batch norm":
        net, shape = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.BatchNorm1d(4)), (5,)
    else:
        net, shape = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 2)), (3, 6, 6)
    data = [(2 * torch.randn(size, *shape, generator=draw, dtype=torch.float64) + 1,) for size in (32, 32, 7)]
    ours, theirs = net.double(), copy.deepcopy(net)
    torch.optim.swa_utils.update_bn(data, theirs)
    for name, buffer in calibrate(ours, data).named_buffers():
        torch.testing.assert_close(buffer, dict(theirs.named_buffers())[name], rtol=1e-12, atol=1e-12)


def test_replicas_go_on_from_their_state():
    one, other = moved(Stacked(model("batch norm"), range(W))), Stacked(model("batch norm"), range(W))
    one.compute(loss, [batch()], 0)
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.compute(loss, [batch(1)], 1)[0], other.compute(loss, [batch(1)], 1)[0])
    assert all(torch.equal(one.buffers[key], other.buffers[key]) for key in one.buffers)


class Drawing(nn.Module):
    """Draws from torch's generator without any dropout module, and puts a new tensor in its buffer's place."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x):
        self.seen = 0.9 * self.seen + x.detach().mean(0)
        return nn.functional.dropout(self.layer(x), 0.5, self.training)


def test_any_use_of_torch_s_randomness_repeats_and_new_buffers_are_kept():
    def make():
        torch.manual_seed(0)
        return Drawing().double()

    one, other = Stacked(make, range(W), seed=1), Stacked(make, range(W), seed=1)
    one.compute(loss, [batch(0)], 0)
    other.load_state_dict(one.state_dict())
    left, right = one.compute(loss, [batch(1)], 1)[0], other.compute(loss, [batch(1)], 1)[0]
    assert torch.equal(left, right)
    saved, again = one.state_dict()["buffers"]["seen"], other.state_dict()["buffers"]["seen"]
    assert torch.equal(saved, again)
    assert saved.abs().min() > 0


@pytest.mark.parametrize("engine", [Stacked, Vmapped])
def test_frozen_parameters_stay(engine):
    def make():
        made = model("mlp")()
        made[0].weight.requires_grad_(False)
        return made

    replicas = engine(make, range(W))
    assert [field.name for field in replicas.layout.fields] == ["0.bias", "2.weight", "2.bias"]
    replicas.compute(loss, [batch()], 0, l2=0.1)
    assert torch.equal(replicas.models[1][0].weight, make()[0].weight)
    row = torch.zeros(replicas.layout.d, dtype=torch.float64)
    assert torch.equal(write_row(make(), row, replicas.layout)[0].weight, make()[0].weight)


def test_models_that_cannot_be_stacked_are_refused():
    with pytest.raises(ValueError, match="0 kinds"):
        Stacked(nn.ReLU, range(2))
    with pytest.raises(ValueError, match="2 kinds"):
        Stacked(lambda: nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()), range(2))

    def twice():
        layer = nn.Linear(5, 5)
        return nn.Sequential(layer, nn.Tanh(), layer)

    assert Stacked(twice, range(2)).layout.d == 30
    with pytest.raises(ValueError, match="use engine=loop"):
        Vmapped(twice, range(2))


def test_an_evaluation_on_a_mesh_leaves_parameters_and_buffers_as_they_were():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    worker = ShardedWorker(OnePass(model), PlayedMesh({"shard": 2}))
    before = {name: value.clone() for name, value in (worker.buffers | {"row": worker.parameters}).items()}
    with worker.averaged(Communicator(workers=1)) as (function, _):
        function(torch.randn(4, 3))
        worker.load(torch.zeros_like(worker.parameters))
        assert not any(torch.equal(worker.buffers[name], before[name]) for name in worker.buffers)
    for name, value in (worker.buffers | {"row": worker.parameters}).items():
        assert torch.equal(value, before[name]), name


def test_equal_workers_with_statistics_of_their_own_are_measured_each():
    task = Digits(2, seed=1, model="mlp", hidden=8, norm="batch", batch=8)
    replicas = Stacked(task.model, range(2), seed=5)
    replicas.compute(task.loss, [task.batch(0, range(2))], step=0)
    each = [task.evaluate(model)["val_loss"] for model in replicas.models]
    assert each[0] != each[1]
    found = measure_locals(task, replicas, Communicator(workers=2))["local_val_loss"]
    assert found == pytest.approx(sum(each) / 2)
