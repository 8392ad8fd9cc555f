"""The examples do what their pages say."""

from __future__ import annotations

import runpy
from functools import partial
from pathlib import Path

import pytest
import torch

from commeff import DistributedOptimizer, methods
from tests.laws.processes import on_processes

EXAMPLES = Path(__file__).parents[1] / "examples"
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
TEXT = bytes(range(97, 123)) * 40


def whole(parts):
    return [parameter.full_tensor().detach().clone() for part in parts for parameter in part.parameters()]


def test_a_trainer_in_torchtitan_s_manner_takes_a_method_where_its_optimizers_are_made():
    """Two replicas on two ranks each under parallel SGD train as one replica on four under SGD."""

    def member():
        torch.set_default_dtype(torch.float64)
        trainer = runpy.run_path(str(EXAMPLES / "trainer.py"))
        train = trainer["train"]
        theirs, before = train(
            lambda parts, _: trainer["OptimizersContainer"](parts, SGD), {"dp_replicate": 1, "dp_shard": 4}, steps=4
        )
        ours, after = train(
            lambda parts, mesh: DistributedOptimizer(parts, methods.psgd(SGD), mesh=mesh), trainer["DIMS"], steps=4
        )
        _, losses = train(trainer["ours"], trainer["DIMS"], steps=12)
        return whole(theirs), whole(ours), before, after, losses

    for theirs, ours, before, after, losses in on_processes(4, member):
        assert all((a - b).abs().max() <= 1e-12 for a, b in zip(theirs, ours, strict=True))
        assert torch.allclose(torch.tensor(before), torch.tensor(after), rtol=0, atol=1e-12)
        assert losses[-1] < 0.9 * losses[0]


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_cnn_is_ddp_s_under_psgd_and_learns_under_every_method(n):
    def member():
        script = runpy.run_path(str(EXAMPLES / "cnn_ddp_to_gossip.py"))
        ends = [script["train"](method, epochs=2)[0] for method in ("ddp", "psgd")]
        rest = {method: script["train"](method, epochs=1)[1] for method in script["METHODS"] if method != "psgd"}
        return *map(flat, ends), rest

    for ddp, psgd, rest in on_processes(n, member):
        assert (ddp - psgd).abs().max() <= 1e-6
        assert all(accuracy > 0.15 for accuracy in rest.values()), rest


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_gpt_is_ddp_s_under_psgd_in_each_precision(n):
    """AdamW groups, warm-up, clipping, accumulation: 1e-10 in 64 bits; in 16, losses are near."""

    def member():
        script = runpy.run_path(str(EXAMPLES / "nanogpt_diloco.py"))
        losses = {}
        for dtype in (torch.bfloat16, torch.float16):
            ends = [script["train"](method, TEXT, steps=5, dtype=dtype)[2] for method in ("ddp", "psgd")]
            losses[str(dtype)] = torch.tensor(ends)
        torch.set_default_dtype(torch.float64)
        ends = [script["train"](method, TEXT, steps=6)[0] for method in ("ddp", "psgd")]
        return *map(flat, ends), losses

    for ddp, psgd, losses in on_processes(n, member):
        assert (ddp - psgd).abs().max() <= 1e-10
        for theirs, ours in losses.values():
            assert torch.allclose(theirs, ours, rtol=0, atol=1e-2)
            assert ours[-1] < ours[0]


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_gpt_goes_on_bit_for_bit_under_every_method(n, tmp_path):
    def member():
        script = runpy.run_path(str(EXAMPLES / "nanogpt_diloco.py"))
        pairs = []
        for method in script["METHODS"]:
            whole, _, losses = script["train"](method, TEXT, steps=6)
            script["train"](method, TEXT, steps=6, save=tmp_path / f"{method}.pt", stop=3)
            again, _, all_losses = script["train"](method, TEXT, steps=6, save=tmp_path / f"{method}.pt")
            pairs.append((flat(whole), flat(again), losses == all_losses))
        return pairs

    for pairs in on_processes(n, member):
        for whole, again, same in pairs:
            assert torch.equal(whole, again)
            assert same
