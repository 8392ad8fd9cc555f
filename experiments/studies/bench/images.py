"""`commeff bench images`: how fast 8 workers train a ResNet, beside a plain loop over one model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from commeff import Communicator, methods
from commeff.experiments.measure.timing import one_thread, ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import SGD
from commeff.experiments.tasks.images import ImageSet
from commeff.experiments.tasks.supervised import Samples
from commeff.experiments.tasks.vision import Vision
from commeff.replicas.stacked import engine_in

WORKERS, BATCH, IMAGES = 8, 16, 2048
MODELS = ("resnet20", "resnet8")


def task(model: str, workers: int, batch: int, augment: str) -> Vision:
    """Random images of 32 x 32 pixels, ten classes."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (IMAGES, 3, 32, 32), generator=generator, dtype=torch.uint8)
    images = Samples(pixels, torch.arange(IMAGES) % 10)
    data = ImageSet("random", tuple("0123456789"), images, images, (0.5,) * 3, (0.25,) * 3)
    return Vision(
        data,
        workers=workers,
        seed=0,
        model=model,
        norm="batch",
        batch=batch,
        partition="iid",
        augment=augment,
        probe=None,
    )


def plain(model: str, layout: torch.memory_format) -> Callable[[], None]:
    """A step of the loop that everybody writes: one model, one batch of all workers' images, one optimizer."""
    digits = task(model, 1, WORKERS * BATCH, "none")
    network = digits.model()
    optimizer = SGD(network.parameters())
    images, labels = (part[0] for part in digits.batch(0, [0]))
    images = images.contiguous(memory_format=layout)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


def library(model: str, precision: str) -> Callable[[], None]:
    """A step of parallel SGD as the trainer takes it, with the drawing and cropping of images."""
    work, communicator = task(model, WORKERS, BATCH, "crop_flip"), Communicator(workers=WORKERS)
    replicas, strategy = engine_in(precision, "loop")(work.model, range(WORKERS)), methods.psgd(SGD)
    strategy.start(replicas.parameters, replicas.layout, communicator)

    def step() -> None:
        gradients, _ = replicas.compute(work.loss, [work.batch(communicator.step, range(WORKERS))], communicator.step)
        replicas.load(strategy.step(replicas.parameters, gradients, communicator, donate=True))
        communicator.step += 1

    return step


def run(rounds: int = 9) -> list[MeasuredRatio]:
    """CPU time of a step of one model with 128 images over that of 8 workers with 16 each, and images a second."""
    figures = []
    with one_thread():
        for model in MODELS:
            contestants = {
                "plain": plain(model, torch.contiguous_format),
                "channels last": plain(model, torch.channels_last),
                **{name: library(model, name) for name in ("fp32", "bf16_mixed")},
            }
            seconds = time_interleaved(contestants, rounds)
            subject = f"{model}, {WORKERS} workers x {BATCH} images"
            for name, least in (("fp32", 0.95), ("bf16_mixed", None)):
                figures.append(
                    MeasuredRatio(subject, f"plain loop / library in {name}", ratio(seconds, "plain", name), least)
                )
            last = ratio(seconds, "plain", "channels last")
            figures.append(MeasuredRatio(subject, "plain loop / plain loop, channels last", last))
            for name, times in seconds.items():
                speed = WORKERS * BATCH * len(times) / sum(times)
                figures.append(MeasuredRatio(subject, f"images a CPU second, {name}", speed))
    return figures
