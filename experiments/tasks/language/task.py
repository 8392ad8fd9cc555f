"""Next-token prediction: a small GPT on any text or mixture of texts, by bytes or tokenised."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from commeff import require
from commeff.experiments.data.folder import DataError
from commeff.experiments.data.texts import KNOWN
from commeff.experiments.tasks.language.draws import Draws
from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.huggingface import CONFIG, digest_of, pretrained
from commeff.experiments.tasks.language.llama import Llama
from commeff.experiments.tasks.language.plans import GPT_LAYERS, LLAMA_LAYERS, gpt_plan, llama_plan
from commeff.experiments.tasks.language.presets import PRESETS, Preset, preset
from commeff.experiments.tasks.language.text import (
    common,
    describe,
    load,
    mixture,
    pieces,
    spaced,
    token_folder,
    tokenised,
)
from commeff.experiments.tasks.models import DTYPES, seeded
from commeff.experiments.tasks.settled import Settled, from_here
from commeff.experiments.tasks.shapes import shapes_only
from commeff.experiments.tasks.supervised import evaluating
from commeff.sharding import Axis, Layers, LossLinear, Plan, cross_entropy, guesses, score, token_losses

CHUNK = 8192  # about as many tokens evaluated at a time; fewer of a large vocabulary
LOGITS = 2**26  # as many numbers are their logits, at most, unless those of one window are more
TESTED = 2**22  # as many tokens of the test text are predicted, at most


class Language(Settled):
    """Predict the next token of a text by cross-entropy, in nats per token (divide by ln 2 for bits).

    The tokens of a text as it is are its bytes: always 256, not those that occur. So models have the same shape and
    losses the same unit on every text, no file is refused for a character, and bytes that never occur cost width
    numbers each. `commeff data tokenize` merges pairs of them into a larger vocabulary; losses per token do not compare
    between vocabularies, but divided by the bytes per token, which it prints, they do.

    A sample is a window of context + 1 tokens: context inputs, each with the token after it as its target. An epoch is
    as many windows as cover the training texts. Validation windows are spread evenly and share no target, and the first
    token of a window is all that its first prediction knows: losses at different contexts do not compare.

    Parameters
    ----------
    workers : n.
    seed : of the windows and the initial parameters.
    data : "tinyshakespeare", "wikitext-2", a file, or a folder that `commeff data tokenize` has written: absolute,
        relative to where the command is typed, or within data_dir. wikitext-2 has its own splits, every other text is
        cut in text order: 90 % training, 5 % validation, 5 % test. Or a mixture with weights, such as
        "0.7 wikitext-2 + 0.3 book.txt": of the windows of each worker that share is from each text. Losses and accuracy
        are means over the texts with these weights, and val_loss_1, val_loss_2 ... the losses of each.
    data_dir : the folder that holds the files; None: the environment variable COMMEFF_DATA.
    layers, heads, width, dropout : of the model, unless that is a preset.
    context : tokens of a window.
    batch : windows per worker and step.
    partition : "iid": every worker draws from the whole training text; "contiguous": worker i from the i-th of n equal
        pieces, so workers differ as the text does.
    probe : about as many training and as many validation tokens of each text are predicted at each evaluation; the test
        predicts all of the test text, or four million tokens spread over a longer one.
    dtype : "float32" or "float64".
    documents : windows hold several documents, or parts of them, and attention stays within each: it does not cross a
        separator, and positions count from there. For data that were tokenised with --documents.
    digest : of a tokenised text, and of a model's folder: set by itself, so that a run's name has the tokens and the
        weights that it was made with.
    model : "gpt", or a preset such as "llama_1m", which has its own shape, or a folder with a GPT-2 or Llama of
        Hugging Face (config.json and safetensors), from whose weights training begins. Its vocabulary may be larger
        than that of the text, and its dropout is `dropout`.
    order : "random": windows lie at random places, drawn with replacement; "epoch": in every epoch the text is cut into
        consecutive windows, from a random token on, and each is drawn once, in random order. With partition="iid"
        all workers together draw each window once, with "contiguous" each worker those of its piece. Windows of workers
        who are absent are left out. Each text of a mixture has its own epochs.
    loss_chunks : pieces in which logits and their loss are computed, one after the other, each anew for its gradient;
        1: all at once, and kept.

    Raises
    ------
    DataError: a file is missing, empty, not a regular file or cut short, or not the one that the digest is of.

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
        documents: bool = False,
        digest: str | None = None,
        model: str = "gpt",
        order: str = "random",
        loss_chunks: int = 1,
    ) -> None:
        require.at_least(1, workers=workers, batch=batch, probe=probe, loss_chunks=loss_chunks)
        require.at_least(0, seed=seed)
        self._dtype, self._seed, self._context = require.choose(DTYPES, dtype=dtype), seed, context
        shape: Preset = partial(GPT, layers=layers, heads=heads, width=width, context=context, dropout=dropout)
        if model != "gpt":
            shape = self._preset(model, {"layers": layers, "heads": heads, "width": width, "dropout": dropout})
        with shapes_only():
            first = shape(vocabulary=1)  # making one refuses what it cannot be
        if isinstance(first, GPT) and first.context < context:
            raise ValueError(
                f"context must be at most that of {model}, {first.context}, got {context}: take shorter windows"
            )
        names, weights = mixture(data)
        self.texts = [load(name, data_dir) for name in names]
        vocabulary, separator = common(self.texts)
        if digest not in (None, _digest([text.digest for text in self.texts], model)):
            files = (f"{data} and {model}", "tokens and weights") if _folder(model) else (data, "tokens")
            raise DataError("{} must be the {} that the run was made with, got others: bring those back".format(*files))
        if documents and separator is None:
            raise ValueError(
                f"documents must be false for {data}, which has no separators: tokenise it with --documents"
            )
        self.origin = _folder(model)
        self._build = partial(shape, vocabulary=vocabulary, separator=separator if documents else None)
        with shapes_only():
            self._vocabulary = len(cast("GPT | Llama", self._build()).tokens.weight)
        own = [pieces(partition, len(text.train), workers) for text in self.texts]
        for name, text, parts in zip(names, self.texts, own, strict=True):
            for part, length in (
                (f"training piece of each of {workers} workers", min(stop - start for start, stop in parts)),
                ("validation text", len(text.validation)),
                ("test text", len(text.test)),
            ):
                if length <= context:
                    raise ValueError(
                        f"the {part} in {name} has {length} tokens and a window {context + 1}: "
                        "take a longer text, a smaller context or fewer workers"
                    )
        self._weights, self._chunks = weights, loss_chunks
        self._draws = Draws([text.train for text in self.texts], weights, own, seed, context, batch, order)
        self.workers, self.size = workers, self._draws.size
        self.probe = [spaced(text.train, context, probe) for text in self.texts]
        self.validation = [spaced(text.validation, context, probe) for text in self.texts]

    @staticmethod
    def _preset(name: str, shape: Mapping[str, float]) -> Preset:
        """The preset, beside which no shape is given."""
        defaults = inspect.signature(Language).parameters
        folder = _folder(name)
        given = {key: value for key, value in shape.items() if not (folder and key == "dropout")}
        if changed := [f"{key}={value}" for key, value in given.items() if value != defaults[key].default]:
            raise ValueError(
                f"{' '.join(changed)} must be left out with model={name}, which has its own shape: leave out, or take "
                "model=gpt"
            )
        return pretrained(folder, shape["dropout"]) if folder else preset(name)

    @classmethod
    def settled(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """With the full path of a text that is given relative to the working directory, and the digest of tokens."""
        texts, weights = mixture(settings["data"])
        folders = [token_folder(text, settings["data_dir"]) for text in texts]
        places = [
            text if text in KNOWN else from_here(text, lambda path: path.is_file() or tokenised(path)) for text in texts
        ]
        parts = [f"{weight!r} {place}" for weight, place in zip(weights, places, strict=True)]
        data = " + ".join(parts) if len(parts) > 1 else places[0]
        model = from_here(settings["model"], _is_model) if _folder(settings["model"]) else settings["model"]
        if model in PRESETS and _is_model(Path(model)):
            raise ValueError(f"model={model} must be a preset or a folder, got both: write ./{model} for the folder")
        digests = [describe(folder).digest if folder else None for folder in folders]
        digest = _digest(digests, model) or settings["digest"]
        return {**settings, "data": data, "model": model, "digest": digest}

    def model(self) -> nn.Module:
        """A fresh model; the same initial parameters at every call."""
        model = seeded(self._build, self._seed).to(self._dtype)
        if self._chunks > 1:
            LossLinear.put(cast(nn.Linear, model.head), self._chunks)
        return model

    def batch(self, step: int, workers: Sequence[int]) -> tuple[Tensor, ...]:
        """The windows (w, b, context + 1) of `workers` at `step`: a pure function of (seed, step, workers)."""
        return (self._draws.at(step, workers),)

    def loss(self, model: Callable[..., Any], *batch: Tensor) -> Tensor:
        """Mean cross-entropy of one worker's windows (b, context + 1), a scalar."""
        inputs, targets = self.inputs_targets(*batch)
        return self.criterion(model(*inputs), targets)

    def inputs_targets(self, *batch: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Windows (b, context + 1) -> inputs (b, context), and the token after each of them.

        With `loss_chunks` that is an input, too: the model gives losses (b, context, 1), since nobody has all logits.
        """
        inputs, targets = (batch[0][:, :-1],), batch[0][:, 1:]
        return inputs if self._chunks == 1 else (*inputs, targets), targets

    def criterion(self, outputs: Tensor, targets: Tensor, vocabulary: Axis | None = None) -> Tensor:
        """Mean cross-entropy of logits, which may be split by vocabulary; or the mean of losses."""
        if self._chunks > 1:
            return outputs[..., 0].mean()
        if vocabulary is not None:
            return cross_entropy(outputs, targets, vocabulary)
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def sampled(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        """Tokens drawn from what the model predicts at each place, and their number."""
        drawn = outputs.flatten(0, 1).softmax(-1).multinomial(1)
        return drawn.view(targets.shape), targets.numel()

    def plan(self, model: nn.Module) -> Plan:
        """How the modules of the model are split over tensor ranks."""
        return llama_plan(model) if isinstance(model, Llama) else gpt_plan(cast(GPT, model))

    def layers(self, model: nn.Module) -> Layers:
        """How the modules of the model follow each other, for the stages of a pipeline."""
        return LLAMA_LAYERS if isinstance(model, Llama) else GPT_LAYERS

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """train_loss over the probe, val_loss and val_accuracy (next tokens guessed) over the validation windows.

        Of a mixture also val_loss_1, val_loss_2 ..., those of its texts.
        """
        (train_loss, _), _ = self._measure(model, self.probe)
        (val_loss, val_accuracy), own = self._measure(model, self.validation)
        losses = {f"val_loss_{number}": loss for number, (loss, _) in enumerate(own, 1)} if len(own) > 1 else {}
        return {"train_loss": train_loss, "val_loss": val_loss, "val_accuracy": val_accuracy} | losses

    def test(self, model: nn.Module) -> dict[str, float]:
        """test_loss, test_accuracy over the windows of the test text."""
        (loss, accuracy), _ = self._measure(model, [spaced(text.test, self._context, TESTED) for text in self.texts])
        return {"test_loss": loss, "test_accuracy": accuracy}

    def calibration(self) -> Iterable[tuple[Tensor, ...]]:
        """Nothing: there is no BatchNorm."""
        return ()

    def _measure(self, model: nn.Module, texts: Sequence[Tensor]) -> tuple[list[float], list[tuple[float, float]]]:
        """Mean loss and share of tokens guessed, weighted as the mixture is; and both of each text."""
        own = [self._measured(model, tokens) for tokens in texts]
        return [float(np.average(column, weights=self._weights)) for column in zip(*own, strict=True)], own

    def _measured(self, model: nn.Module, tokens: Tensor) -> tuple[float, float]:
        """Mean loss and share of tokens guessed; the sums over chunks in float64."""
        size = max(1, min(CHUNK, LOGITS * self._chunks // self._vocabulary) // self._context)
        with evaluating(model):
            scores = _scores if self._chunks == 1 else _sums
            sums = [score(model, scores, *self.inputs_targets(part)).sum(0) for part in tokens.split(size)]
        loss, accuracy = (torch.stack(sums).sum(0) / tokens[:, 1:].numel()).tolist()
        return loss, accuracy


def _scores(logits: Tensor, targets: Tensor, vocabulary: Axis | None) -> Tensor:
    """(b, 2): of each window the sum of its tokens' losses, and how many are guessed; logits may be split."""
    if vocabulary is None:
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape)
        guessed = logits.argmax(-1)
    else:
        losses, guessed = token_losses(logits, targets, vocabulary), guesses(logits, vocabulary)
    return _sums(torch.stack((losses.double(), guessed == targets), -1))


def _sums(scores: Tensor, *_: object) -> Tensor:
    """(b, t, 2) -> (b, 2): of each window the sums of what is known of its tokens."""
    return scores.double().sum(1)


def _is_model(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def _folder(model: str) -> Path | None:
    """The folder from whose weights training begins, where the model is one."""
    path = Path(model).expanduser()
    return path if model != "gpt" and model not in PRESETS and _is_model(path) else None


def _digest(texts: Sequence[str | None], model: str) -> str | None:
    """The digest of those of tokenised texts and of a model's folder; None where there is none."""
    folder = _folder(model)
    tokens = sha256(" ".join(map(str, texts)).encode()).hexdigest() if len(texts) > 1 and any(texts) else texts[0]
    return sha256(f"{tokens} {digest_of(folder)}".encode()).hexdigest() if folder else tokens
