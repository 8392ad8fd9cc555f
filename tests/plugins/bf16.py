"""A compressor in one file: every number rounded to 16 bits."""

from dataclasses import dataclass

from commeff.compressors import Compressor, Dense


@dataclass(frozen=True)
class Bf16(Compressor):
    """Every number rounded to the 8 binary digits of bfloat16."""

    scope = "coordinate"

    def compress(self, vectors, random):
        return Dense("bfloat16").compress(vectors, random)

    def omega(self, d):
        return None

    def delta(self, d):
        return 1 - 2.0**-16
