"""`commeff bench codecs`: shares of a copy's speed of plain messages and of compiled ones, on one thread or a GPU."""

from __future__ import annotations

from commeff.compressors import CountSketch
from commeff.compressors.compiled import compile_messages
from commeff.experiments.measure.codecs import CODECS, LENGTH, measure
from commeff.experiments.studies.bench.ratios import MeasuredRatio

COMPILED = (  # codecs that have something to compile
    "QSGD, 4 levels",
    "TernGrad",
    "natural",
    "sign",
    "sign, two levels",
    "sign after a rotation",
    "4 bits after a rotation",
    "int8, blocks of 256",
    "int4, blocks of 256",
    "4-bit normal floats, blocks of 64",
    "8-bit floats",
    "random 1 %",
    "count sketch, 1 %",
)


def run(length: int = LENGTH, rounds: int = 7, device: str = "cpu") -> list[MeasuredRatio]:
    """The shares that each codec reaches on vectors of so many numbers, without compilation; a GPU's copy speed."""
    ratios, codecs = [], CODECS | {"count sketch, 1 %": CountSketch(width=length // 100)}
    for form, some in (("plain", codecs), ("compiled", {name: codecs[name] for name in COMPILED})):
        compile_messages(form == "compiled")
        speeds, copy = measure(some, length, lambda: None, rounds, device)
        for speed in speeds:
            ratios.append(MeasuredRatio(f"{speed.name}, {form}", "encoding, share of copy speed", speed.encode_share))
            ratios.append(MeasuredRatio(f"{speed.name}, {form}", "decoding, share of copy speed", speed.decode_share))
    compile_messages(False)
    return ratios if device == "cpu" else [MeasuredRatio("copy", "GB/s read, and as much written", copy / 1e9), *ratios]
