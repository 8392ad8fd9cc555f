"""What the worker axis does, for the planner: which method sends what, how often, and remembers what.

Names are those of `commeff.methods`. A worker here is a whole replica; its ranks send their own pieces at the same
time.
"""

from __future__ import annotations

from dataclasses import dataclass

from commeff.planner.checks import MOST


@dataclass(frozen=True)
class Method:
    """A row of the catalogue.

    Parameters
    ----------
    gradients : 1 if every step reduces gradients over the workers.
    gossip : 1 if every step exchanges models with `degree` neighbours.
    periodic : 1 if models are averaged over all workers every `period` steps.
    compresses : gradients travel compressed, so a compressor must be named.
    memory_bytes : for each parameter, beyond weights, gradients and optimizer.
    """

    gradients: int = 0
    gossip: int = 0
    periodic: int = 0
    compresses: bool = False
    memory_bytes: int = 0


METHODS = {
    "psgd": Method(gradients=1),
    "compressed_sgd": Method(gradients=1, compresses=True),
    "mem_sgd": Method(gradients=1, compresses=True, memory_bytes=4),  # what was not sent yet, fp32
    "power_sgd": Method(gradients=1, compresses=True, memory_bytes=4),
    "dsgd": Method(gossip=1, memory_bytes=2),  # the neighbours' models arrive in a buffer
    "gossip_pga": Method(gossip=1, periodic=1, memory_bytes=2),
    "local_sgd": Method(periodic=1),
    "diloco": Method(periodic=1, memory_bytes=8),  # anchor and outer momentum, fp32
}


@dataclass(frozen=True)
class Compression:
    """What a compressor makes of d numbers.

    Parameters
    ----------
    value_bytes : bytes on the wire for each of the d numbers; 0 for a low rank, whose bytes follow from shapes.
    rank : of a low-rank approximation, else 0.
    summable : messages add up in flight (all-reduce); else every worker gathers all of them.
    """

    value_bytes: float
    rank: int = 0
    summable: bool = False

    @classmethod
    def parse(cls, text: str, method: str = "compressed_sgd") -> Compression:
        """A compressor as 'topk:RATIO', 'randomk:RATIO' (a shared mask), 'qsgd:LEVELS', 'sign', 'int8' or 'rank:R'.

        Top-k sends a 4-byte value and a 4-byte index for each kept number. QSGD sends ceil(log2(2 levels + 1)) bits.

        >>> Compression.parse("topk:0.01").value_bytes, Compression.parse("qsgd:7").value_bytes
        (0.08, 0.5)
        >>> Compression.parse("topk:2")
        Traceback (most recent call last):
        ValueError: compressor='topk:2' was asked for; topk keeps a share in (0, 1], such as topk:0.01
        """
        name, _, argument = text.partition(":")
        if (name == "rank") != (method == "power_sgd"):
            raise ValueError(
                f"compressor={text!r} does not fit method={method}; power_sgd takes rank:R, and only it does"
            )
        try:
            number = float(argument) if argument else 0.0
        except ValueError:
            raise ValueError(f"compressor={text!r} was asked for; {argument!r} is not a number") from None
        if name in ("topk", "randomk"):
            if not 0 < number <= 1:
                raise ValueError(
                    f"compressor={text!r} was asked for; {name} keeps a share in (0, 1], such as {name}:0.01"
                )
            return cls(8 * number) if name == "topk" else cls(4 * number, summable=True)
        if name in ("qsgd", "rank"):
            if not (1 <= number <= MOST and number.is_integer()):
                raise ValueError(f"compressor={text!r} was asked for; {name} takes a whole number, such as {name}:4")
            whole = int(number)
            return cls(0.0, rank=whole, summable=True) if name == "rank" else cls((2 * whole).bit_length() / 8)
        if name in ("sign", "int8") and not argument:
            return cls(1 / 8 if name == "sign" else 1.0)
        raise ValueError(
            f"there is no compressor {text!r}; there are topk:RATIO randomk:RATIO qsgd:LEVELS sign int8 rank:R"
        )
