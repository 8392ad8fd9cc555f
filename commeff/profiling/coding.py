"""What encoding and decoding move through memory: counted, tensor by tensor, while a compressor runs on a short vector.

The count is of this package's own code, so plug-ins have one too. It says nothing about seconds; `commeff.cluster`
divides it by a memory's bandwidth, or takes what was measured instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from commeff.compressors import Assumed, Compressor, Contractive, Layout, Message, WorkerRandom
from commeff.core import Stateful
from commeff.topologies import MixingMatrix

LENGTH = 1 << 19  # numbers of the vector: more than a tile, as of most vectors
ASSUMED = 16.0  # bytes a number, of messages that no compressor makes, such as PowerSGD's factors
SELECTING = 32.0  # bytes a number, of what torch does not see: NumPy selects on a CPU, five passes of a radix on a GPU
SMALLER, NEAR = 0.9, 0.1  # sizes: of a message over that of the vector, and beside that which is expected
GATHERED = ("all_gather", "to_server", "server")  # kinds of which somebody reads all messages
NOTHING = ("empty", "empty_like", "new_empty", "empty_strided", "resize_")
PICKING = ("gather", "index", "index_select", "take")  # read as much as they write
PLACING = ("scatter_", "scatter_add_", "index_put_", "index_add_", "index_copy_", "put_")  # write what they are given
PASSES = {"topk": 4, "kthvalue": 4, "sort": 8, "argsort": 8}


class Coding(NamedTuple):
    """The cost of a compressor's messages to sender and receiver, in bytes of memory traffic a coordinate.

    Attributes
    ----------
    codec : the compressor, as tables of measured speeds name it; "" of a message that no compressor makes.
    encode : of making a message.
    decode : of reading one.
    more : of adding a further one to it.
    size : bytes of the message itself.
    """

    codec: str
    encode: float
    decode: float = 0.0
    more: float = 0.0
    size: float = 0.0

    def messages(self, kind: str, workers: Any, matrix: MixingMatrix | None) -> Any:
        """What the worker that hears most decodes in a round, in units of one message.

        Parameters
        ----------
        kind, matrix : of the operation.
        workers : n; a number, or an array of them.
        """
        if matrix is not None:
            heard: Any = float(matrix.in_degrees.max())
        else:
            heard = workers if kind in GATHERED else 1
        return 1 + (heard - 1) * (self.more / self.decode if self.decode else 0.0)


def codec_name(compressor: Compressor) -> str:
    """The class of a compressor, with those of the compressors inside it; without the factor of `contractive`.

    >>> from commeff.compressors import Blockwise, TopK
    >>> codec_name(Blockwise(TopK(ratio=0.01), block=1024))
    'Blockwise(TopK)'
    """
    if isinstance(compressor, (Assumed, Contractive)):  # scaled, and no slower for it
        return codec_name(compressor.compressor)
    inside = [codec_name(value) for value in vars(compressor).values() if isinstance(value, Compressor)]
    return type(compressor).__name__ + (f"({', '.join(inside)})" if inside else "")


def codings(part: object) -> Iterator[tuple[type[Message], Coding]]:
    """The compressors that a strategy holds, each with the kind of its messages.

    >>> from functools import partial
    >>> from commeff import methods
    >>> from commeff.compressors import ScaledSign
    >>> signs = methods.mem_sgd(partial(torch.optim.SGD, lr=0.1), ScaledSign())
    >>> [(kind.__name__, coding.codec, round(coding.size, 3)) for kind, coding in codings(signs)]
    [('SignMessage', 'ScaledSign', 0.125)]
    """
    if isinstance(part, Compressor):
        entry = _counted(_Printed(part))
        if entry is not None:
            yield entry
    elif isinstance(part, Stateful):
        for value in vars(part).values():
            for item in value if isinstance(value, (list, tuple)) else [value]:
                yield from codings(item)


class MemoryTraffic(TorchDispatchMode):
    """Counts the bytes that the operators inside read and write; views are free.

    >>> x = torch.zeros(1000)
    >>> with MemoryTraffic() as traffic:
    ...     y = (x[:500] + 1).sum()
    >>> traffic.bytes
    6004
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.partition("::")[2]
        if not function.is_view and name not in NOTHING:
            read, written = (_bytes(of) for of in ((args, kwargs), result))
            if name in PICKING:
                read = written
            elif name in PLACING:
                read = written = read - _bytes(args[0])
            self.bytes += PASSES.get(name, 1) * read + written
        return result


def _bytes(tree: Any) -> int:
    return sum(tensor.nbytes for tensor in tree_leaves(tree) if isinstance(tensor, Tensor))


class _Printed:
    """A compressor, equal to what prints alike."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor, self._key = compressor, repr(compressor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Printed) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=256)
def _counted(printed: _Printed) -> tuple[type[Message], Coding] | None:
    """None if it does not run on a vector without names. Equal compressors are counted once."""
    vector = torch.randn(1, LENGTH, generator=torch.Generator().manual_seed(0))
    random, out, once = WorkerRandom(0, [0]), torch.zeros(1, LENGTH), torch.ones(1, 1)
    try:
        bound = printed.compressor.bind(Layout.flat(LENGTH))
        with MemoryTraffic() as encoding:
            message = bound.compress(vector, random)
        with MemoryTraffic() as decoding:
            message.decode()
        with MemoryTraffic() as adding:
            message.add_to(out, once)
    except (TypeError, ValueError, RuntimeError, NotImplementedError):
        return None
    encode, decode, more = (traffic.bytes / LENGTH for traffic in (encoding, decoding, adding))
    encode = encode if encode >= vector.element_size() else SELECTING
    return type(message), Coding(codec_name(printed.compressor), encode, decode, more, message.row_bytes / LENGTH)


def matching(known: Sequence[tuple[type[Message], Coding]], message: Message) -> Coding | None:
    """The coding of a message: of the nearest size a coordinate among those of its kind, or, as several messages may
    travel as one, among those of its size. None if no compressor made it, or if it is not smaller.
    """
    size = message.row_bytes / max(1, message.d)
    candidates = [coding for kind, coding in known if kind is type(message)]
    candidates = candidates or [coding for _, coding in known if abs(coding.size - size) < NEAR * size]
    near = min(candidates, key=lambda coding: abs(coding.size - size), default=None)
    return near if size < SMALLER * message.dtype.itemsize else None
