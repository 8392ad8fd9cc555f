"""A compressor of one's own: of every `block` neighbouring numbers the largest, which needs only short indices.

    commeff check examples/own_compressor.py       # the laws: what it says of its error and its bytes is true
    python examples/own_compressor.py              # trained beside top-k that keeps as many numbers
    commeff train --plugin examples/own_compressor.py method=mem_sgd compressor=largest_of_each compressor.block=64

A message is what travels, packed, with the way back; the compressor makes it, and says how much it loses.
"""

from dataclasses import dataclass

import torch

from commeff.compressors import Compressor, Message, pack, unpack


@dataclass(frozen=True, eq=False)
class LargestMessage(Message):
    """Wire format: a number for each block, then its place in the block in ceil(log2 block) bits."""

    block: int

    def decode(self):
        values, packed = self.parts
        places = unpack(packed, bits(self.block), values.shape[1]).long()
        out = values.new_zeros(*values.shape, self.block).scatter_(2, places[:, :, None], values[:, :, None])
        return out.flatten(1)[:, : self.d]


@dataclass(frozen=True)
class LargestOfEach(Compressor):
    """Of every `block` neighbouring numbers the one of largest magnitude, the others 0.

    Parameters
    ----------
    block
        Neighbouring numbers of which one is kept, at least 1.
    """

    block: int = 32

    scope = "whole"  # cut elsewhere, a vector would have other blocks

    def compress(self, vectors, random):
        rows, d = vectors.shape
        padded = torch.nn.functional.pad(vectors, (0, -d % self.block)).view(rows, -(-d // self.block), self.block)
        places = padded.abs().argmax(2)
        values = padded.gather(2, places[:, :, None])[:, :, 0]
        return LargestMessage((values, pack(places, bits(self.block))), d, vectors.dtype, self.block)

    def omega(self, d):
        return None  # biased

    def delta(self, d):
        return 1 / min(self.block, max(d, 1))  # the largest of b numbers has at least 1/b of their square


def bits(block):
    return (block - 1).bit_length()


def main():
    import commeff

    settings = {"method": "mem_sgd", "workers": 8, "steps": 200, "plugins": [__file__], "progress": False}
    for words in ({"compressor.block": 32}, {"compressor.ratio": 1 / 32}):
        name = "largest_of_each" if "compressor.block" in words else "top_k"
        summary = commeff.run(words | {"optimizer.lr": 0.4}, compressor=name, **settings).summary
        print(f"{name}: accuracy {summary['val_accuracy']:.3f}, {summary['payload_bytes'] / 1e3:.0f} kB a worker")


if __name__ == "__main__":
    main()
