"""`python -m commeff.experiments.studies.batch_norm`: which BatchNorm statistics the average model is evaluated with.

Each run trains a ResNet-8 with BatchNorm on CIFAR-10 by 8 workers and evaluates its last average model several times:
the parameters are the same, the statistics are not. Training sees cropped and mirrored images.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from commeff.communicator import Communicator
from commeff.experiments.config import build
from commeff.experiments.config.compose import compose
from commeff.experiments.report.data.statistics import estimate
from commeff.experiments.report.write.page import Page
from commeff.experiments.report.write.table import Table
from commeff.replicas import Stacked
from commeff.training.evaluation import calibrate, measure_locals
from commeff.training.run import Run

WORKERS, BATCH, STEPS, SEEDS = 8, 16, 1600, (0, 1, 2)
WORDS = (
    "task=cifar10 task.variant=whole task.model=resnet8 task.norm=batch task.partition=iid "
    f"task.batch={BATCH} workers={WORKERS} steps={STEPS} optimizer=momentum optimizer.lr=0.1 schedule=cosine"
).split()
METHODS = {"parallel SGD": ["method=psgd"], "gossip on a ring": ["method=dsgd", "topology=ring"]}
PLAIN = "plain images, 2,048 in batches of 256"
RUNNING = "running averages, each worker's own model"
PAGE = """# Which statistics should BatchNorm have in the average model?

{workers} simulated workers train a ResNet-8 for {steps} steps of {workers} x {batch} images ({data}). Rows of a
table evaluate the same parameters: the average model of the last step. Only the estimate of BatchNorm's mean and
variance differs. The last row is the mean over the workers' own models, each with the running averages of its own
training; parallel SGD's workers all have the parameters of the average model. Training batches are cropped and
mirrored, plain images are not. ± is half a 95 % interval over seeds; differences are paired by seed.

Measured: `python -m commeff.experiments.studies.batch_norm --data FOLDER`, commit {commit}, {cpu}, torch {torch},
seeds {seeds}.

{found}
"""


def training(task: Any, size: int, images: int) -> Iterator[tuple[Tensor, ...]]:
    """Training batches as the task draws them for all workers, regrouped to `size` images, `images` in all."""
    drawn = (task.batch(step, range(WORKERS))[0].flatten(0, 1) for step in range(images // (WORKERS * BATCH)))
    for batch in torch.cat([*drawn]).split(size):
        yield (batch,)


def plain(task: Any, size: int, images: int) -> Iterator[tuple[Tensor, ...]]:
    """Training images as they lie in the file."""
    for batch, _ in task.train.some(images).chunks(size):
        yield (batch,)


STATISTICS = {
    "plain images, 512 in batches of 256": partial(plain, size=256, images=512),
    PLAIN: partial(plain, size=256, images=2048),
    "plain images, 2,048 in batches of 16": partial(plain, size=16, images=2048),
    "training batches, 512 in batches of 256": partial(training, size=256, images=512),
    "training batches, 2,048 in batches of 256": partial(training, size=256, images=2048),
    "training batches, 2,048 in batches of 16": partial(training, size=16, images=2048),
    "training batches, 8,192 in batches of 256": partial(training, size=256, images=8192),
}


def run(method: Sequence[str], seed: int, data: str | None) -> list[dict[str, Any]]:
    """A row for each way to estimate the statistics of one run's average model."""
    config = compose([*WORDS, *method, f"seed={seed}", *([f"data_dir={data}"] if data else [])])
    task: Any = build.part(config, "task")
    strategy = build.strategy(config)
    communicator = Communicator(workers=WORKERS, seed=seed)
    done = Run.start(Stacked(task.model, range(WORKERS), seed), strategy, communicator)
    for communicator.step in range(STEPS):
        gradient = done.gradient(task.loss, done.draw(task))
        done.finish_step(strategy.step(done.replicas.parameters, gradient, communicator))
    with done.replicas.averaged(communicator) as (model, _):
        rows = [{"statistics": name} | task.evaluate(calibrate(model, of(task))) for name, of in STATISTICS.items()]
    local = measure_locals(task, done.replicas, communicator)
    rows.append({"statistics": RUNNING} | {name.removeprefix("local_"): value for name, value in local.items()})
    return [{"seed": seed, "data": task.label} | row for row in rows]


def page(runs: pd.DataFrame) -> Iterator[str]:
    """The table of validation accuracies and losses, and differences to plain images, paired by seed."""
    for method in METHODS:
        pivoted = runs[runs["method"] == method].pivot(index="seed", columns="statistics")
        yield from (f"## {method}", "", "| statistics | accuracy (%) | − plain (points) | loss |")
        yield "|:--|--:|--:|--:|"
        for name in (*STATISTICS, RUNNING):
            accuracy, loss = 100 * pivoted["val_accuracy"], pivoted["val_loss"]
            gain = accuracy[name] - accuracy[PLAIN]
            yield f"| {name} | {_words(accuracy[name], 1)} | {_words(gain, 2)} | {_words(loss[name], 3)} |"
        yield ""


def _words(values: pd.Series, digits: int) -> str:
    mean = estimate(values)
    assert mean is not None
    return f"{mean.mean:.{digits}f}" + ("" if mean.half is None else f" ± {mean.half:.{digits}f}")


def write(out: Path, data: str | None) -> None:
    """Write report.md and runs.csv."""
    rows = [
        {"method": name} | row for name, words in METHODS.items() for seed in SEEDS for row in run(words, seed, data)
    ]
    runs = pd.DataFrame(rows)
    words = {
        "steps": STEPS,
        "batch": BATCH,
        "workers": WORKERS,
        "data": runs["data"][0],
        "torch": torch.__version__,
        "seeds": ", ".join(map(str, SEEDS)),
        "found": "\n".join(page(runs)),
    }
    Page("report", PAGE, [Table("runs", "", [], data=runs)], words=words, digits=6).write(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m commeff.experiments.studies.batch_norm", description=__doc__)
    parser.add_argument("--data", help="the folder of CIFAR-10; unless given, COMMEFF_DATA")
    parser.add_argument("--out", type=Path, default=Path("results/batch_norm"), help="the folder of the page")
    arguments = parser.parse_args()
    write(arguments.out, arguments.data)
