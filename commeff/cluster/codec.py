"""What compressing costs a worker."""

from __future__ import annotations

from dataclasses import dataclass

from commeff import require


@dataclass(frozen=True)
class Codec:
    """Speeds of a compressor. A worker encodes its own vector once and decodes each message that it receives.

    Parameters
    ----------
    expansion : bytes of the vector for each byte of its message, such as 32 for signs of float32 numbers.
    encode, decode : bytes of the vector per second.

    >>> Codec(expansion=10, encode=1e9, decode=2e9).seconds(message=1e7, received=3)
    0.25
    """

    expansion: float
    encode: float
    decode: float

    def __post_init__(self) -> None:
        require.positive(expansion=self.expansion)
        require.positive(encode=self.encode, decode=self.decode)

    def seconds(self, message: float, received: float) -> float:
        """Encode one message of so many bytes, decode `received` of them."""
        vector = message * self.expansion
        return vector / self.encode + received * vector / self.decode
