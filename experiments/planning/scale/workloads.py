"""The workloads of the modelled curves: the tensors that are sent, and how long a named GPU computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from commeff import require
from commeff.cluster import GPU
from commeff.cluster.hardware import read_gpu
from commeff.compressors import Layout

Shapes = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True)
class Workload:
    """A model, its batch on each GPU, and the speed of one GPU that sends nothing. Vectors are float32.

    Attributes
    ----------
    name : on the command line.
    layout : of the model's parameters.
    batch : samples of one GPU in a step.
    per_second : samples that one GPU trains on in a second.
    unit : what a sample is.
    source : where the speed comes from.
    precision : of its matrix products.
    """

    name: str
    layout: Layout = field(repr=False)
    batch: int
    per_second: float
    unit: str
    source: str
    precision: str = "fp32"

    @property
    def parameters(self) -> int:
        """Numbers of the model."""
        return self.layout.d

    @property
    def bytes(self) -> int:
        """Bytes of a gradient, or of the parameters."""
        return 4 * self.parameters

    @property
    def step_seconds(self) -> float:
        """Seconds in which one GPU computes a step with its full batch.

        >>> round(WORKLOADS["resnet50"].step_seconds, 3)
        0.18
        """
        return self.batch / self.per_second

    def on(self, gpu: GPU) -> Workload:
        """The same workload on another GPU than the V100 of its source, at the share of the peak that it reached there.

        >>> round(WORKLOADS["resnet50"].on(read_gpu("gpu", "h100_80g")).per_second)
        1519
        """
        known = read_gpu("gpu", MEASURED_ON)
        if gpu.name == known.name:
            return self
        if self.precision not in gpu.peak_flops:
            reason = f"{gpu.name} has no {self.precision}, which {self.name} computes in"
            raise ValueError(f"--step-seconds must be given for {self.name}, got none: {reason}")
        times = gpu.peak_flops[self.precision] / known.peak_flops[self.precision]
        source = f"estimated, {times:.3g} times {self.per_second:g}/s as its {self.precision} peak, of {self.source}"
        return replace(self, per_second=self.per_second * times, source=source)

    def taking(self, seconds: float) -> Workload:
        """The same workload on a GPU that computes a step in other seconds.

        >>> WORKLOADS["resnet50"].taking(0.5).per_second
        128.0
        """
        require.positive(**{"a step's compute time": seconds})
        return replace(self, per_second=self.batch / seconds, source=f"{seconds:g} s a step, as given")


def resnet50() -> Shapes:
    """ResNet-50 for 1000 classes (He et al., 2016; torchvision's tensors).

    >>> Layout.of(resnet50()).d
    25557032
    """
    yield from _convolution("stem", 3, 64, 7)
    channels = 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            name = f"stage{stage}.{block}"
            yield from _convolution(f"{name}.reduce", channels, width, 1)
            yield from _convolution(f"{name}.spatial", width, width, 3)
            yield from _convolution(f"{name}.expand", width, 4 * width, 1)
            if block == 0:
                yield from _convolution(f"{name}.shortcut", channels, 4 * width, 1)
            channels = 4 * width
    yield from _linear("head", channels, 1000)


def _convolution(name: str, inputs: int, outputs: int, size: int) -> Shapes:
    """A convolution without a bias, and its batch normalisation."""
    yield f"{name}.weight", (outputs, inputs, size, size)
    yield from _norm(name, outputs)


def bert_large() -> Shapes:
    """BERT-large with both pretraining heads, whose vocabulary matrix is the embedding (Devlin et al., 2019).

    >>> Layout.of(bert_large()).d
    336226108
    """
    width, vocabulary = 1024, 30522
    for name, rows in (("words", vocabulary), ("positions", 512), ("segments", 2)):
        yield f"embeddings.{name}", (rows, width)
    yield from _norm("embeddings", width)
    for layer in range(24):
        name = f"layer{layer}"
        for part in ("query", "key", "value", "output"):
            yield from _linear(f"{name}.{part}", width, width)
        yield from _norm(f"{name}.attention", width)
        yield from _linear(f"{name}.up", width, 4 * width)
        yield from _linear(f"{name}.down", 4 * width, width)
        yield from _norm(name, width)
    yield from _linear("pooler", width, width)
    yield from _linear("masked.transform", width, width)
    yield from _norm("masked", width)
    yield "masked.bias", (vocabulary,)
    yield from _linear("next_sentence", width, 2)


def _linear(name: str, inputs: int, outputs: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Shapes:
    yield from ((f"{name}.norm.{part}", (width,)) for part in ("weight", "bias"))


MEASURED_ON = "v100_32g"
NVIDIA = "NVIDIA, DeepLearningExamples"
WORKLOADS = {
    "resnet50": Workload(
        "resnet50",
        layout=Layout.of(resnet50()),
        batch=64,
        per_second=356,
        unit="images",
        source=f"one V100-SXM2-32GB, float32: {NVIDIA}, ResNet50 v1.5 for PyTorch, container 21.03",
    ),
    "bert_large": Workload(
        "bert_large",
        layout=Layout.of(bert_large()),
        batch=14,
        per_second=26.04,
        unit="sequences",
        precision="fp16",
        source=f"one V100-SXM2-32GB, mixed precision, pretraining, sequence length not printed beside: {NVIDIA}, BERT, "
        "container 19.03",
    ),
}
