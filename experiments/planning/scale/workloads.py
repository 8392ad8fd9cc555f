"""What is trained in the modelled curves: the tensors that are sent, and how long a named GPU computes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from commeff import require
from commeff.compressors import Layout
from commeff.experiments.planning.scale import layouts


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
    """

    name: str
    layout: Layout = field(repr=False)
    batch: int
    per_second: float
    unit: str
    source: str

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

    def taking(self, seconds: float) -> Workload:
        """The same workload on a GPU that computes a step in other seconds.

        >>> WORKLOADS["resnet50"].taking(0.5).per_second
        128.0
        """
        require.positive(**{"a step's compute time": seconds})
        return replace(self, per_second=self.batch / seconds, source=f"{seconds:g} s a step, as given")


NVIDIA = "NVIDIA, DeepLearningExamples"
WORKLOADS = {
    "resnet50": Workload(
        "resnet50",
        layout=layouts.resnet50(),
        batch=64,
        per_second=356,
        unit="images",
        source=f"one V100-SXM2-32GB, float32: {NVIDIA}, ResNet50 v1.5 for PyTorch, container 21.03",
    ),
    "bert_large": Workload(
        "bert_large",
        layout=layouts.bert_large(),
        batch=14,
        per_second=26.04,
        unit="sequences",
        source=f"one V100-SXM2-32GB, mixed precision, pretraining, sequence length not printed beside: {NVIDIA}, BERT, "
        "container 19.03",
    ),
}
