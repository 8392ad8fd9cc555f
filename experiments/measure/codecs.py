"""Speeds of compressors on one thread or on a GPU, beside that of a copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch

from commeff import compressors
from commeff.compressors import Compressor, Layout, WorkerRandom
from commeff.experiments.measure.timing import calls_of, ratio, time_interleaved
from commeff.profiling.coding import codec_name

LENGTH = 2**23  # numbers: 32 MiB, so that vector and copy do not fit into a cache together
ROUNDS = 3
TENSORS = 16  # that PerTensor finds in the vector
CODECS: dict[str, Compressor] = {
    "16 bit": compressors.Dense("bfloat16"),
    "top 1 %": compressors.TopK(ratio=0.01),
    "top 1 %, coded indices": compressors.TopK(ratio=0.01, coded=True),
    "top 1 % of blocks of 65536": compressors.Blockwise(compressors.TopK(ratio=0.01), block=65536),
    "top 1 % of each tensor": compressors.PerTensor(compressors.TopK(ratio=0.01)),
    "top 1 % twice": compressors.Repeated(compressors.TopK(ratio=0.01), rounds=2),
    "top 1 %, natural values": compressors.Composed(compressors.Natural(), compressors.TopK(ratio=0.01)),
    "8 of 64 cosine coefficients": compressors.DCTTopK(k=8),
    "count sketch, 1 %": compressors.CountSketch(width=LENGTH // 100),
    "random 1 %": compressors.RandomK(ratio=0.01),
    "random 1 %, shared": compressors.RandomK(ratio=0.01, shared=True),
    "random 1 %, contractive": compressors.contractive(compressors.RandomK(ratio=0.01)),
    "QSGD, 4 levels": compressors.QSGD(levels=4),
    "TernGrad": compressors.TernGrad(),
    "TernGrad, coded": compressors.Coded(compressors.TernGrad()),
    "natural": compressors.Natural(),
    "above 2.6": compressors.Threshold(2.6),
    "sign": compressors.ScaledSign(),
    "sign, two levels": compressors.OneBit(),
    "sign after a rotation": compressors.Drive(),
    "4 bits after a rotation": compressors.Eden(bits=4),
    "int8, blocks of 256": compressors.Int8(block=256),
    "int4, blocks of 256": compressors.Int4(block=256),
    "4-bit normal floats, blocks of 64": compressors.NF4(),
    "8-bit floats": compressors.Fp8(),
}


@dataclass(frozen=True)
class Speed:
    """Bytes of the vector per second that a compressor encodes and decodes, and their shares of a copy's."""

    name: str
    codec: str  # as a GPU's description names it
    encode: float
    decode: float
    encode_share: float
    decode_share: float
    expansion: float  # bytes of the vector for each byte of the message


def measure(
    codecs: dict[str, Compressor],
    length: int,
    progress: Callable[[], None],
    rounds: int = ROUNDS,
    device: str = "cpu",
) -> tuple[list[Speed], float]:
    """The speed of each compressor on a normal vector of `length` numbers, and that of a copy, in bytes per second.

    On the CPU seconds are CPU seconds of one thread. Shares are taken within rounds: what else the machine does hardly
    counts.
    """
    size, calls = 4 * length, calls_of(device)
    vector = torch.randn(1, length, generator=torch.Generator().manual_seed(0)).to(device)
    copy, random = torch.zeros_like(vector), WorkerRandom(0, [0], device=device)
    cuts = [length * i // TENSORS for i in range(TENSORS + 1)]
    layout = Layout.of([(f"tensor{i}", (stop - start,)) for i, (start, stop) in enumerate(pairwise(cuts))])
    speeds, copies = [], []
    for name, compressor in codecs.items():
        bound = compressor.bind(layout)
        message = bound.compress(vector, random)
        contestants: dict[str, Callable[[], object]] = {
            "copy": lambda: copy.copy_(vector),
            "encode": lambda bound=bound: bound.compress(vector, random),  # type: ignore[misc]
            "decode": message.decode,
        }
        seconds = time_interleaved(contestants, rounds, calls, device)
        copies += seconds["copy"]
        speeds.append(
            Speed(
                name,
                codec_name(compressor),
                encode=calls * size / median(seconds["encode"]),
                decode=calls * size / median(seconds["decode"]),
                encode_share=ratio(seconds, "copy", "encode"),
                decode_share=ratio(seconds, "copy", "decode"),
                expansion=size / message.row_bytes,
            )
        )
        progress()
    return speeds, calls * size / median(copies)
