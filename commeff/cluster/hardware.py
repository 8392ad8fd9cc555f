"""Hardware described: links and GPUs, in bytes, seconds and FLOP/s; and how a YAML file says them.

Every key is known. A value is a bare number, or a quantity as hardware sheets write it: '200 Gb/s', '80 GiB', '5 us'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from commeff import require
from commeff.require import did_you_mean

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
Kind = Literal["bytes", "bytes/s", "seconds", "FLOP/s"]
POWERS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
TIMES = {"s": "1", "ms": "1e-3", "us": "1e-6", "ns": "1e-9"}
PATTERNS = {  # prefix, then what is counted
    "bytes": r"(?P<prefix>[kMGTP]|[KMG]i|)(?P<unit>B)",
    "bytes/s": r"(?P<prefix>[kMGTP]|[KMG]i|)(?P<unit>[Bb])/s",
    "FLOP/s": r"(?P<prefix>[kMGTP]|)(?P<unit>FLOP)/s",
}
EXAMPLES = {"bytes": "80 GiB", "bytes/s": "200 Gb/s or 25 GB/s", "seconds": "5 us", "FLOP/s": "312 TFLOP/s"}


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

    def seconds(self, size: Any, messages: float = 1) -> Any:
        """Seconds of `size` bytes, a number or an array, in `messages` rounds that wait for each other; the burst is
        available once.
        """
        seconds = messages * self.latency + np.maximum(0.0, size - self.burst) / self.rate
        return seconds if np.ndim(seconds) else float(seconds)


@dataclass(frozen=True)
class Codec:
    """How fast a compressor was measured to be on a vector of float32.

    Parameters
    ----------
    encode, decode : bytes of the vector a second.
    """

    encode: float
    decode: float

    def __post_init__(self) -> None:
        require.positive(encode=self.encode, decode=self.decode)


@dataclass(frozen=True)
class GPU:
    """What computes for one worker (a CPU too).

    Parameters
    ----------
    name : as its maker writes it.
    memory_bytes, memory_bandwidth : bytes, bytes/s.
    peak_flops : dense FLOP/s by precision, some of fp32 tf32 bf16 fp16 fp8.
    hour_cost : US dollars for one hour of one GPU, or None if not known.
    codecs : measured compressors by the names of their classes; others are estimated, see `codecs.coding_seconds`.
    host_bandwidth : bytes/s of copies to the memory of its host, and as many back at once; None if not known.
    """

    name: str
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float] = field(hash=False)
    hour_cost: float | None = None
    codecs: Mapping[str, Codec] = field(default_factory=dict, hash=False)
    host_bandwidth: float | None = None

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
        if self.host_bandwidth is not None:
            require.positive(**{f"host bandwidth of {self.name}": self.host_bandwidth})

    def description(self) -> dict[str, Any]:
        """The GPU as a YAML file describes it."""
        return {
            "name": self.name,
            "memory": self.memory_bytes,
            "memory_bandwidth": self.memory_bandwidth,
            "peak": dict(self.peak_flops),
            "hour_cost": self.hour_cost,
            **({"codecs": {name: asdict(codec) for name, codec in self.codecs.items()}} if self.codecs else {}),
            **({"host_bandwidth": self.host_bandwidth} if self.host_bandwidth else {}),
        }


def read_link(where: str, content: Any) -> Link:
    """A link: {bandwidth: 200 Gb/s, latency: 5 us}, and perhaps a burst and an efficiency."""
    keys = section(where, content, ("bandwidth", "latency", "burst", "efficiency"), ("bandwidth", "latency"))
    bandwidth = quantity(f"{where}: bandwidth", keys["bandwidth"], "bytes/s")
    latency = quantity(f"{where}: latency", keys["latency"], "seconds")
    burst = quantity(f"{where}: burst", keys.get("burst", 0), "bytes")
    try:
        return Link(bandwidth, latency, burst, keys.get("efficiency", 1.0))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


@cache
def gpus() -> dict[str, Any]:
    """The GPUs and CPUs that a description may name, as a YAML file says them.

    >>> gpus()["a100_80g"]["memory"]
    '80 GiB'
    """
    return dict(yaml.safe_load(Path(__file__).with_name("gpus.yaml").read_text()))


def read_gpu(where: str, content: Any) -> GPU:
    """A GPU: the name of a shipped one, or name, memory, memory_bandwidth, peak by precision, hour_cost, codecs,
    host_bandwidth.

    >>> read_gpu("gpu", "h100")
    Traceback (most recent call last):
    ValueError: gpu must be one of a100_80g, b200_180g, cpu, gb200_186g, h100_80g, h200_141g, l40s, mi300x_192g,
    rtx4090, tpu_v5p, v100_32g, got 'h100'; did you mean h100_80g?
    """
    if isinstance(content, str):
        require.one_of(sorted(gpus()), **{where: content})
        content = gpus()[content]
    required = ("name", "memory", "memory_bandwidth", "peak")
    keys = section(where, content, (*required, "device", "hour_cost", "codecs", "host_bandwidth"), required)
    if not isinstance(keys["peak"], Mapping):
        raise ValueError(f"{where}: peak is {keys['peak']!r}; give FLOP/s by precision, such as {{bf16: 312 TFLOP/s}}")
    cost, host = keys.get("hour_cost"), keys.get("host_bandwidth")
    if isinstance(cost, str):
        raise ValueError(f"{where}: hour_cost is {cost!r}; give a bare number of US dollars, or leave it out")
    return GPU(
        name=str(keys["name"]),
        memory_bytes=quantity(f"{where}: memory", keys["memory"], "bytes"),
        memory_bandwidth=quantity(f"{where}: memory_bandwidth", keys["memory_bandwidth"], "bytes/s"),
        peak_flops={p: quantity(f"{where}: peak {p}", v, "FLOP/s") for p, v in keys["peak"].items()},
        hour_cost=cost,
        codecs={name: _read_codec(f"{where}: codecs: {name}", codec) for name, codec in _table(where, keys).items()},
        host_bandwidth=None if host is None else quantity(f"{where}: host_bandwidth", host, "bytes/s"),
    )


def gpu_called(device: str) -> GPU | None:
    """The shipped GPU that torch calls so, if there is one.

    >>> gpu_called("NVIDIA A100-SXM4-80GB").peak_flops["bf16"], gpu_called("NVIDIA H100 PCIe")
    (312000000000000.0, None)
    """
    key = next((key for key, content in gpus().items() if content.get("device") == device), None)
    return None if key is None else read_gpu("gpu", key)


def _table(where: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
    table = keys.get("codecs") or {}
    if not isinstance(table, Mapping):
        raise ValueError(f"{where}: codecs is {table!r}; give {{encode: 2 GB/s, decode: 9 GB/s}} by compressor")
    return table


def _read_codec(where: str, content: Any) -> Codec:
    parts = ("encode", "decode")
    keys = section(where, content, parts, parts)
    return Codec(*(quantity(f"{where}: {part}", keys[part], "bytes/s") for part in parts))


def section(where: str, content: Any, known: tuple[str, ...], required: tuple[str, ...]) -> Mapping[str, Any]:
    """The content if it is a mapping with known keys and all required ones; else refused.

    >>> section("gpu", {"memori": 1}, ("memory", "name"), ())
    Traceback (most recent call last):
    ValueError: gpu: unknown key 'memori'; did you mean memory? Known are memory name
    """
    if not isinstance(content, Mapping):
        kind, keys = type(content).__name__, " ".join(known)
        raise ValueError(f"{where}: a {kind} is not a table of keys and values; known keys are {keys}")
    for key in content:
        if key not in known:
            near = did_you_mean(str(key), known) or "."
            raise ValueError(f"{where}: unknown key {key!r}{near} Known are {' '.join(known)}")
    for key in required:
        if key not in content:
            raise ValueError(f"{where}: the key {key} is missing")
    return content


def quantity(what: str, value: Any, kind: Kind) -> float:
    """A number in bytes, bytes/s, seconds or FLOP/s: bare, or with a unit. A small b is a bit, eight to the byte.

    >>> quantity("bandwidth", "200 Gb/s", "bytes/s"), quantity("latency", "5 us", "seconds"), quantity("S", 15, "bytes")
    (25000000000.0, 5e-06, 15.0)
    >>> quantity("memory", "80 Gb", "bytes")
    Traceback (most recent call last):
    ValueError: memory: '80 Gb' is not a number of bytes; write it like 80 GiB, or as a bare number of bytes
    """
    refusal = ValueError(
        f"{what}: {value!r} is not a number of {kind}; write it like {EXAMPLES[kind]}, or as a bare number of {kind}"
    )
    if isinstance(value, float):
        return value
    match = (
        None
        if isinstance(value, bool)
        else re.fullmatch(r"\s*(?P<number>[-+._\deE]+?)\s*(?P<unit>[A-Za-z][A-Za-z/]*)?\s*", str(value))
    )
    factor = scale(match["unit"], kind) if match else None
    if match is None or factor is None:
        raise refusal
    try:
        return float(Decimal(match["number"]) * factor)
    except ArithmeticError:  # no number, or one that no float can be
        raise refusal from None


def scale(unit: str | None, kind: Kind) -> Decimal | None:
    """How many bytes, bytes/s, seconds or FLOP/s one `unit` is; None if it is no such unit.

    >>> scale("Gb/s", "bytes/s"), scale("ms", "seconds"), scale(None, "bytes"), scale("GB", "bytes/s")
    (Decimal('125000000'), Decimal('0.001'), Decimal('1'), None)
    """
    if unit is None:
        return Decimal(1)
    if kind == "seconds":
        return Decimal(TIMES[unit]) if unit in TIMES else None
    match = re.fullmatch(PATTERNS[kind], unit)
    return None if match is None else Decimal(POWERS[match["prefix"]]) / (8 if match["unit"] == "b" else 1)
