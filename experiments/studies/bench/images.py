"""`commeff bench images`: how fast 8 workers train a ResNet, beside a plain loop over one model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import torch

from commeff import methods
from commeff.experiments.measure.timing import ratio, time_interleaved
from commeff.experiments.studies.bench.ratios import MeasuredRatio
from commeff.experiments.studies.bench.subjects import SGD, Step, library, loop, noise
from commeff.replicas.engines import engine_in

WORKERS, BATCH = 8, 16
MODELS = ("resnet20", "resnet8")


def plain(model: str, layout: torch.memory_format) -> Step:
    """A step of the loop that everybody writes: one model, one batch of all workers' images, one optimizer."""
    task = noise(model, 1, "batch", WORKERS * BATCH)
    network = task.model()
    images, labels = (part[0] for part in task.batch(0, [0]))
    return loop(network, SGD(network.parameters()), (images.contiguous(memory_format=layout), labels))


def trained(model: str, precision: str) -> Callable[[], None]:
    """A step of parallel SGD as the trainer takes it, with the drawing and cropping of images."""
    task = noise(model, WORKERS, "batch", BATCH, "crop_flip")
    replicas = engine_in(precision, "loop")(task.model, range(WORKERS))
    return library(replicas, methods.psgd(SGD), task.loss, (task.batch(step, range(WORKERS)) for step in count()))


def run(rounds: int = 9) -> Iterator[MeasuredRatio]:
    """CPU time of a step of one model with 128 images over that of 8 workers with 16 each, and images a second."""
    for model in MODELS:
        contestants: dict[str, Callable[[], object]] = {
            "plain": plain(model, torch.contiguous_format),
            "channels last": plain(model, torch.channels_last),
            **{name: trained(model, name) for name in ("fp32", "bf16_mixed")},
        }
        seconds = time_interleaved(contestants, rounds)
        subject = f"{model}, {WORKERS} workers x {BATCH} images"
        for name, least in (("fp32", 0.95), ("bf16_mixed", None)):
            yield MeasuredRatio(subject, f"plain loop / library in {name}", ratio(seconds, "plain", name), least)
        last = ratio(seconds, "plain", "channels last")
        yield MeasuredRatio(subject, "plain loop / plain loop, channels last", last)
        for name, times in seconds.items():
            speed = WORKERS * BATCH * len(times) / sum(times)
            yield MeasuredRatio(subject, f"images a CPU second, {name}", speed)
