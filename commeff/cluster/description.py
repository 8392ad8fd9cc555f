"""Clusters as YAML files: those that ship, and a user's own. Every key is known, every value has a unit or is SI."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.cluster.hardware import GPU, Link
from commeff.cluster.network import Crossbar, FatTree, Network, Rails
from commeff.cluster.units import quantity
from commeff.files import regular
from commeff.require import did_you_mean

LARGEST = 1 << 20  # signs of a file that are read
SHIPPED = Path(__file__).parent / "named"
NETWORKS = {"crossbar": ("hop",), "fat_tree": ("down", "up", "hop"), "rails": ("down", "up", "hop")}


def names() -> list[str]:
    """The clusters that ship.

    >>> "a100_selene" in names()
    True
    """
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def named(name: str, gpus: int | None = None) -> dict[str, Any]:
    """The fields of a shipped cluster.

    >>> named("a100_selen")
    Traceback (most recent call last):
    ValueError: there is no cluster 'a100_selen'; did you mean a100_selene? There are a100_4nic a100_selene
    ethernet_100g ethernet_100m ethernet_10g ethernet_1g h100_400g h200_400g v100_25g, and files of your own
    """
    if name not in names():
        near = did_you_mean(name, names()) or "."
        raise ValueError(f"there is no cluster {name!r}{near} There are {' '.join(names())}, and files of your own")
    return fields(read(SHIPPED / f"{name}.yaml"), name, gpus)


def read(path: Path) -> Any:
    """What a YAML file holds."""
    import yaml

    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            return yaml.safe_load(file.read(LARGEST))
    except OSError as error:
        raise ValueError(f"{error.strerror}; give a YAML file, or one of {' '.join(names())}") from None
    except RecursionError:
        raise ValueError("nested too deeply; a cluster takes three levels") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ValueError(f"not YAML{'' if mark is None else f', in line {mark.line + 1}'}") from None


def write(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a YAML file, keys in order."""
    import yaml

    Path(path).write_text(yaml.safe_dump(dict(content), sort_keys=False))


def fields(content: Any, name: str, gpus: int | None = None) -> dict[str, Any]:
    """The fields of a cluster from what a YAML file holds; `gpus` instead of the file's, if given."""
    allowed = ("name", "gpus", "per_node", "nics", "gpu", "intra", "inter", "network")
    keys = section("the description", content, allowed, ("gpu", "inter"))
    inter = link("inter", keys["inter"])
    per_node = keys.get("per_node", 1)
    if "intra" not in keys and type(per_node) is int and per_node > 1:
        raise ValueError(f"the key intra is missing; nodes of {per_node} GPUs need the link between two of them")
    return {
        "name": str(keys.get("name", name)),
        "gpus": keys.get("gpus", per_node) if gpus is None else gpus,
        "gpu": processor("gpu", keys["gpu"]),
        "per_node": per_node,
        "intra": link("intra", keys["intra"]) if "intra" in keys else inter,
        "inter": inter,
        "nics": keys.get("nics", 1),
        "network": network("network", keys.get("network", {"kind": "crossbar"})),
    }


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


def link(where: str, content: Any) -> Link:
    """A link: {bandwidth: 200 Gb/s, latency: 5 us}, and perhaps a burst and an efficiency."""
    keys = section(where, content, ("bandwidth", "latency", "burst", "efficiency"), ("bandwidth", "latency"))
    bandwidth = quantity(f"{where}: bandwidth", keys["bandwidth"], "bytes/s")
    latency = quantity(f"{where}: latency", keys["latency"], "seconds")
    burst = quantity(f"{where}: burst", keys.get("burst", 0), "bytes")
    try:
        return Link(bandwidth, latency, burst, keys.get("efficiency", 1.0))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def processor(where: str, content: Any) -> GPU:
    """A GPU: name, memory, memory_bandwidth, peak by precision, hour_cost."""
    required = ("name", "memory", "memory_bandwidth", "peak")
    keys = section(where, content, (*required, "hour_cost"), required)
    if not isinstance(keys["peak"], Mapping):
        raise ValueError(f"{where}: peak is {keys['peak']!r}; give FLOP/s by precision, such as {{bf16: 312 TFLOP/s}}")
    cost = keys.get("hour_cost")
    if isinstance(cost, str):
        raise ValueError(f"{where}: hour_cost is {cost!r}; give a bare number of US dollars, or leave it out")
    return GPU(
        name=str(keys["name"]),
        memory_bytes=quantity(f"{where}: memory", keys["memory"], "bytes"),
        memory_bandwidth=quantity(f"{where}: memory_bandwidth", keys["memory_bandwidth"], "bytes/s"),
        peak_flops={p: quantity(f"{where}: peak {p}", v, "FLOP/s") for p, v in keys["peak"].items()},
        hour_cost=cost,
    )


def network(where: str, content: Any) -> Network:
    """A network: {kind: crossbar}, {kind: fat_tree, down: [16], up: [4]} or {kind: rails}, the rails being crossbars or
    trees of their own; `hop` is what each link adds.
    """
    keys = section(where, content, ("kind", "down", "up", "hop"), ("kind",))
    kind = keys["kind"]
    if kind not in NETWORKS:
        near = did_you_mean(str(kind), NETWORKS) or "."
        raise ValueError(f"{where}: there is no kind {kind!r}{near} There are {' '.join(NETWORKS)}")
    section(where, content, ("kind", *NETWORKS[kind]), ("down", "up") if kind == "fat_tree" else ())
    hop = quantity(f"{where}: hop", keys.get("hop", 0), "seconds")
    if kind == "crossbar":
        return Crossbar(hop)
    down, up = (counts(f"{where}: {key}", keys.get(key, [])) for key in ("down", "up"))
    tree = FatTree(down, up, hop) if down or up else Crossbar(hop)
    return tree if kind == "fat_tree" else Rails(tree)


def counts(where: str, content: Any) -> tuple[int, ...]:
    """A list of whole numbers."""
    if not isinstance(content, list) or not all(type(item) is int for item in content):
        raise ValueError(f"{where}: {content!r} is not a list of whole numbers, one for each level, such as [16]")
    return tuple(content)
