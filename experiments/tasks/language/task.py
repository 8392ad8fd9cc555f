"""Next-byte prediction: a small GPT on any text file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff.experiments.tasks.checks import DTYPES, at_least, choose
from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.text import KNOWN, load, pieces, spaced, windows
from commeff.experiments.tasks.models import seeded
from commeff.experiments.tasks.sampler import WINDOW, Stream, philox
from commeff.experiments.tasks.settled import Settled, from_here
from commeff.experiments.tasks.supervised import evaluating

VOCABULARY = 256  # all bytes, whether the text has them or not
CHUNK = 8192  # about as many bytes evaluated at a time


class Language(Settled):
    """Predict the next byte of a text by cross-entropy, in nats per byte (divide by ln 2 for bits).

    The vocabulary is always the 256 bytes, not those that occur: models have the same shape and losses the same unit
    on every text, no file is refused for a character, and those that never occur cost width numbers each.

    A sample is a window of context + 1 bytes: context inputs, each with the byte after it as its target. Workers draw
    windows at random places, with replacement; an epoch is as many bytes as the training text has. Validation windows
    are spread evenly and share no target, and the first byte of a window is all that its first prediction knows: losses
    at different contexts do not compare.

    Parameters
    ----------
    workers : n.
    seed : of the windows and the initial parameters.
    data : "tinyshakespeare", "wikitext-2", or a file: absolute, relative to where the command is typed, or within
        data_dir. wikitext-2 has its own splits, every other text is cut in text order: 90 % training, 5 % validation,
        5 % test.
    data_dir : the folder that holds the files; None: the environment variable COMMEFF_DATA.
    layers, heads, width, context, dropout : of the `GPT`.
    batch : windows per worker and step.
    partition : "iid": every worker draws from the whole training text; "contiguous": worker i from the i-th of n equal
        pieces, so workers differ as the text does.
    probe : about as many training and as many validation bytes are predicted at each evaluation; the test predicts all
        of the test text.
    dtype : "float32" or "float64".

    Raises
    ------
    DataError: a file is missing, empty, not a regular file or cut short.

    >>> Language(workers=8, width=64, heads=3)
    Traceback (most recent call last):
    ValueError: 3 heads cannot share width 64 evenly: choose a multiple of 3
    """

    def __init__(
        self,
        workers: int,
        seed: int = 0,
        data: str = "tinyshakespeare",
        data_dir: str | None = None,
        layers: int = 2,
        heads: int = 4,
        width: int = 64,
        context: int = 64,
        dropout: float = 0.0,
        batch: int = 8,
        partition: str = "iid",
        probe: int = 16384,
        dtype: str = "float32",
    ) -> None:
        at_least(1, workers=workers, batch=batch, probe=probe)
        at_least(0, seed=seed)
        self._dtype, self._seed, self._shape = choose("dtype", dtype, DTYPES), seed, (batch, context)
        self._build = partial(GPT, VOCABULARY, layers, heads, width, context, dropout)
        self.model()  # making one refuses what it cannot be
        self.text = load(data, data_dir)
        self.pieces = pieces(partition, len(self.text.train), workers)
        shortest = min(stop - start for start, stop in self.pieces)
        for name, length in (
            (f"training piece of each of {workers} workers", shortest),
            ("validation text", len(self.text.validation)),
            ("test text", len(self.text.test)),
        ):
            if length <= context:
                raise ValueError(
                    f"the {name} in {data} has {length} bytes and a window {context + 1}: "
                    "take a longer text, a smaller context or fewer workers"
                )
        self.workers, self.size = workers, (len(self.text.train) - 1) // context
        self.probe, self.validation = (spaced(part, context, probe) for part in (self.text.train, self.text.validation))
        self._stream = Stream(self._starts, workers, WINDOW)

    @classmethod
    def settled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """With the full path of a text that is given relative to the working directory."""
        data = settings["data"]
        return {**settings, "data": data if data in KNOWN else from_here(data, Path.is_file)}

    def model(self) -> nn.Module:
        """A fresh GPT; the same initial parameters at every call."""
        return seeded(self._build, self._seed).to(self._dtype)

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The windows (w, b, context + 1) of `workers` at `step`: a pure function of (seed, step, workers)."""
        return (windows(self.text.train, self._stream.at(step, workers), self._shape[1]),)

    def loss(self, model: Callable[..., Any], *batch: Tensor) -> Tensor:
        """Mean cross-entropy of one worker's windows (b, context + 1), a scalar."""
        (tokens,) = batch
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss over the probe, val_loss and val_accuracy (next bytes guessed) over the validation windows."""
        train_loss, _ = self._measure(model, self.probe)
        val_loss, val_accuracy = self._measure(model, self.validation)
        return {"train_loss": train_loss, "val_loss": val_loss, "val_accuracy": val_accuracy}

    def test(self, model: nn.Module) -> dict[str, float]:
        """test_loss, test_accuracy over all windows of the test text."""
        loss, accuracy = self._measure(model, spaced(self.text.test, self._shape[1]))
        return {"test_loss": loss, "test_accuracy": accuracy}

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Nothing: there is no BatchNorm."""
        return ()

    def _starts(self, worker: int, window: int) -> Tensor:
        """(WINDOW, b): where the windows of so many steps begin, each inside the worker's piece."""
        batch, context = self._shape
        start, stop = self.pieces[worker]
        uniform = np.random.Generator(philox(self._seed, worker, 0, stream=window + 1))
        return torch.from_numpy(uniform.integers(start, stop - context, (WINDOW, batch)))

    def _measure(self, model: nn.Module, tokens: Tensor) -> tuple[float, float]:
        """Mean loss and share of bytes guessed; the sums over chunks in float64."""
        loss, hits = 0.0, 0.0
        with evaluating(model):
            for part in tokens.split(max(1, CHUNK // self._shape[1])):
                logits, targets = model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()
                loss += float(F.cross_entropy(logits, targets, reduction="none").sum(dtype=torch.float64))
                hits += float((logits.argmax(-1) == targets).sum())
        count = tokens[:, 1:].numel()
        return loss / count, hits / count
