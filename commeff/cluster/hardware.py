"""Hardware described: links and GPUs, in bytes, seconds and FLOP/s; no prefixes, no bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


def positive(what: str, value: float, unit: str, zero: bool = False) -> None:
    """Refuse what is not a number above 0 (or at least 0).

    Parameters
    ----------
    what : what the number is of, such as "latency".
    unit : of the number, for the message.
    zero : whether 0 is allowed.

    Examples
    --------
    >>> positive("bandwidth", -1.0, "bytes/s")
    Traceback (most recent call last):
    ValueError: bandwidth must be a number of bytes/s above 0, got -1.0
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):
        raise ValueError(f"{what} must be a number of {unit} {'from 0 on' if zero else 'above 0'}, got {value!r}")


@dataclass(frozen=True)
class Link:
    """A connection, one direction: a message of S bytes takes  latency + max(0, S - burst) / rate  seconds,  with
    rate = bandwidth x efficiency.

    Parameters
    ----------
    bandwidth : bytes per second that the link carries.
    latency : seconds before the first byte arrives, software included.
    burst : bytes that pass at once before the rate limit is felt (a token bucket; 0 on ordinary links).
    efficiency : share of the bandwidth that is left to an application, above 0 to 1: packet headers take some (1448 of
        1514 bytes are left in a full TCP segment on Ethernet), acknowledgements and retransmissions behind a traffic
        shaper more. 1 where `bandwidth` was measured by an application.

    Examples
    --------
    >>> Link(bandwidth=1e9, latency=1e-5).seconds(1e6)
    0.00101
    >>> Link(bandwidth=1e9, latency=0.0, efficiency=0.5).seconds(1e6)
    0.002
    """

    bandwidth: float
    latency: float
    burst: float = 0.0
    efficiency: float = 1.0

    def __post_init__(self) -> None:
        positive("bandwidth", self.bandwidth, "bytes/s")
        positive("latency", self.latency, "seconds", zero=True)
        positive("burst", self.burst, "bytes", zero=True)
        positive("efficiency", self.efficiency, "application bytes for each byte of bandwidth")
        if self.efficiency > 1:
            raise ValueError(
                f"efficiency must be at most 1, got {self.efficiency!r}: it is the share of the bandwidth that is left "
                "to an application; give a larger bandwidth"
            )

    @property
    def rate(self) -> float:
        """Bytes per second that an application gets."""
        return self.bandwidth * self.efficiency

    def seconds(self, size: float, messages: float = 1) -> float:
        """Seconds of `size` bytes in `messages` rounds that wait for each other; the burst is available once."""
        return messages * self.latency + max(0.0, size - self.burst) / self.rate


@dataclass(frozen=True)
class GPU:
    """What computes for one worker (a CPU too).

    Parameters
    ----------
    name : as its maker writes it.
    memory_bytes, memory_bandwidth : bytes, bytes/s.
    peak_flops : dense FLOP/s by precision, some of fp32 tf32 bf16 fp16 fp8.
    hour_cost : US dollars for one hour of one GPU, or None if not known.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float] = field(hash=False)
    hour_cost: float | None = None

    def __post_init__(self) -> None:
        positive(f"memory of {self.name}", self.memory_bytes, "bytes")
        positive(f"memory bandwidth of {self.name}", self.memory_bandwidth, "bytes/s")
        if not self.peak_flops:
            raise ValueError(
                f"peak_flops of {self.name} must not be empty; give FLOP/s for some of {' '.join(PRECISIONS)}"
            )
        for precision, peak in self.peak_flops.items():
            if precision not in PRECISIONS:
                raise ValueError(f"precision of {self.name} must be one of {' '.join(PRECISIONS)}, got {precision!r}")
            positive(f"{precision} peak of {self.name}", peak, "FLOP/s")
        if self.hour_cost is not None:
            positive(f"hour_cost of {self.name}", self.hour_cost, "US dollars", zero=True)

    def description(self) -> dict[str, Any]:
        """What a YAML file says of it."""
        return {
            "name": self.name,
            "memory": self.memory_bytes,
            "memory_bandwidth": self.memory_bandwidth,
            "peak": dict(self.peak_flops),
            "hour_cost": self.hour_cost,
        }
