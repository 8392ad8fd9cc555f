"""What a vector looks like on the wire: compressors, their messages, and the randomness and layouts they use."""

from compressors.base import Compressor, Scope
from compressors.blockwise import Blockwise
from compressors.composed import Composed
from compressors.contractive import Contractive, Scaled, contractive
from compressors.dense import Dense
from compressors.layout import Field, Layout
from compressors.message import Blocks, Compound, DenseMessage, Message, Pieces
from compressors.natural import Natural
from compressors.packing import pack, packed_bytes, unpack
from compressors.permutation import choose
from compressors.pertensor import PerTensor
from compressors.quantised import QSGD, Int8, TernGrad
from compressors.random import WorkerRandom
from compressors.randomk import RandomK
from compressors.repeated import Repeated
from compressors.sign import ScaledSign
from compressors.sparse import Sparse, Sparsifier
from compressors.topk import TopK

__all__ = [
    "QSGD",
    "Blocks",
    "Blockwise",
    "Composed",
    "Compound",
    "Compressor",
    "Contractive",
    "Dense",
    "DenseMessage",
    "Field",
    "Int8",
    "Layout",
    "Message",
    "Natural",
    "PerTensor",
    "Pieces",
    "RandomK",
    "Repeated",
    "Scaled",
    "ScaledSign",
    "Scope",
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
