"""Seconds of encoding and decoding: of a measured speed if the GPU's description has one, else estimated. The one price
of compressing, for plans, `commeff scale`, `commeff gain` and reports.
"""

from __future__ import annotations

from typing import Any

from commeff.cluster.hardware import GPU
from commeff.profiling.coding import Coding

SHARE = 0.5  # of a memory's bandwidth that coding reaches where nobody has measured it: many small kernels
WIDTH = 4  # bytes of a number of the vectors that measured speeds count


def coding_seconds(gpu: GPU, coding: Coding, coordinates: Any, messages: Any = 1) -> Any:
    """Seconds in which a worker encodes its message and decodes those that it hears.

    Estimated, they are bytes moved over half of the memory's bandwidth,

        coordinates (encode + decode messages) / (SHARE x bandwidth),

    and measured, where `gpu.codecs` names the codec, each part over the speed that a vector of float32 had.

    Parameters
    ----------
    gpu : what it runs on.
    coding : what a message moves in memory, from a profile.
    coordinates : of a message; a number, or an array of them.
    messages : that are heard, in units of decoding one, as `coding.messages` says.

    >>> from commeff.cluster import Cluster
    >>> signs = Coding("ScaledSign", encode=27.4, decode=33.0, more=33.0)
    >>> [f"{coding_seconds(Cluster.named(name).gpu, signs, 1e6):.2g}" for name in ("ethernet_1g", "a100_10g")]
    ['0.0023', '5.9e-05']
    """
    measured = gpu.codecs.get(coding.codec)
    if measured is None:
        return coordinates * (coding.encode + coding.decode * messages) / (SHARE * gpu.memory_bandwidth)
    return WIDTH * coordinates * (1 / measured.encode + messages / measured.decode)


def source(gpu: GPU, codec: str) -> str:
    """Where the seconds of a codec are from: measured, estimated, or, of messages that no compressor makes, assumed.

    >>> from commeff.cluster import Cluster
    >>> [source(Cluster.named("ethernet_1g").gpu, codec) for codec in ("TopK", "Fp8", "")]
    ['measured', 'estimated', 'assumed']
    """
    if codec in gpu.codecs:
        return "measured"
    return "estimated" if codec else "assumed"
