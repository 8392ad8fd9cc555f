"""The communication hook: any compressor under DDP, bucket by bucket."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from commeff import Communicator, Encoder, ErrorFeedback
from commeff.adapters.ddp_hook import HookState, average_hook
from commeff.compressors import QSGD, Dense, Layout, PerTensor, ScaledSign, TopK
from commeff.transforms.encoders import as_encoder
from tests.laws.processes import on_processes, through_a_file

STEPS, N = 5, 2
SGD = partial(torch.optim.SGD, lr=0.01)
ENCODERS: dict[str, Callable[[], Encoder]] = {
    "top_k": lambda: ErrorFeedback(TopK(ratio=0.1)),
    "sign": lambda: ErrorFeedback(PerTensor(ScaledSign())),
    "qsgd": lambda: as_encoder(QSGD(levels=4)),
}


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 3)).double()


def gradients(model: nn.Module, step: int, worker: int) -> None:
    generator = torch.Generator().manual_seed(10 * step + worker)
    model(torch.randn(4, 6, generator=generator).double()).square().mean().backward()


def row(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def under_ddp(encoder: Encoder, megabytes: float, static: bool = False) -> tuple[Tensor, float, int]:
    rank = torch.distributed.get_rank()
    model = DistributedDataParallel(net(), bucket_cap_mb=megabytes, static_graph=static)
    state = HookState(encoder)
    model.register_comm_hook(state, average_hook)
    optimizer = SGD(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        gradients(model, step, rank)
        optimizer.step()
    return row(model), state.communicator.ledger.payload_bytes, len(state.encoders)


def test_dense_messages_are_ddp() -> None:
    wanted = net()
    optimizer = SGD(wanted.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        for worker in range(N):
            gradients(wanted, step, worker)
        for parameter in wanted.parameters():
            parameter.grad /= N
        optimizer.step()
    for mine, payload, _ in on_processes(N, lambda: under_ddp(as_encoder(Dense()), 25)):
        assert torch.allclose(mine, row(wanted), rtol=0, atol=1e-12)
        assert payload == STEPS * row(wanted).numel() * 8


@pytest.mark.parametrize("name", ENCODERS)
def test_a_bucket_is_encoded_as_by_hand(name: str) -> None:
    """One bucket: a dense step, then the encoder on the gradients in the order in which DDP lays them out."""
    found = on_processes(N, lambda: under_ddp(ENCODERS[name](), 25))
    model, encoder, communicator = net(), ENCODERS[name](), Communicator(workers=N).child("bucket0")
    parameters = list(model.parameters())[::-1]  # ready last, first in the bucket
    layout = Layout.of([(str(i), tuple(p.shape)) for i, p in enumerate(parameters)])
    for communicator.step in range(STEPS):
        each = []
        for worker in range(N):
            model.zero_grad()
            gradients(model, communicator.step, worker)
            each.append(torch.cat([parameter.grad.flatten() for parameter in parameters]))
        vectors = torch.stack(each)
        if communicator.step == 1:
            encoder.start(torch.zeros_like(vectors), layout, communicator)
        mean = vectors.mean(0)
        if communicator.step:
            mean = communicator.average(encoder.encode(vectors, communicator, "up"))[0]
        with torch.no_grad():
            for parameter, field in zip(parameters, layout.fields, strict=True):
                parameter -= 0.01 * mean[field.start : field.stop].view(field.shape)
    for mine, _, buckets in found:
        assert buckets == 1
        assert torch.allclose(mine, row(model), rtol=0, atol=1e-12)


@pytest.mark.parametrize("static", [False, True])
def test_many_buckets_stay_in_step(static: bool) -> None:
    """Also when DDP lays them out anew after the second step."""
    (one, sent, buckets), (other, *_) = on_processes(
        N, lambda: under_ddp(ErrorFeedback(TopK(ratio=0.1)), 0.005, static)
    )
    assert buckets > 1
    assert torch.equal(one, other)
    assert 0 < sent < 0.5 * STEPS * one.numel() * 8


def test_saved_memories_are_gone_on_with() -> None:
    """With gradients of zero, what a restarted run sends is what it remembered."""

    def hooked(state: HookState) -> nn.Module:
        model = DistributedDataParallel(net())
        model.register_comm_hook(state, average_hook)
        return model

    def restarted() -> tuple[Tensor, Tensor, int]:
        first = HookState(ErrorFeedback(TopK(ratio=0.1)))
        model = hooked(first)
        for step in range(3):
            gradients(model, step, torch.distributed.get_rank())
        second = HookState(ErrorFeedback(TopK(ratio=0.1)))
        second.load_state_dict(through_a_file(first.state_dict()))
        model = hooked(second)
        gradients(model, 3, 0)  # the dense step
        model.zero_grad()
        (0 * model(torch.ones(1, 6).double()).sum()).backward()
        sent = torch.cat([parameter.grad.flatten() for parameter in list(model.parameters())[::-1]])
        return first.encoders[0].error, sent, second.communicator.step

    found = on_processes(N, restarted)
    errors = torch.cat([error for error, _, _ in found])
    wanted = Communicator(workers=N).average(TopK(ratio=0.1).compress(errors, Communicator(workers=N).random("up")))[0]
    assert wanted.count_nonzero() > 0
    for _, sent, step in found:
        assert torch.allclose(sent, wanted, rtol=0, atol=1e-15)
        assert step == 5
