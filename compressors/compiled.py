"""One plain definition of each message, which a long run compiles.

A codec is a plain function of tensors, and that function is the law. Eager torch computes it in tiles that fit into the
cache. After `compile_messages(True)` torch.compile fuses it into one pass over the whole row. Both give the same bits:
random bits are integer arithmetic, sums have one order (`compressors.reductions`), and the compiler may neither
reassociate nor contract what is left. So processes with and without a compiler train the same run. Plain torch on a GPU
multiplies by the reciprocal of a Python number and does not divide, so compiled code never does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from commeff.compressors.scratch import tiles

if TYPE_CHECKING:
    from commeff.compressors.random import WorkerRandom

LOG = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

SHORTEST = 1 << 15  # numbers; fewer cost less than the call of a compiled function
SHAPES = 64  # that are compiled; what comes after is computed plainly
DEVICES = "cpu", "cuda"  # whose messages are compiled
# Kernels of a GPU round where plain torch does: products are not contracted with sums, and quotients are correct.
PLAIN: dict[str, Any] = {"emulate_precision_casts": True, "eager_numerics.division_rounding": True}


class _Compiler:
    """The switch of this process, and what it has compiled."""

    def __init__(self) -> None:
        self.on = False
        self.backend = "inductor"
        self.made: dict[Hashable, Callable[..., object]] = {}

    def call(self, function: Callable[..., T], args: tuple[object, ...]) -> T:
        """function(*args), compiled if it may be."""
        key = (function, *((a.shape, a.stride(), a.dtype, a.device) if isinstance(a, Tensor) else a for a in args))
        try:
            return self._compiled(key, function, args)(*args)
        except Exception as error:
            self.made.pop(key, None)
            result = function(*args)  # an error of the function itself is raised here, and the compiler stays on
            self.on = False
            LOG.warning("messages are not compiled: %s: %s", type(error).__name__, " ".join(str(error).split("\n")[:2]))
            return result

    def _compiled(self, key: Hashable, function: Callable[..., T], args: tuple[object, ...]) -> Callable[..., T]:
        if key not in self.made and len(self.made) < SHAPES:
            from torch._dynamo import config
            from torch._inductor import config as inductor

            config.recompile_limit = SHAPES
            inductor.compile_threads = 1  # a process of a run forks no others
            own = PLAIN if args[0].device.type == "cuda" else getattr(function, "options", None)  # type: ignore[attr-defined]
            options = own if self.backend == "inductor" else None
            self.made[key] = torch.compile(
                function, fullgraph=True, dynamic=False, backend=self.backend, options=options
            )
            if len(self.made) == SHAPES:
                LOG.warning("%d messages are given to the compiler, the most there may be; others are plain", SHAPES)
        return self.made.get(key, function)  # type: ignore[return-value]


_COMPILER = _Compiler()


def compile_messages(on: bool) -> None:
    """Whether this process compiles what messages are made of, and gossip, from now on. The results are the same.

    The first one takes about half a minute, others a few seconds; torch keeps what it compiled on disk. If there is no
    compiler, or it fails, one line of the log says so, and messages are computed plainly.
    """
    _COMPILER.on = on


def compiled(function: Callable[P, T]) -> Callable[P, T]:
    """The same function of tensors and static values, which `compile_messages` allows to be compiled."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if torch.compiler.is_compiling():
            return function(*args, **kwargs)
        first = args[0]
        each = 8 if isinstance(first, Tensor) and first.dtype == torch.uint8 else 1  # codes of a byte
        long = isinstance(first, Tensor) and first.device.type in DEVICES and each * first.numel() >= SHORTEST
        return _COMPILER.call(function, args) if _COMPILER.on and long else function(*args, **kwargs)

    return call


def pieces(matrix: Tensor, grain: int = 8, compiled: bool = True) -> list[tuple[slice, slice]]:
    """The rectangles to compute one by one: tiles, or all at once what is compiled or a tensor without numbers."""
    every = [(slice(0, len(matrix)), slice(0, matrix.shape[1]))]
    whole = compiled and _COMPILER.on and matrix.device.type in DEVICES
    return every if whole else [*tiles(matrix, grain=grain)] or every


def by_columns(
    function: Callable[..., tuple[Tensor, ...]],
    vectors: Tensor,
    *settings: object,
    random: WorkerRandom | None = None,
) -> tuple[Tensor, ...]:
    """What a plain function makes of the columns of (w, d) vectors: some bits of each, in one or several tensors.

    Parameters
    ----------
    function : of (r, 8c) columns, the settings and, with ``random``, what `halves` draws from. It gives tensors (r, m),
        m proportional to c.
    settings : a tensor has one row a worker; anything else is static.
    """
    rows, d = vectors.shape
    rest = d % 8
    places = pieces(vectors[:, : d - rest]) if d >= 8 or not rest else []
    places += [(slice(0, rows), slice(d - rest, d))] if rest else []
    outs: list[Tensor] = []
    for row, column in places:
        tile, short = vectors[row, column], rest if column.stop % 8 else 0
        row_settings = [s[row] if isinstance(s, Tensor) else s for s in settings]
        if random is not None:
            source = tile.new_empty(tile.shape, dtype=torch.int32)
            if not tile.is_meta:  # or as many bits are drawn as nobody has room for
                source = random.select(row).shifted(column.start).source(column.stop - column.start)
            row_settings.append(pad(source, (0, 8 - short)) if short and source.dtype == torch.int32 else source)
        tile = pad(tile, (0, 8 - short)) if short else tile
        results = function(tile, *row_settings)
        if len(places) == 1 and not short:
            return results
        width = max(tile.shape[1], 1)
        outs = outs or [t.new_empty(rows, -(-d * t.shape[1] // width)) for t in results]
        for out, result in zip(outs, results, strict=True):
            first, bits = column.start * result.shape[1] // width, short * result.shape[1]
            if bits % 8:
                result[:, bits // 8] &= (1 << bits % 8) - 1
            part = out[row, first : first + (-(-bits // 8) if short else result.shape[1])]
            part.copy_(result[:, : part.shape[1]])
    return tuple(outs)
