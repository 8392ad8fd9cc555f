"""What a vector looks like on the wire: compressors, their messages, and the randomness and layouts they use."""

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.blockwise import Blockwise
from commeff.compressors.composed import Composed
from commeff.compressors.contractive import Contractive, Shrunk, contractive
from commeff.compressors.dense import Dense
from commeff.compressors.layout import Field, Layout
from commeff.compressors.message import BlockMessage, Compound, ConcatenatedMessage, DenseMessage, Message
from commeff.compressors.natural import Natural
from commeff.compressors.packing import pack, packed_bytes, unpack
from commeff.compressors.permutation import choose
from commeff.compressors.pertensor import PerTensor
from commeff.compressors.quantised import QSGD, Int8, TernGrad
from commeff.compressors.random import WorkerRandom
from commeff.compressors.randomk import RandomK
from commeff.compressors.repeated import Repeated
from commeff.compressors.sign import ScaledSign
from commeff.compressors.sparse import Sparse, Sparsifier
from commeff.compressors.topk import TopK

__all__ = [
    "QSGD",
    "BlockMessage",
    "Blockwise",
    "Composed",
    "Compound",
    "Compressor",
    "ConcatenatedMessage",
    "Contractive",
    "Dense",
    "DenseMessage",
    "Field",
    "Int8",
    "Layout",
    "Message",
    "Natural",
    "PerTensor",
    "RandomK",
    "Repeated",
    "ScaledSign",
    "Scope",
    "Shrunk",
    "Sparse",
    "Sparsifier",
    "TernGrad",
    "TopK",
    "WorkerRandom",
    "choose",
    "contractive",
    "pack",
    "packed_bytes",
    "unpack",
]
