"""A law for planning: the size of a message is known without the numbers that it will carry."""

from __future__ import annotations

import torch

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import LAYOUT, noise, require, streams
from commeff.compressors.message import Message
from commeff.compressors.random import WorkerRandom


def check_size_without_numbers(compressor: Compressor) -> None:
    """On the device "meta" a message has the parts that it has on a real one, and is received, decoded and added.

    Where values decide of its size it has at least their bytes.
    """
    advice = (
        "commeff.profile then plays it on real tensors; `tiles`, `pack` and the library's selections work on meta, "
        "`nonzero` and NumPy do not"
    )
    for layout in (LAYOUT, LAYOUT.slice(0, 24)):
        for dtype in (torch.float32, torch.float64):
            bound, rows = compressor.bind(layout), noise(15, 3)[:, : layout.d].to(dtype)
            real = bound.compress(rows, streams(3))
            try:
                planned = bound.compress(rows.to("meta"), WorkerRandom(0, range(3), path=("law",), device="meta"))
                received = planned.form.from_buffer(planned.to_buffer())
                decoded = received.decode()
                received.add_to(torch.empty(2, layout.d, dtype=dtype, device="meta"), torch.empty(2, 3, device="meta"))
            except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
                reason = str(error).partition("\n")[0]
                raise AssertionError(f"{compressor}: it does not work on meta tensors ({reason}): {advice}") from error
            if bound.data_dependent:
                require(
                    _sizes(planned) == _sizes(received) and planned.row_bytes >= real.row_bytes,
                    f"{compressor}: a message takes {real.row_bytes} bytes a row, more than the {planned.row_bytes} on "
                    "meta tensors, where it is to be the largest",
                )
                continue
            require(
                _sizes(planned) == _sizes(real) == _sizes(received) and planned.row_bytes == real.row_bytes,
                f"{compressor}: its parts are {_sizes(planned)} on meta tensors and {_sizes(real)} on real ones: make "
                "shapes from d and the settings alone",
            )
            require(
                decoded.shape == rows.shape and decoded.dtype == dtype and decoded.is_meta,
                f"{compressor}: a meta message of {dtype} is decoded as {decoded.dtype} {tuple(decoded.shape)}",
            )


def _sizes(message: Message) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shape and dtype of every part."""
    return [(tuple(part.shape), part.dtype) for part in message.parts]
