"""Hardware described: links and GPUs, in bytes, seconds and FLOP/s; no prefixes, no bits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from commeff import require

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")


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
        require.positive(bandwidth=self.bandwidth)
        require.at_least(0, latency=self.latency, burst=self.burst)
        require.within("(0, 1]", efficiency=self.efficiency)

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
        require.positive(**{f"memory of {self.name}": self.memory_bytes})
        require.positive(**{f"memory bandwidth of {self.name}": self.memory_bandwidth})
        if not self.peak_flops:
            raise ValueError(
                f"peak_flops of {self.name} must not be empty; give FLOP/s for some of {' '.join(PRECISIONS)}"
            )
        for precision, peak in self.peak_flops.items():
            require.one_of(PRECISIONS, **{f"precision of {self.name}": precision})
            require.positive(**{f"{precision} peak of {self.name}": peak})
        if self.hour_cost is not None:
            require.at_least(0, **{f"hour_cost of {self.name}": self.hour_cost})

    def description(self) -> dict[str, Any]:
        """What a YAML file says of it."""
        return {
            "name": self.name,
            "memory": self.memory_bytes,
            "memory_bandwidth": self.memory_bandwidth,
            "peak": dict(self.peak_flops),
            "hour_cost": self.hour_cost,
        }
