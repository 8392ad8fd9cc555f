"""A job that is said by what it computes and sends, with no model: `commeff bandwidth parameters=10e9 ...`; and the
words of that command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

from commeff import require
from commeff.cluster import Cluster, Link
from commeff.cluster.hardware import quantity
from commeff.experiments.config.method_words import check_words, split_methods, strategy
from commeff.experiments.config.plugins import Choice
from commeff.experiments.config.schema import GROUPS
from commeff.experiments.config.settings import RUN
from commeff.experiments.planning.bandwidth import GIGABIT, Pace, planned
from commeff.experiments.planning.question import read_number, read_question
from commeff.experiments.planning.worker_words import is_method_word, method_words, read_method
from commeff.planner import WorkerMethod

if TYPE_CHECKING:
    from commeff.profiling import Operation, Profile

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
KEYS = ("parameters", "layers", "step_seconds", "workers", "dtype", "latency")
NEEDED = KEYS[:3]
MOST = 10**15  # parameters, of which sums of bytes stay whole in 64 bits
MATRICES = 12  # of h x h in a layer of a transformer
UNUSED = ("workers", "zero", "framework", "bandwidth", "tokens")  # `planned` chooses the first three
SHOWN = (
    ["method=psgd"],
    ["method=diloco", "period=100"],
    ["method=streaming_diloco", "period=100", "method.exchange.delay=1", "method.exchange.bits=4"],
    ["method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01"],
)  # where no method is named


@dataclass(frozen=True)
class Job:
    """Equal layers of square matrices on workers, each at the end of one link; without a GPU, coding takes no time.

    Attributes
    ----------
    parameters, layers : of the model.
    step_seconds : of computing.
    workers : replicas of the model.
    dtype : of parameters and gradients, one of `DTYPES`.
    latency : seconds of a message's way.
    layerwise : whether every exchange leaves in as many pieces as there are layers while the backward pass runs, as in
        the simulator of arXiv 2501.18512, where outer gradients do so too; otherwise what each method can hide.
    """

    parameters: int
    layers: int
    step_seconds: float
    workers: int = 2
    dtype: str = "bf16"
    latency: float = 0.0
    layerwise: bool = False

    def __post_init__(self) -> None:
        require.count(most=MOST, parameters=self.parameters, layers=self.layers)
        require.count(2, workers=self.workers)
        require.positive(step_seconds=self.step_seconds)
        require.at_least(0, latency=self.latency)
        require.one_of(DTYPES, dtype=self.dtype)
        if self.layers > self.parameters:
            raise ValueError(f"layers must be at most the {self.parameters} parameters, got {self.layers}")

    def sent(self, words: Sequence[str], plugins: Sequence[Choice] = ()) -> tuple[Profile, int]:
        """What a method sends, and the minibatches of a step; gradients in buckets of a layer, unless its words say
        otherwise.
        """
        import torch  # which a mistake in the words does not wait for

        from commeff.compressors import Layout
        from commeff.profiling import profile

        dtype: torch.dtype = getattr(torch, DTYPES[self.dtype])
        ends = (self.parameters * i // self.layers for i in range(self.layers + 1))
        sizes = [end - begin for begin, end in pairwise(ends)]
        if not any(word.startswith("bucket_mb=") for word in words):
            words = [*words, f"bucket_mb={0 if self.layerwise else dtype.itemsize * max(sizes) / 1e6}"]
        built, config = strategy(words, self.workers, plugins)
        layout = Layout.of([(f"layers.{i}.{name}", shape) for i, n in enumerate(sizes) for name, shape in _tensors(n)])
        traffic = profile(built, layout, self.workers, collective=config["collective"], dtype=dtype)
        steps = {step: tuple(op._replace(coding=None) for op in sent) for step, sent in traffic.steps.items()}
        if self.layerwise:
            steps = {step: _cut(sent, self.layers) for step, sent in steps.items()}
        return replace(traffic, steps=steps), built.accumulate

    def pace(self, words: Sequence[str], plugins: Sequence[Choice] = ()) -> Pace:
        """The pace of a step by a method, in the mean over its period.

        Parameters
        ----------
        words : `key=value` of a method, its compressor and its topology.
        plugins : choices that they may name beside the built-in ones.
        """
        traffic, minibatches = self.sent(words, plugins)

        from commeff.experiments.planning.scale.modelled import communicated
        from commeff.experiments.planning.scale.setting import ScalingSetting

        like, computing = Cluster.named("ethernet_1g", self.workers), minibatches * self.step_seconds  # one a node

        @cache
        def seconds(gigabits: float) -> float:
            link = Link(gigabits * GIGABIT, self.latency)
            place = ScalingSetting(replace(like, name="link", intra=link, inter=link), "gpu")
            return communicated(place, traffic, computing)

        return Pace(seconds, computing)


def _tensors(numbers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """A layer as in a transformer, 12 square matrices' worth, and what is left of its numbers."""
    side = isqrt(numbers // MATRICES)
    if side:
        yield from ((f"matrix.{i}", (side, side)) for i in range(MATRICES))
    if numbers > MATRICES * side**2:
        yield "rest", (numbers - MATRICES * side**2,)


def _cut(sent: Sequence[Operation], count: int) -> tuple[Operation, ...]:
    """The operations of a step, each in equal pieces that are ready one after the other."""
    pieces: list[Operation] = []
    for operation in sent:
        part = {name: getattr(operation, name) / count for name in ("payload_bytes", "wire_bytes")}
        pieces += count * [operation._replace(**part, path="layers", bucketed=not operation.early)]
    return tuple(pieces)


def read_paces(settings: Sequence[str], plugins: Sequence[Choice] = (), layerwise: bool = False) -> dict[str, Pace]:
    """The methods of `commeff bandwidth` by their names: of a job if `parameters=` or `step_seconds=` is given, else of
    a question to the planner.

    Parameters
    ----------
    settings : `key=value`; each `method=` begins another method, and words of a method before the first belong to all.
    plugins : choices beside the built-in ones.
    layerwise : as of a `Job`.
    """
    job = any(setting.startswith(("parameters=", "step_seconds=")) for setting in settings)
    for key in (setting.partition("=")[0] for setting in settings if job):
        if "." not in key and key not in (*RUN, *GROUPS, "period", "degree"):
            require.one_of(KEYS, key=key)
    shared = [word for word in settings if (word.partition("=")[0] in KEYS if job else not is_method_word(word))]
    groups = split_methods([word for word in settings if word not in shared]) or SHOWN
    ways = [WorkerMethod(read_method(group, plugins)) for group in groups]
    for way in ways:
        check_words(method_words(way), plugins)
    if job:
        place = _job(shared, layerwise)
        return {way.name: place.pace(method_words(way), plugins) for way in ways}
    if layerwise:
        raise ValueError("--layerwise must be given with parameters=: of a model, what its layers hide is modelled")
    left = [word for word in shared if word.partition("=")[0] in UNUSED]
    if left:
        raise ValueError(
            f"{' '.join(left)} must be left out: workers and ZeRO stage are the best at each bandwidth, for any tokens"
        )
    question = read_question(shared)
    policy = question.one()
    policy.check(question.model, question.cluster, question.global_batch)
    paces = {way.name: planned(question, policy, way) for way in ways}
    for name, pace in paces.items():
        if not pace.computing < float("inf"):
            raise ValueError(f"layout must fit {name} with some ZeRO stage, got one that fits with none; add ranks")
    return paces


def _job(settings: Sequence[str], layerwise: bool) -> Job:
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, text = setting.partition("=")
        if key == "latency":
            values[key] = quantity(key, text, "seconds")
        else:
            values[key] = text if key == "dtype" else read_number(key, text)
    missing = [key for key in NEEDED if key not in values]
    if missing:
        raise ValueError(
            f"a job must have parameters=, layers= and step_seconds=, got no {' '.join(missing)}; give such as "
            "parameters=10e9 layers=48 step_seconds=0.8"
        )
    if values["parameters"] % 1 == 0:
        values["parameters"] = int(values["parameters"])
    return Job(**values, layerwise=layerwise)
