"""Laws of the tasks on labelled samples, on digits: batches, weights, seeds, evaluation, calibration, learning."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from commeff.experiments.tasks import Digits

NETWORKS = [
    {"model": "linear"},
    {"model": "mlp"},
    {"model": "mlp", "norm": "batch", "dropout": 0.2},
    {"model": "cnn", "norm": "batch"},
    {"model": "cnn", "norm": "group", "dropout": 0.2},
]
every_network = pytest.mark.parametrize("network", NETWORKS, ids=lambda network: " ".join(map(str, network.values())))


def own(batch: tuple[torch.Tensor, ...], row: int) -> tuple[torch.Tensor, ...]:
    return tuple(part[row] for part in batch)


def gradient(task: Digits, loss: torch.Tensor, model: nn.Module) -> torch.Tensor:
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])


def test_the_split_is_fixed_stratified_and_uses_every_image_once() -> None:
    one, other = Digits(2, seed=0, dtype="float64"), Digits(5, seed=1, dtype="float64")
    assert torch.equal(one.validation.inputs, other.validation.inputs)
    assert torch.equal(one.train.targets, other.train.targets)
    parts = (one.train, one.validation, one.held_back)
    assert [len(part) for part in parts] == [1077, 360, 360]
    images = torch.cat([part.inputs for part in parts]).flatten(1)
    assert len(images.unique(dim=0)) == 1797
    assert (images.min(), images.max()) == (0, 1)
    for part in parts[1:]:
        shares = one.train.targets.bincount() / 1077 - part.targets.bincount() / 360
        assert shares.abs().max() < 3 / 360


def test_who_writes_into_a_tasks_samples_changes_no_other_task() -> None:
    for part in ("train", "validation", "held_back"):
        samples = getattr(Digits(2), part)
        samples.inputs.zero_()
        samples.targets.fill_(3)
        fresh = getattr(Digits(2), part)
        assert fresh.inputs.any()
        assert len(fresh.targets.unique()) == 10


@every_network
def test_a_batch_is_what_its_workers_hold_and_nothing_depends_on_who_else_is_asked(network: dict) -> None:
    task = Digits(8, seed=4, batch=16, **network)
    everyone = task.batch(3, range(8))
    for workers in ([0], [7, 2], range(8)):
        for mine, all_rows in zip(Digits(8, seed=4, batch=16, **network).batch(3, workers), everyone, strict=True):
            assert torch.equal(mine, all_rows[list(workers)])
    inputs, targets = everyone
    assert inputs.shape == (8, 16, 1, 8, 8)
    for worker, held in enumerate(task.partition.indices):
        held_inputs, held_targets = task.train.take(torch.from_numpy(held))
        pairs = zip(held_inputs, held_targets, strict=True)
        samples = {(tuple(x.flatten().tolist()), int(y)) for x, y in pairs}
        drawn = zip(inputs[worker], targets[worker], strict=True)
        assert all((tuple(x.flatten().tolist()), int(y)) in samples for x, y in drawn)


@every_network
def test_models_start_equal_and_leave_the_global_generator_alone(network: dict) -> None:
    torch.rand(1)
    before = torch.get_rng_state()
    task = Digits(2, seed=3, **network)
    first, again = task.model().state_dict(), task.model().state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = Digits(2, seed=4, **network).model().state_dict()
    assert not all(torch.equal(first[name], other[name]) for name in first)


@every_network
def test_evaluation_is_deterministic_changes_nothing_and_restores_every_mode(network: dict) -> None:
    task = Digits(2, **network)
    model = task.model()
    list(model.modules())[-1].eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    assert task.evaluate(model) == task.evaluate(model)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_are_restored_when_evaluation_fails() -> None:
    task, model = Digits(2), nn.Sequential(nn.Flatten(), nn.Linear(3, 10))
    with pytest.raises(RuntimeError):
        task.evaluate(model)
    assert model.training


def test_evaluation_is_the_mean_over_all_samples() -> None:
    task = Digits(2, model="cnn", dtype="float64")
    model = task.model()
    report = task.evaluate(model)
    train_loss = task.loss(model, task.train.inputs, task.train.targets).item()
    outputs = model(task.validation.inputs)
    val_loss = nn.functional.cross_entropy(outputs, task.validation.targets).item()
    assert report["train_loss"] == pytest.approx(train_loss, rel=1e-13)
    assert report["val_loss"] == pytest.approx(val_loss, rel=1e-13)
    assert report["val_accuracy"] == float((outputs.argmax(1) == task.validation.targets).double().mean())


@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_objective_is_that_of_all_workers_or_of_all_samples(weighted: bool) -> None:
    """Over one pass, the mean over workers of the loss is (1/n) sum f_i, or sum p_i f_i: the mean over all samples."""
    task = Digits(4, model="linear", partition="dirichlet", alpha=0.5, batch=1, weighted=weighted, dtype="float64")
    model = task.model()
    whole = [
        tuple(part[0] for part in task.train.take(torch.from_numpy(held)[None])) for held in task.partition.indices
    ]
    losses = torch.stack([task.loss(model, *data) for data in whole])
    one_pass = []
    for worker, size in enumerate(task.partition.sizes):
        drawn = [task.loss(model, *own(task.batch(step, [worker]), 0)) for step in range(size)]
        one_pass.append(torch.stack(drawn).mean())
    mean = torch.stack(one_pass).mean().item()
    over_workers, over_samples = losses.mean().item(), task.evaluate(model)["train_loss"]
    assert mean == pytest.approx(over_samples if weighted else over_workers, rel=1e-12)
    assert abs(over_samples - over_workers) > 1e-3  # the two objectives differ here


def test_weights_scale_the_gradient_by_n_p_i() -> None:
    plain, weighted = (Digits(4, weighted=weighted, dtype="float64") for weighted in (False, True))
    model = plain.model()
    for worker, share in enumerate(plain.partition.weights):
        loss, scaled = (task.loss(model, *own(task.batch(2, [worker]), 0)) for task in (plain, weighted))
        torch.testing.assert_close(gradient(weighted, scaled, model), 4 * share * gradient(plain, loss, model))


@every_network
@pytest.mark.parametrize(("workers", "batch"), [(2, 32), (3, 200), (1, 7)])
def test_calibration_draws_the_batches_of_every_worker_exactly_where_there_is_batch_norm(
    network: dict, workers: int, batch: int
) -> None:
    """As many as there are training samples, in batches of about 256, whatever a worker draws at a time."""
    task = Digits(workers, batch=batch, **network)
    offered = [inputs for (inputs,) in task.calibration()]
    assert bool(offered) == (network.get("norm") == "batch")
    if offered:
        steps = -(-task.size // (workers * batch))
        drawn = [task.batch(step, range(workers))[0].flatten(0, 1) for step in range(steps)]
        assert torch.equal(torch.cat(offered), torch.cat(drawn))
        assert max(map(len, offered)) < 2 * 256
        task.model()(offered[0])


@pytest.mark.parametrize(
    ("model", "norm", "least"), [("linear", "none", 0.93), ("mlp", "none", 0.95), ("cnn", "batch", 0.97)]
)
def test_plain_sgd_learns_digits(model: str, norm: str, least: float) -> None:
    task = Digits(1, model=model, norm=norm, partition="iid")
    network = task.model()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for step in range(300):
        optimizer.zero_grad()
        task.loss(network, *own(task.batch(step, [0]), 0)).backward()
        optimizer.step()
    assert task.evaluate(network)["val_accuracy"] > least


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"workers": 1078, "partition": "iid"}, "1078 workers need at least 1078 samples, there are 1077"),
        ({"workers": 2, "batch": 0}, "batch must be at least 1"),
        ({"workers": 2, "model": "resnet"}, "model must be one of linear, mlp, cnn"),
        ({"workers": 2, "norm": "layer"}, "norm must be one of none, batch, group"),
        ({"workers": 2, "partition": "even"}, "partition must be one of iid, dirichlet, shards"),
        ({"workers": 2, "dtype": "half"}, "dtype must be one of float32, float64"),
        ({"workers": 2, "hidden": 0}, "hidden must be at least 1"),
        ({"workers": 2, "dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"workers": 2, "alpha": 0.0}, "alpha must be above 0"),
        ({"workers": 2, "model": "linear", "norm": "batch"}, "no hidden layer"),
        ({"workers": 2, "norm": "batch", "batch": 1}, "norm batch needs more than one sample"),
        ({"workers": 2, "seed": -1}, "seed must be at least 0"),
    ],
)
def test_refusals_are_one_line(wrong: dict, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refusal:
        Digits(**wrong)
    assert "\n" not in str(refusal.value)
