"""What the laws are tried on: a small layout, vectors at which bounds are attained, and how a complaint is raised."""

from __future__ import annotations

import torch
from torch import Tensor

from commeff.compressors.base import Compressor
from commeff.compressors.layout import Layout
from commeff.compressors.message import Message
from commeff.compressors.random import WorkerRandom

LAYOUT = Layout.of([("weight", (4, 6)), ("bias", (6,)), ("gain", (10,))])
LONG = Layout.of([("weight", (30, 30)), ("bias", (100,))])  # where what was measured at one width shows
SAMPLES = 4000


def streams(workers: int) -> WorkerRandom:
    """The randomness of workers 0, 1, ..."""
    return WorkerRandom(0, range(workers), path=("law",))


def draws(compressor: Compressor, vector: Tensor) -> Tensor:
    """The decoded messages of many workers for one vector (1, d), or, where they may draw alike, of many steps."""
    samples = SAMPLES if vector.shape[1] <= LAYOUT.d else SAMPLES // 20
    if not compressor.summable:
        return compressor.compress(vector.expand(samples, -1), streams(samples)).decode()
    steps = (WorkerRandom(0, [0], step=step, path=("law",)) for step in range(samples // 8))
    return torch.cat([compressor.compress(vector, random).decode() for random in steps])


def noise(number: int, rows: int = 1, d: int = LAYOUT.d) -> Tensor:
    """(rows, d) normal numbers, others for every ``number``."""
    return WorkerRandom(1, range(rows), step=number).normal(d, dtype=torch.float64)


def vectors(d: int = LAYOUT.d) -> dict[str, Tensor]:
    """Named vectors (1, d), among them those at which the bounds are attained."""
    normal, one = noise(0, d=d), torch.zeros(1, d, dtype=torch.float64)
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


def raw(numbers: Tensor) -> list[int]:
    """The bytes of a tensor."""
    return numbers.contiguous().flatten().view(torch.uint8).tolist()


def equal(message: Message, other: Message) -> bool:
    """Whether two messages have the same parts, to the bit, and are read alike."""
    pairs = list(zip(message.parts, other.parts, strict=True))
    same = all(torch.equal(part, like) and part.dtype == like.dtype for part, like in pairs)
    return same and torch.equal(message.decode(), other.decode())


def require(condition: bool | Tensor, complaint: str) -> None:
    """Raise the complaint unless the condition holds."""
    if not condition:
        raise AssertionError(complaint)
