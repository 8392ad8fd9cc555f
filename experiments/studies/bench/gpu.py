"""`commeff bench gpu`: shares of a GPU's copy bandwidth, and models on it beside the loops that everybody writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from commeff import methods
from commeff.cluster.hardware import gpu_called
from commeff.experiments.measure.timing import ratio, time_interleaved
from commeff.experiments.studies.bench import codecs, mix
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.step import loss, naive
from commeff.experiments.studies.bench.subjects import SGD, Step, library, loop, resnet20
from commeff.experiments.tasks.language.presets import preset
from commeff.experiments.tasks.shapes import shapes_only
from commeff.experiments.tasks.work import minibatch_flops
from commeff.replicas.engines import engine_in
from commeff.replicas.stacked import compile_models

LENGTH = 2**27  # numbers of a codec's vector, about those of GPT-2: 512 MiB, several times a GPU's cache
CALLS = 3  # steps that are timed together
WORKERS, IMAGES = 8, 128
SEQUENCES, CONTEXT, VOCABULARY = 16, 1024, 50304
GPT2 = preset("gpt2")
ADAMW = partial(torch.optim.AdamW, lr=3e-4, betas=(0.9, 0.95), fused=True)


def stacked(device: str, images: int, rounds: int) -> list[MeasuredRatio]:
    """8 workers of a ResNet-20 with GroupNorm beside 8 models with an optimizer each."""

    def model() -> nn.Module:
        return resnet20().to(device)

    x = torch.randn(WORKERS, images, 3, 32, 32, device=device)
    y = torch.randint(10, (WORKERS, images), device=device)
    contestants = {
        "naive": naive(model, x, y, True),
        **{
            engine: library(engine_in("fp32", engine)(model, range(WORKERS)), methods.psgd(SGD), loss, repeat((x, y)))
            for engine in ("loop", "vmap")
        },
    }
    seconds = time_interleaved(contestants, rounds, calls=CALLS, device=device)
    subject = f"ResNet-20, {WORKERS} workers x {images} images"
    return [
        MeasuredRatio(subject, f"naive / engine={engine}", ratio(seconds, "naive", engine))
        for engine in ("loop", "vmap")
    ]


def nanogpt(model: nn.Module, tokens: torch.Tensor, device: str) -> Step:
    """The loop that everybody writes: autocast in bfloat16, fused AdamW."""

    def forward(inputs: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            logits = model(inputs)
        return logits.float().flatten(0, 1)

    return loop(forward, ADAMW(model.parameters()), (tokens[:, :-1], tokens[:, 1:].flatten()))


def gpt(device: str, build: Callable[..., nn.Module], sequences: int, context: int, rounds: int) -> list[MeasuredRatio]:
    """A GPT in bf16, compiled or not, beside the plain loop; and the share of the peak that its products reach, on a
    GPU whose peak is known.
    """

    def model() -> nn.Module:
        return build(vocabulary=VOCABULARY, context=context).to(device)

    def mean(model: Callable[..., torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    tokens = torch.randint(VOCABULARY, (sequences, context + 1), device=device)
    contestants: dict[str, Callable[[], object]] = {}
    for form in ("eager", "compiled"):
        plain = model()
        if form == "compiled":
            compile_models([plain])
        contestants[f"plain {form}"] = nanogpt(plain, tokens, device)
        for precision in ("bf16", "bf16_mixed"):
            replicas = engine_in(precision, "loop")(model, [0])
            contestants[f"{precision} {form}"] = library(replicas, methods.psgd(ADAMW), mean, repeat((tokens[None],)))
            if form == "compiled":
                compile_models(replicas.models)
    seconds = time_interleaved(contestants, rounds, calls=CALLS, device=device)
    with shapes_only():
        whole = build(vocabulary=VOCABULARY, context=context)
    d, flops = sum(p.numel() for p in whole.parameters()), minibatch_flops(whole, mean, tokens)
    known = gpu_called(hardware() if device == "cuda" else device)
    subject = f"GPT of {d / 1e6:.0f} million, {sequences} x {context} tokens"
    ratios = []
    for who, times in seconds.items():
        base = f"plain {who.split()[1]}"
        if who != base:
            ratios.append(MeasuredRatio(subject, f"{base} / {who}", ratio(seconds, base, who)))
        if known:
            utilisation = CALLS * flops / min(times) / known.peak_flops["bf16"]
            ratios.append(MeasuredRatio(subject, f"model FLOP utilisation, {who}", utilisation))
    return ratios


def hardware() -> str:
    """The name of the GPU, for the table."""
    return torch.cuda.get_device_name()


def run(
    device: str = "cuda",
    build: Callable[..., nn.Module] = GPT2,
    sequences: int = SEQUENCES,
    context: int = CONTEXT,
    images: int = IMAGES,
    d: int = 10**7,
    length: int = LENGTH,
    rounds: int = 7,
) -> Iterator[MeasuredRatio]:
    """All figures, on a GPU; in small also on the CPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("bench gpu needs a GPU, and torch sees none here")
    yield from gpt(device, build, sequences, context, rounds)
    yield from stacked(device, images, rounds)
    yield from mix.run(d, rounds, device)
    yield from codecs.run(length, rounds, device)
