"""No compression, or a narrower floating-point type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from commeff.compressors.base import Compressor, Scope
from commeff.compressors.message import DenseMessage
from commeff.compressors.random import WorkerRandom

_DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Dense(Compressor):
    """Every coordinate, in its own dtype or in ``dtype``: float64, float32, bfloat16, float16, by name or torch's.

        C(v)_i = v_i rounded to nearest

    The error is at most (eps/2)|v_i| while v_i is a normal number of the dtype.
    float16 overflows to infinity beyond 65504 and loses accuracy below 6.1e-5. The message shares memory with the
    vectors where nothing is cast.

    When: the baseline; 16-bit numbers halve everything at no risk to speak of, and still sum in flight.

    Parameters
    ----------
    dtype
        What travels: float64, float32, bfloat16 or float16, by name or torch's. None, the default: the dtype of the
        vectors, so that nothing is lost. bfloat16 has the range of float32 and 8 significant bits, float16 has 11.

    Examples
    --------
    >>> vectors = torch.tensor([[1.0, 2.0, 3.0]])
    >>> message = Dense("bfloat16").compress(vectors, WorkerRandom(0, [0]))
    >>> message.wire_bytes.tolist(), message.decode().tolist()
    ([6], [[1.0, 2.0, 3.0]])
    """

    dtype: str | torch.dtype | None = None

    scope: ClassVar[Scope] = "coordinate"
    summable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.dtype not in (None, *_DTYPES, *_DTYPES.values()):
            raise ValueError(f"Dense: dtype must be None or one of {', '.join(_DTYPES)}, got {self.dtype!r}")

    def compress(self, vectors: Tensor, random: WorkerRandom) -> DenseMessage:
        return DenseMessage.of(vectors, None if self.dtype is None else self._dtype)

    def omega(self, d: int) -> float | None:
        return 0.0 if self._relative_error == 0 else None

    def delta(self, d: int) -> float | None:
        return 1 - self._relative_error**2

    @property
    def _dtype(self) -> torch.dtype:
        return self.dtype if isinstance(self.dtype, torch.dtype) else _DTYPES[self.dtype or "float64"]

    @property
    def _relative_error(self) -> float:
        """Largest relative rounding error of float64 vectors; nothing is lost where the dtype is not narrowed."""
        return 0.0 if self._dtype is torch.float64 else torch.finfo(self._dtype).eps / 2

    @classmethod
    def samples(cls) -> list[Self]:
        return [cls(), cls("float32"), cls("bfloat16")]
