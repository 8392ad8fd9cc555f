r"""What a vector looks like on the wire: compressors, their messages, and the randomness and layouts they use.

A *compressor* C turns each worker's vector :math:`v \in R^d` into a *message* that takes fewer bytes, and what a
receiver decodes is C(v). How much is lost decides what may be done with it. C is *unbiased* with variance
:math:`\omega` if

.. math:: E\, C(v) = v, \qquad E \lVert C(v) - v \rVert^2 \le \omega \lVert v \rVert^2,

so that averaging over workers averages the error away; and it is *contractive* with :math:`\delta > 0` if

.. math:: E \lVert C(v) - v \rVert^2 \le (1 - \delta) \lVert v \rVert^2,

so that sending what is still missing, again and again, ends at v: that is what error feedback, EF21 and CHOCO do.
Divided by :math:`1 + \omega` an unbiased C is contractive with :math:`\delta = 1/(1 + \omega)` (`contractive`).

>>> import torch
>>> from commeff.compressors import RandomK, TopK, WorkerRandom
>>> vectors, random = torch.tensor([[3.0, -1.0, 0.5, 2.0]]), WorkerRandom(seed=0, workers=[0])
>>> TopK(k=2).compress(vectors, random).decode()                # biased: the two largest, as they are
tensor([[3., 0., 0., 2.]])
>>> TopK(k=2).delta(4), TopK(k=2).omega(4)                      # at least half of the square is kept
(0.5, None)
>>> draws = WorkerRandom(seed=0, workers=range(4000))           # 4000 workers with the same vector
>>> RandomK(k=2).compress(vectors.expand(4000, -1), draws).decode().mean(0).round(decimals=1)
tensor([ 3.0000, -1.0000,  0.5000,  2.0000])
>>> RandomK(k=2).omega(4)                                       # unbiased: two at random, twice as large
1.0

A message is made of tensors that are truly packed, one row a worker, and what is billed is what they take:

>>> message = TopK(k=2).compress(vectors, random)               # two floats, two indices of 2 bits
>>> [part.shape[1] * part.element_size() for part in message.parts], message.wire_bytes.tolist()
([1, 8], [9])

For float32 vectors of d = 10^6 coordinates, of which top-k and random-k keep the share r; *blocks* says
whether a vector may be compressed block by block with the same result:

========================  ==================  =====================  =====================  ======
compressor                bits a number       omega                  delta                  blocks
========================  ==================  =====================  =====================  ======
Dense()                   32                  0                      1                      any
Dense("bfloat16")         16                  --                     1 - 2^-16              any
Natural()                 9                   1/8                    7/8                    any
Int8(block=256)           8.13                256/(4 127^2) = 0.004  1 - omega              one
Int4(block=64)            4.50                64/(4 7^2) = 0.33      1 - omega              one
NF4(block=64)             4.50                --                     0.88                   one
Fp8("e4m3")               8                   --                     1 - 2^-8               one
Fp8("e5m2")               8                   --                     1 - 2^-6               one
QSGD(levels=s)            ceil(log2(2s + 1))  min(d/s^2, sqrt(d)/s)  1 - omega if positive  one
QSGD(s, norm="max")       ceil(log2(2s + 1))  sqrt(1 + (d-1)/s^2)/2  1 - omega if positive  one
                                              - 1/2
TernGrad()                2                   (sqrt(d) - 1)/2        1 - omega if positive  one
ScaledSign()              1                   --                     1/d at worst           one
ScaledSign("l2")          1                   --                     --                     one
OneBit()                  1                   --                     1/d at worst           one
Drive()                   1.01                0.571 in practice      --                     one
Drive(unbiased=False)     1.01                --                     0.64 in practice       one
Eden(bits=4)              4.02                0.0096 in practice     --                     one
TopK(ratio=r)             (32 + 20) r         --                     r                      one
TopK(r, coded=True)       (34 - log2(r)) r    --                     r                      one
Threshold(value)          52 of those above   --                     -- (error: d value^2)  any
DCTTopK(k, chunk=b)       (32 + log2(b)) k/b  --                     k/b                    one
RandomK(ratio=r)          32 r                1/r - 1                1 - omega if positive  one
RandomK(r, scaled=False)  32 r                --                     r                      one
CountSketch(width, rows)  32 width rows/d     (d - 1)/(width rows)   1 - omega if positive  one
========================  ==================  =====================  =====================  ======

`Composed` compresses the values that top-k or random-k keep, `Coded` codes levels of which most are 0, `Blockwise` and
`PerTensor` compress pieces one by one (small tensors dense, another ratio a layer), `Repeated` sends several messages,
each of what the earlier ones missed, `Assumed` takes constants at your word. Values decide how much `Threshold` and
`Coded` send: workers agree on the longest message first. A compressor of your own is a frozen dataclass
under `Compressor`; ``commeff check mine.py`` holds it to the laws that ours obey (`commeff.compressors.laws`).
"""

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.blockwise import Blockwise
from commeff.compressors.codebook import NF4
from commeff.compressors.coded import Coded
from commeff.compressors.composed import Composed, Repeated
from commeff.compressors.contractive import Assumed, Contractive, Shrunk, contractive
from commeff.compressors.dct import DCTTopK
from commeff.compressors.dense import Dense
from commeff.compressors.hashing import choose
from commeff.compressors.layout import Field, Layout
from commeff.compressors.message import BlockMessage, Compound, ConcatenatedMessage, DenseMessage, Message
from commeff.compressors.narrow import Fp8, Natural
from commeff.compressors.packing import pack, packed_bytes, unpack
from commeff.compressors.pertensor import PerTensor
from commeff.compressors.quantised import QSGD, Int4, Int8, TernGrad
from commeff.compressors.random import WorkerRandom
from commeff.compressors.randomk import RandomK
from commeff.compressors.rotated import Drive, Eden
from commeff.compressors.sign import OneBit, ScaledSign
from commeff.compressors.sketch import CountSketch
from commeff.compressors.sparse import Sparse, Sparsifier
from commeff.compressors.threshold import Threshold
from commeff.compressors.topk import TopK

__all__ = [
    "NF4",
    "QSGD",
    "Assumed",
    "BlockMessage",
    "Blockwise",
    "Coded",
    "Composed",
    "Compound",
    "Compressor",
    "ConcatenatedMessage",
    "Contractive",
    "CountSketch",
    "DCTTopK",
    "Dense",
    "DenseMessage",
    "Drive",
    "Eden",
    "Field",
    "Fp8",
    "Int4",
    "Int8",
    "Layout",
    "Message",
    "Natural",
    "OneBit",
    "PerTensor",
    "RandomK",
    "Repeated",
    "ScaledSign",
    "Scope",
    "Shrunk",
    "Sparse",
    "Sparsifier",
    "TernGrad",
    "Threshold",
    "TopK",
    "WorkerRandom",
    "choose",
    "contractive",
    "pack",
    "packed_bytes",
    "unpack",
]
