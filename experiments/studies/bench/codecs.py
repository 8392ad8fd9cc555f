"""`commeff bench codecs`: shares of a copy's speed of plain messages and of compiled ones, on one thread."""

from __future__ import annotations

from commeff.compressors.compiled import compile_messages
from commeff.experiments.measure.codecs import CODECS, LENGTH, measure
from commeff.experiments.studies.bench.ratios import MeasuredRatio

COMPILED = (  # codecs that have something to compile
    "QSGD, 4 levels",
    "TernGrad",
    "natural",
    "sign",
    "sign, two levels",
    "int8, blocks of 256",
    "int4, blocks of 256",
    "4-bit normal floats, blocks of 64",
    "8-bit floats",
)


def run(length: int = LENGTH, rounds: int = 7) -> list[MeasuredRatio]:
    """The shares that each codec reaches on vectors of so many numbers, compilation left out."""
    found = []
    for form, codecs in (("plain", CODECS), ("compiled", {name: CODECS[name] for name in COMPILED})):
        compile_messages(form == "compiled")
        for speed in measure(codecs, length, lambda: None, rounds)[0]:
            found.append(MeasuredRatio(f"{speed.name}, {form}", "encoding, share of copy speed", speed.encode_share))
            found.append(MeasuredRatio(f"{speed.name}, {form}", "decoding, share of copy speed", speed.decode_share))
    compile_messages(False)
    return found
