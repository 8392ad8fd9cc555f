"""Laws on what travels: the bytes that are billed are those that are received, and they are all that is needed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.laws.problems import LAYOUT, equal, noise, raw, require, streams, vectors
from commeff.compressors.layout import Layout
from commeff.compressors.message import Message, agreed
from commeff.compressors.packing import packed_bytes
from commeff.compressors.random import WorkerRandom


def check_wire(compressor: Compressor) -> None:
    """wire_bytes is the size of what is received, and nothing else is needed to decode it."""
    for layout in (LAYOUT, LAYOUT.slice(0, 24)):
        bound, rows = compressor.bind(layout), noise(4, 3)[:, : layout.d]
        message, other = agreed(
            [
                bound.compress(rows, streams(3)),
                bound.compress(torch.ones(1, layout.d, dtype=rows.dtype), WorkerRandom(0, [9], path=("law",))),
            ]
        )
        _bills_its_parts(compressor, message)
        hidden = _differing(message, other)
        require(
            not hidden,
            f"{compressor}: a receiver decodes something else than the sender: {hidden} depends on the vectors but is "
            "not in parts, so it never travels; put it in parts, with one row a worker",
        )
        buffer = message.to_buffer()
        for receiver in (message.form, other.form, other):
            read = receiver.from_buffer(buffer).decode()
            require(
                torch.equal(read, message.decode()),
                f"{compressor}: a receiver decodes something else than the sender: `decode` may read parts and what "
                "every receiver knows, nothing else",
            )
    _is_packed(compressor)


def _bills_its_parts(compressor: Compressor, message: Message) -> None:
    rows, buffer = message.rows, message.to_buffer()
    strange = [type(part).__name__ for part in message.parts if not isinstance(part, Tensor)]
    require(not strange, f"{compressor}: parts hold a {strange}: every part is a tensor")
    lengths = [len(part) for part in message.parts]
    require(
        lengths == [3] * len(lengths),
        f"{compressor}: parts of {lengths} rows for 3 workers: row i of each part is what worker i sends",
    )
    bytes_sent = [b"".join(bytes(raw(part[row])) for part in message.parts) for row in range(rows)]
    size = len(bytes_sent[0])
    advice = "do not override it, and pack into parts what is sent"
    require(
        message.wire_bytes.tolist() == [size] * rows and message.wire_bytes.dtype == torch.int64,
        f"{compressor}: wire_bytes says {message.wire_bytes.tolist()}, but {[size] * rows} bytes are sent: {advice}",
    )
    require(
        message.row_bytes == size,
        f"{compressor}: row_bytes says {message.row_bytes}, but {size} bytes a worker are sent: {advice}",
    )
    require(
        buffer.shape[1:] == (size,) and [bytes(raw(row)) for row in buffer] == bytes_sent,
        f"{compressor}: the buffer is not the bytes of the parts: {buffer.shape[1]} bytes for parts of {size}",
    )


def _is_packed(compressor: Compressor) -> None:
    """Whole numbers and truth values that would fit into half the bytes are not packed; a header of 8 bytes may be."""
    bound = compressor.bind(LAYOUT)
    messages = [bound.compress(vector.repeat(64, 1), streams(64)) for vector in vectors().values()]
    parts = [message.parts for message in agreed(messages)]
    for number, likes in enumerate(zip(*parts, strict=True)):
        part = torch.stack(likes)
        if part.dtype.is_floating_point or not part.numel():
            continue
        low, high = int(part.min()), int(part.max())
        bits = 1 if part.dtype is torch.bool else max(high.bit_length(), (~low).bit_length() + 1 if low < 0 else 0)
        count = part[0, 0].numel()
        size = count * part.element_size()
        require(
            2 * packed_bytes(count, bits) > size or size <= 8,
            f"{compressor}: part {number} is not packed: {count} numbers from {low} to {high} travel as "
            f"{part.dtype} in {size} bytes and fit into {packed_bytes(count, bits)}: use "
            f"compressors.pack(codes, {bits}) and unpack",
        )


def _differing(message: Message, other: Message) -> str:
    """The name of something outside parts that differs between two messages of one compressor; '' if nothing does."""
    for name in vars(message):
        value, other_value = getattr(message, name), vars(other).get(name)
        if name == "parts" or _alike(value, other_value):
            continue
        declared = name in {field.name for field in fields(message)}
        return f"{name!r} of {type(message).__name__}" + ("" if declared else ", which is no field,")
    return ""


def _alike(first: Any, second: Any) -> bool:
    if type(first) is not type(second):
        return False
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, Message):
        return not _differing(first, second)
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(_alike, first, second))
    return bool(first == second)


def check_add_to(compressor: Compressor) -> None:
    """add_to adds weights @ decode(), and add_rows +- decode(), also to columns of a larger matrix."""
    message = compressor.bind(LAYOUT).compress(noise(5, 4), streams(4))
    weights = torch.tensor([[0.5, 0.0, -2.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    for name, out in {
        "matrix": noise(6, 3),
        "part of a matrix": torch.cat([noise(6, 3), noise(7, 3)], 1)[:, 7:-33],
    }.items():
        expected = out + weights @ message.decode()
        message.add_to(out, weights)
        require(
            torch.allclose(out, expected, rtol=1e-12, atol=1e-12),
            f"{compressor}: add_to a {name} is not weights @ decode(): off by {float((out - expected).abs().max()):.2g}"
            "; leave it out, the one of Message is right",
        )
    for sign in (1, -1):
        wide = torch.cat([noise(6, 4), noise(7, 4)], 1)
        expected = wide[:, 7:-33] + sign * message.decode()
        message.add_rows(wide[:, 7:-33], sign)
        require(
            torch.equal(wide[:, 7:-33], expected),
            f"{compressor}: add_rows does not add {sign} * decode(), bit for bit; leave it out, the one of Message is "
            "right",
        )
    message.add_to(torch.zeros(0, LAYOUT.d, dtype=torch.float64), torch.zeros(0, 4, dtype=torch.float64))


def check_shapes(compressor: Compressor) -> None:
    """No rows, one coordinate, no coordinates, and any memory layout."""
    bound, rows = compressor.bind(LAYOUT), noise(9, 3)
    message, none = agreed([bound.compress(rows, streams(3)), bound.compress(rows[:0], streams(0))])
    require(
        none.decode().shape == (0, LAYOUT.d) and none.wire_bytes.shape == (0,),
        f"{compressor}: no rows do not give an empty message, which a process without workers sends",
    )
    require(
        [(part.shape[1:], part.dtype) for part in none.parts]
        == [(part.shape[1:], part.dtype) for part in message.parts],
        f"{compressor}: the parts of an empty message have other shapes than those of a message with rows",
    )
    out = torch.ones(2, LAYOUT.d, dtype=rows.dtype)
    none.add_to(out, torch.zeros(2, 0, dtype=rows.dtype))
    require(bool((out == 1).all()), f"{compressor}: a message without rows adds something")
    strided = {"transposed": rows.T.contiguous().T, "columns of a matrix": torch.cat([rows] * 3, 1)[:, 40:80]}
    for name, same in strided.items():
        require(
            equal(message, bound.compress(same, streams(3))),
            f"{compressor}: vectors that lie in memory as {name} give another message: index, do not view memory",
        )
    for d in (0, 1):
        try:
            small = compressor.bind(Layout.flat(d))
        except ValueError:
            continue
        decoded = small.compress(torch.full((2, d), -3.0), streams(2)).decode()
        require(
            decoded.shape == (2, d) and bool(decoded.isfinite().all()),
            f"{compressor}: {d} coordinates are not decoded: refuse them in `bind` if it cannot be",
        )


def check_summable(compressor: Compressor) -> None:
    """A summable compressor has summable messages; and where parts may be added on the way, the sum is right."""
    bound = compressor.bind(LAYOUT)
    message = bound.compress(noise(11, 4), streams(4))
    require(message.summable or not bound.summable, f"{compressor}: summable is True, but False of its messages")
    if message.summable:
        numbers = all(part.is_floating_point() for part in message.parts)
        require(numbers, f"{compressor}: messages are said to be summable, but carry parts that are not numbers")
        added = message.with_parts([part.sum(0, keepdim=True) for part in message.parts]).decode()
        exact = message.decode().sum(0, keepdim=True)
        tolerance = 16 * max(torch.finfo(part.dtype).eps for part in message.parts)
        same = torch.allclose(added, exact, rtol=0, atol=tolerance)
        require(
            same,
            f"{compressor}: the sum of messages is not the message of the sum (off by "
            f"{float((added - exact).abs().max()):.2g}): summable must be False",
        )


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
