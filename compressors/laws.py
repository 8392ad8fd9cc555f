"""What every compressor must obey: ``check(compressor)`` raises AssertionError with the law that is broken.

A user's compressor is held to the same laws as ours. All randomness is fixed, so a result does not change from run to
run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise

import torch
from torch import Tensor

from compressors.base import Compressor
from compressors.layout import Layout
from compressors.message import Message
from compressors.random import WorkerRandom

LAYOUT = Layout.of([("weight", (4, 6)), ("bias", (6,)), ("gain", (10,))])
SAMPLES = 4000


def check(compressor: Compressor) -> None:
    """All laws, one after the other."""
    for law in LAWS:
        law(compressor)


def check_constants(compressor: Compressor) -> None:
    """omega >= 0 and 0 < delta <= 1 where known; the scope is one of the three."""
    bound = compressor.bind(LAYOUT)
    omega, delta = bound.omega(LAYOUT.d), bound.delta(LAYOUT.d)
    _require(omega is None or omega >= 0, f"{compressor}: omega is {omega}, below 0")
    _require(delta is None or 0 < delta <= 1, f"{compressor}: delta is {delta}, outside (0, 1]")
    _require(bound.scope in ("coordinate", "tensor", "whole"), f"{compressor}: {bound.scope!r} is no scope")


def check_error(compressor: Compressor) -> None:
    """E|C(v) - v|^2 <= omega |v|^2 and <= (1 - delta)|v|^2, within five standard errors of a mean over many workers."""
    bound = compressor.bind(LAYOUT)
    omega, delta = bound.omega(LAYOUT.d), bound.delta(LAYOUT.d)
    limits = {"omega": omega, "1 - delta": None if delta is None else 1 - delta}
    for name, vector in _vectors().items():
        norm = max(float(vector.norm()), torch.finfo(torch.float64).tiny)
        errors = ((_draws(bound, vector) - vector) / norm).square().sum(1)
        mean, spread = float(errors.mean()), float(errors.std()) / len(errors) ** 0.5
        _require(errors.isfinite().all(), f"{compressor}: the decoded {name} vector is not finite")
        for constant, limit in limits.items():
            if limit is not None:
                _require(
                    mean <= limit + 5 * spread + 1e-12,
                    f"{compressor}: E|C(v) - v|^2 / |v|^2 = {mean:.6g} +- {spread:.2g} for the {name} vector, "
                    f"above {constant} = {limit:.6g}",
                )


def check_unbiased(compressor: Compressor) -> None:
    """E C(v) = v for each coordinate where omega is known, within six standard errors."""
    bound = compressor.bind(LAYOUT)
    if bound.omega(LAYOUT.d) is None:
        return
    vector = _noise(1).sign() * (0.3 + _noise(2).abs())
    decoded = _draws(bound, vector)
    error = (decoded.mean(0) - vector[0]).abs()
    allowed = 6 * decoded.std(0) / len(decoded) ** 0.5 + 1e-6 * vector.abs().max()
    worst = int((error - allowed).argmax())
    _require(
        error[worst] <= allowed[worst],
        f"{compressor}: coordinate {worst} = {float(vector[0, worst]):.4f} has a mean off by {float(error[worst]):.2g} "
        f"(allowed {float(allowed[worst]):.2g}): biased, yet omega is not None",
    )


def check_rows_independent(compressor: Compressor) -> None:
    """Rows hosted by another process, in any order and company, give the same bits."""
    bound, workers = compressor.bind(LAYOUT), [0, 1, 2, 5, 17]
    vectors = torch.cat([_noise(1, 3), torch.zeros(1, LAYOUT.d), 1e30 * _noise(2)]).double()
    together = bound.compress(vectors, WorkerRandom(0, workers))
    for rows in ([0], [3], [4], [2, 0], [4, 1, 3]):
        apart = bound.compress(vectors[rows], WorkerRandom(0, [workers[row] for row in rows]))
        _same(together.select(rows), apart, f"{compressor}: the message of rows {rows} depends on the rows beside them")


def check_own_randomness(compressor: Compressor) -> None:
    """A compressor that draws at random draws anew every step, and for each worker unless its messages are summable."""
    bound, vectors = compressor.bind(LAYOUT), _noise(3).expand(8, -1)
    now, later = (bound.compress(vectors, WorkerRandom(0, range(8), step)).decode() for step in (0, 1))
    random = not torch.equal(now, later)
    equal = bool((now == now[:1]).all())
    _require(random or equal, f"{compressor}: workers draw different numbers, but the same ones every step")
    _require(
        not random or not equal or bound.summable,
        f"{compressor}: all workers draw the same numbers, so averaging is in vain, yet messages are not summable",
    )


def check_wire(compressor: Compressor) -> None:
    """wire_bytes is the size of what is received, and nothing else is needed to decode it."""
    bound, vectors = compressor.bind(LAYOUT), _noise(4, 3)
    message = bound.compress(vectors, _random(3))
    buffer = message.to_buffer()
    rows = [b"".join(bytes(_bytes(part[row])) for part in message.parts) for row in range(3)]
    _require(buffer.shape[1:] == (len(rows[0]),), f"{compressor}: the buffer is not the bytes of the parts")
    _require([bytes(_bytes(row)) for row in buffer] == rows, f"{compressor}: the buffer is not the bytes of the parts")
    _require(
        message.wire_bytes.tolist() == [len(row) for row in rows] and message.wire_bytes.dtype == torch.int64,
        f"{compressor}: wire_bytes says {message.wire_bytes.tolist()}, but {[len(row) for row in rows]} bytes are sent",
    )
    other = bound.compress(torch.ones(1, LAYOUT.d, dtype=vectors.dtype), WorkerRandom(0, [9], path=("law",)))
    for receiver in (message.form, other.form, other):
        read = receiver.from_buffer(buffer).decode()
        _require(
            torch.equal(read, message.decode()), f"{compressor}: a receiver decodes something else than the sender"
        )


def check_add_to(compressor: Compressor) -> None:
    """add_to adds weights @ decode(), also to columns of a larger matrix and with nobody to hear."""
    message = compressor.bind(LAYOUT).compress(_noise(5, 4), _random(4))
    weights = torch.tensor([[0.5, 0.0, -2.0, 1.0], [0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    for name, out in {
        "matrix": _noise(6, 3),
        "part of a matrix": torch.cat([_noise(6, 3), _noise(7, 3)], 1)[:, 7:-33],
    }.items():
        expected = out + weights @ message.decode()
        message.add_to(out, weights)
        _require(
            torch.allclose(out, expected, rtol=1e-12, atol=1e-12),
            f"{compressor}: add_to a {name} is not weights @ decode()",
        )
    message.add_to(torch.zeros(0, LAYOUT.d, dtype=torch.float64), torch.zeros(0, 4, dtype=torch.float64))


def check_pure(compressor: Compressor) -> None:
    """Equal input and randomness give an equal message; nothing else changes."""
    bound, vectors = compressor.bind(LAYOUT), _noise(8, 3)
    before, value = vectors.clone(), copy.deepcopy(bound)
    first = bound.compress(vectors, _random(3))
    decoded = first.decode().clone()
    _same(first, bound.compress(vectors.clone(), _random(3)), f"{compressor}: compressing twice gives two messages")
    _require(torch.equal(decoded, first.decode()), f"{compressor}: decoding twice gives two results")
    _require(torch.equal(vectors, before), f"{compressor}: compress writes into its input")
    _require(bound == value and hash(bound) == hash(value), f"{compressor}: compress changes the compressor")


def check_shapes(compressor: Compressor) -> None:
    """No rows, one coordinate, no coordinates, and any memory layout."""
    bound, vectors = compressor.bind(LAYOUT), _noise(9, 3)
    message, none = bound.compress(vectors, _random(3)), bound.compress(vectors[:0], _random(0))
    _require(
        none.decode().shape == (0, LAYOUT.d) and none.wire_bytes.shape == (0,),
        f"{compressor}: no rows do not give an empty message",
    )
    _require(
        [(part.shape[1:], part.dtype) for part in none.parts]
        == [(part.shape[1:], part.dtype) for part in message.parts],
        f"{compressor}: the parts of an empty message have other shapes than those of a message with rows",
    )
    out = torch.ones(2, LAYOUT.d, dtype=vectors.dtype)
    none.add_to(out, torch.zeros(2, 0, dtype=vectors.dtype))
    _require(bool((out == 1).all()), f"{compressor}: a message without rows adds something")
    strided = {"transposed": vectors.T.contiguous().T, "columns of a matrix": torch.cat([vectors] * 3, 1)[:, 40:80]}
    for name, same in strided.items():
        _same(message, bound.compress(same, _random(3)), f"{compressor}: {name} vectors give another message")
    for d in (0, 1):
        try:
            small = compressor.bind(Layout.flat(d))
        except ValueError:
            continue
        decoded = small.compress(torch.full((2, d), -3.0), _random(2)).decode()
        _require(
            decoded.shape == (2, d) and bool(decoded.isfinite().all()), f"{compressor}: {d} coordinates are not decoded"
        )


def check_dtypes(compressor: Compressor) -> None:
    """Vectors of every floating-point type are decoded in that type, about as well as in float64."""
    bound = compressor.bind(LAYOUT)
    omega, delta = bound.omega(LAYOUT.d), bound.delta(LAYOUT.d)
    limits = [limit for limit in (omega, None if delta is None else 1 - delta) if limit is not None]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        vector = _noise(10).to(dtype)
        decoded = _draws(bound, vector)
        _require(decoded.dtype == dtype, f"{compressor}: {dtype} vectors are decoded as {decoded.dtype}")
        exact = vector.double()
        error = float((decoded.double() - exact).square().sum(1).mean() / exact.square().sum())
        for limit in limits:
            allowed = (limit**0.5 * 1.1 + 2 * torch.finfo(dtype).eps) ** 2
            _require(
                error <= allowed,
                f"{compressor}: the relative squared error of {dtype} vectors is {error:.3g}, above {allowed:.3g}",
            )


def check_summable(compressor: Compressor) -> None:
    """What says it is summable has messages that are; and where parts may be added on the way, the sum is right."""
    bound = compressor.bind(LAYOUT)
    message = bound.compress(_noise(11, 4), _random(4))
    _require(message.summable or not bound.summable, f"{compressor}: summable is True, but False of its messages")
    if message.summable:
        numbers = all(part.is_floating_point() for part in message.parts)
        _require(numbers, f"{compressor}: messages are said to be summable, but carry parts that are not numbers")
        added = message.with_parts([part.sum(0, keepdim=True) for part in message.parts]).decode()
        exact = message.decode().sum(0, keepdim=True)
        tolerance = 16 * max(torch.finfo(part.dtype).eps for part in message.parts)
        equal = torch.allclose(added, exact, rtol=0, atol=tolerance)
        _require(equal, f"{compressor}: the sum of messages is not the message of the sum")


def check_scope(compressor: Compressor) -> None:
    """Blocks that the scope allows, compressed one by one, give what the whole vector gives."""
    bound, vectors = compressor.bind(LAYOUT), _noise(12, 3)
    cuts = {"coordinate": (0, 3, 10, 30, 40), "tensor": (0, 24, 40), "whole": (0, 40)}[bound.scope]
    whole = bound.compress(vectors, _random(3)).decode()
    for start, stop in pairwise(cuts):
        block = (
            compressor.bind(LAYOUT.slice(start, stop))
            .compress(vectors[:, start:stop], _random(3).shifted(start))
            .decode()
        )
        _require(
            torch.equal(block, whole[:, start:stop]),
            f"{compressor}: columns {start} to {stop} compressed alone differ, though the scope is {bound.scope!r}",
        )


LAWS: tuple[Callable[[Compressor], None], ...] = (
    check_constants,
    check_error,
    check_unbiased,
    check_rows_independent,
    check_own_randomness,
    check_wire,
    check_add_to,
    check_pure,
    check_shapes,
    check_dtypes,
    check_summable,
    check_scope,
)


def concrete(kind: type[Compressor] = Compressor) -> Iterator[type[Compressor]]:
    """All compressors that are defined at this moment: the classes below ``kind`` that are not abstract."""
    for child in kind.__subclasses__():
        if not child.__abstractmethods__:
            yield child
        yield from concrete(child)


def _random(workers: int) -> WorkerRandom:
    return WorkerRandom(0, range(workers), path=("law",))


def _draws(compressor: Compressor, vector: Tensor) -> Tensor:
    """What is decoded of one vector (1, d) by many workers, or, where they may draw alike, in many steps."""
    if not compressor.summable:
        return compressor.compress(vector.expand(SAMPLES, -1), _random(SAMPLES)).decode()
    steps = (WorkerRandom(0, [0], step=step, path=("law",)) for step in range(SAMPLES // 8))
    return torch.cat([compressor.compress(vector, random).decode() for random in steps])


def _noise(number: int, rows: int = 1) -> Tensor:
    return WorkerRandom(1, range(rows), step=number).normal(LAYOUT.d, dtype=torch.float64)


def _vectors() -> dict[str, Tensor]:
    """Named vectors (1, d), among them those at which the bounds are attained."""
    normal, one = _noise(0), torch.zeros(1, LAYOUT.d, dtype=torch.float64)
    one[0, 7] = -2.5
    return {
        "normal": normal,
        "heavy-tailed": normal**5,
        "constant": torch.full_like(one, 4 / 3),
        "one-hot": one,
        "zero": torch.zeros_like(one),
        "huge": 1e30 * normal,
        "tiny": 1e-30 * normal,
    }


def _bytes(numbers: Tensor) -> list[int]:
    return numbers.contiguous().flatten().view(torch.uint8).tolist()


def _same(message: Message, other: Message, complaint: str) -> None:
    pairs = zip(message.parts, other.parts, strict=True)
    _require(all(torch.equal(part, like) and part.dtype == like.dtype for part, like in pairs), complaint)
    _require(torch.equal(message.decode(), other.decode()), complaint)


def _require(condition: bool | Tensor, complaint: str) -> None:
    if not condition:
        raise AssertionError(complaint)
