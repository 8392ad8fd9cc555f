"""A model on several ranks is evaluated as the whole one, and its logits stay where they are."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from commeff.experiments.studies.splitting.account import Account
from commeff.experiments.tasks import Language
from commeff.experiments.tasks.language import task as language
from commeff.sharding import Mesh, guesses, token_losses
from commeff.sharding.schedules import SCHEDULES
from commeff.training.on_device import OnDevice
from commeff.training.sharding import on_mesh
from tests.laws.processes import by_case, on_processes

VOCABULARY, USED = 256, (3, 5, 131, 133)
CONTEXT, WINDOWS, AT_ONCE = 8, 251, 100  # chunks of 100, 100 and 51 windows: shard ranks cannot share the last one
BF16 = {"precision": "bf16"}
KINDS = (torch.float64, torch.float32, torch.bfloat16)
CASES = {  # degrees of the mesh, and what else
    "tensor": ({"tensor": 2}, {}),
    "tensor of 4": ({"tensor": 4}, {}),
    "sequence": ({"tensor": 2}, {"sequence": True}),
    **{schedule: ({"pipeline": 2}, {"schedule": schedule, "micro_batches": 4}) for schedule in SCHEDULES},
    **{f"shard, stage {zero}": ({"shard": 2}, {"zero": zero}) for zero in range(4)},
    "pipeline, tensor": ({"pipeline": 2, "tensor": 2}, {"micro_batches": 2, "sequence": True}),
    "pipeline, shard": ({"pipeline": 2, "shard": 2}, {"schedule": "zbv", "micro_batches": 2, "zero": 1}),
    "pipeline, stage 3": ({"pipeline": 2, "shard": 2}, {"micro_batches": 2, "zero": 3}),
    "shard, tensor": ({"shard": 2, "tensor": 2}, {"zero": 2}),
    "stage 3, tensor": ({"shard": 2, "tensor": 2}, {"zero": 3, "sequence": True}),
    "bf16, tensor": ({"tensor": 2}, BF16),
    "bf16, pipeline": ({"pipeline": 2}, {"micro_batches": 2} | BF16),
    "bf16, shard": ({"shard": 2}, {"zero": 2} | BF16),
}


class Ties(Language):
    """A model that guesses one of four tokens, each at two ranks as likely as another: the largest logit is a tie."""

    def model(self):
        model = super().model()
        with torch.no_grad():
            weight = model.tokens.weight
            weight[list(USED)] *= 100
            weight[VOCABULARY // 2 :] = weight[: VOCABULARY // 2]
        return model


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    text = torch.tensor(USED, dtype=torch.uint8)[torch.randint(4, (50000,), generator=torch.Generator().manual_seed(1))]
    path = tmp_path_factory.mktemp("text") / "text"
    path.write_bytes(text.numpy().tobytes())
    shape = {"layers": 4, "width": 4, "heads": 4, "context": CONTEXT}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(language, "CHUNK", AT_ONCE * CONTEXT)
        yield Ties(4, data=str(path), dtype="float64", probe=WINDOWS * CONTEXT, **shape)


def evaluated(task, degrees, given):
    """What is measured, and the bytes that this rank has sent meanwhile."""
    processes = math.prod(degrees.values())
    mesh = Mesh(**degrees, worker=4 // processes)
    model = on_mesh(task, mesh, **given).models[0]
    with Account() as account:
        return OnDevice(task, "cpu").evaluate(model), account.bytes.total()


@pytest.fixture(scope="module")
def outcomes(task):
    return on_processes(4, lambda: by_case(CASES, lambda case: evaluated(task, *CASES[case])))


@pytest.fixture(scope="module")
def whole(task):
    """What is measured of the whole model, in 64 bits and in 16."""
    model, low = task.model(), task.model().bfloat16()
    (probe,), (validation,) = task.probe, task.validation  # of its one text
    logits = model(validation[:, :-1])
    assert len(probe) == len(validation) == WINDOWS
    assert ((logits == logits.amax(-1, keepdim=True)).sum(-1) == 2).all(), "no ties: guesses say nothing of them"
    forward = low.forward
    low.forward = lambda tokens: forward(tokens).float()
    return task.evaluate(model), task.evaluate(low)


@pytest.mark.parametrize("case", CASES)
def test_losses_and_hits_are_those_of_the_whole_model(outcomes, whole, case):
    in_16_bits = "precision" in CASES[case][1]
    expected = whole[in_16_bits]
    assert 0.1 < expected["val_accuracy"] < 0.9
    for measured, _ in (rank[case] for rank in outcomes):
        assert measured == outcomes[0][case][0], "all ranks know the same"
        if case == "bf16, tensor":  # products in 16 bits are summed over ranks
            assert measured == pytest.approx(expected, rel=0.02)
        else:
            assert measured == pytest.approx(expected, rel=1e-6 if in_16_bits else 1e-12)
            assert measured["val_accuracy"] == expected["val_accuracy"]


@pytest.mark.parametrize("case", CASES)
def test_no_logits_are_sent(outcomes, case):
    """A rank sends fewer bytes than a third of all logits has, 64 times as many as the activations of a layer."""
    logits = 2 * WINDOWS * CONTEXT * VOCABULARY * (2 if "bf16" in case else 8)
    for _, sent in (rank[case] for rank in outcomes):
        assert 0 < sent < logits / 3


def test_guesses_and_losses_of_parts_are_those_of_whole_logits():
    """Also of several largest logits, and of those that are no numbers."""
    random = torch.Generator().manual_seed(3)
    logits = torch.randint(-2, 3, (50, 3, 8), generator=random).double()
    targets = torch.randint(8, (50, 3), generator=random)
    strange = logits.clone()
    strange[:2] = torch.nan
    strange[2:10].flatten()[torch.randint(192, (40,), generator=random)] = torch.nan
    strange[10:20, :, 5] = torch.inf
    strange[20:22] = -torch.inf

    def member():
        axis = Mesh(tensor=4).axis("tensor")
        losses = token_losses(axis.part(logits, -1), targets, axis)
        return losses, *(guesses(axis.part(x.to(kind), -1), axis) for x in (logits, strange) for kind in KINDS)

    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(50, 3)
    for losses, *guessed in on_processes(4, member):
        assert (losses - expected).abs().max() <= 1e-12
        plain, odd = guessed[: len(KINDS)], guessed[len(KINDS) :]
        assert all(torch.equal(tokens, logits.argmax(-1)) for tokens in plain)
        assert all(torch.equal(tokens, strange.argmax(-1)) for tokens in odd)
