"""What is trained in the modelled curves: how much is sent, and how long a named GPU computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from commeff.cluster.hardware import positive


@dataclass(frozen=True)
class Workload:
    """A model, its batch on each GPU, and the samples that one GPU trains on in a second when it sends nothing.

    Vectors are sent as float32. source: where the speed comes from.
    """

    name: str
    parameters: int
    batch: int
    per_second: float
    unit: str
    source: str

    @property
    def bytes(self) -> int:
        """Of a gradient, or of the parameters."""
        return 4 * self.parameters

    @property
    def step_seconds(self) -> float:
        """Of computing a step on one GPU with its full batch.

        >>> round(WORKLOADS["resnet50"].step_seconds, 3)
        0.18
        """
        return self.batch / self.per_second

    def taking(self, seconds: float) -> Workload:
        """The same, with another time of computing a step.

        >>> WORKLOADS["resnet50"].taking(0.5).per_second
        128.0
        """
        positive("a step's compute time", seconds, "seconds")
        return replace(self, per_second=self.batch / seconds, source=f"{seconds:g} s a step, as given")


NVIDIA = "NVIDIA, DeepLearningExamples"
WORKLOADS = {
    "resnet50": Workload(
        "resnet50",
        parameters=25_500_000,
        batch=64,
        per_second=356,
        unit="images",
        source=f"one V100-SXM2-32GB, float32: {NVIDIA}, ResNet50 v1.5 for PyTorch, container 21.03",
    ),
    "bert_large": Workload(
        "bert_large",
        parameters=330_000_000,
        batch=14,
        per_second=26.04,
        unit="sequences",
        source=f"one V100-SXM2-32GB, mixed precision, pretraining, sequence length not printed beside: {NVIDIA}, BERT, "
        "container 19.03",
    ),
}


def workload(name: str) -> Workload:
    """The one of that name.

    >>> workload("vgg")
    Traceback (most recent call last):
    ValueError: there is no workload 'vgg'; choose of resnet50 bert_large
    """
    if name not in WORKLOADS:
        raise ValueError(f"there is no workload {name!r}; choose of {' '.join(WORKLOADS)}")
    return WORKLOADS[name]
