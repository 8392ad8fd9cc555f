"""Clusters as YAML: what ships, what is read, what is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from commeff.cluster import Cluster, Crossbar, FatTree, Rails, names
from commeff.cluster.cluster import SHIPPED
from commeff.cluster.hardware import quantity

SMALL = {
    "gpu": {"name": "T", "memory": "16 GiB", "memory_bandwidth": "300 GB/s", "peak": {"fp32": "8 TFLOP/s"}},
    "inter": {"bandwidth": "10 Gb/s", "latency": "20 us"},
}


def changed(**keys: object) -> dict[str, object]:
    return {**SMALL, **keys}


def refusal(content: object, gpus: int | None = None) -> str:
    with pytest.raises(ValueError, match=r".") as error:
        Cluster.parse(content, "small", gpus)
    return str(error.value)


@pytest.mark.parametrize("name", names())
def test_every_shipped_cluster_loads_with_more_nodes(name: str) -> None:
    one = Cluster.named(name)
    many = Cluster.named(name, gpus=16 * one.per_node)
    assert (many.nodes, many.name, many.gpu) == (16, name, one.gpu)
    assert pickle.loads(pickle.dumps(many)) == many
    assert hash(many) != hash(one)


@pytest.mark.parametrize("file", [*SHIPPED.glob("*.yaml"), *SHIPPED.parent.glob("*.yaml")], ids=lambda file: file.stem)
def test_shipped_descriptions_say_where_their_numbers_come_from(file: Path) -> None:
    numbers = [line for line in file.read_text().splitlines() if "/s" in line.split("#")[0]]
    assert all("#" in line or "peak" in line or "encode" in line for line in numbers)


@pytest.mark.parametrize("node", ["a100", "h100", "l40s", "rtx4090"])
def test_nodes_behind_one_nic_differ_in_nothing_else(node: str) -> None:
    slow, fast = (Cluster.named(f"{node}_{nic}") for nic in ("10g", "100g"))
    assert slow.nics == fast.nics == 1
    assert replace(slow, name="", inter=fast.inter) == replace(fast, name="")
    assert slow.inter.bandwidth == Cluster.named("ethernet_10g").inter.bandwidth
    assert fast.inter == Cluster.named("ethernet_100g").inter


def test_a_description_names_its_gpu_and_starts_from_another() -> None:
    mine = Cluster.parse({"like": "h100_400g", "nics": 1, "inter": SMALL["inter"]}, "mine", 16)
    theirs = Cluster.named("h100_400g", 16)
    assert (mine.gpu, mine.intra, mine.network, mine.nics, mine.inter.bandwidth) == (
        theirs.gpu, theirs.intra, theirs.network, 1, 1.25e9
    )  # fmt: skip
    assert Cluster.parse(changed(gpu="l40s"), "mine").gpu.name == "L40S"
    assert "did you mean l40s" in refusal(changed(gpu="l40"))
    assert "did you mean h100_400g" in refusal({"like": "h100_400"})


def test_the_names_of_the_contract_are_there_with_their_nics() -> None:
    speeds = {
        "v100_25g": (1, 8, 25),
        "a100_selene": (8, 8, 200),
        "a100_4nic": (4, 8, 200),
        "h100_400g": (8, 8, 400),
        "h200_400g": (8, 8, 400),
        "b200_400g": (8, 8, 400),
        "gb200_nvl72": (72, 72, 400),
        "mi300x_400g": (8, 8, 400),
    }
    for name, (nics, size, gigabits) in speeds.items():
        cluster = Cluster.named(name, gpus=2 * size)
        assert (cluster.nics, cluster.per_node) == (nics, size)
        assert 0.9 < cluster.inter.bandwidth * 8e-9 / gigabits <= 1
        assert cluster.intra.bandwidth > cluster.inter.bandwidth
    cubes = Cluster.named("tpu_v5p", gpus=128)
    assert cubes.nodes == 2
    assert 6 * cubes.intra.bandwidth / 2 * 8e-9 == pytest.approx(0.9 * 4800)
    assert {"ethernet_1g", "ethernet_100m"} < {*names()}


def test_units_are_read_and_bits_are_not_bytes() -> None:
    cluster = Cluster.parse(changed(inter={"bandwidth": "10 Gb/s", "latency": "20 us", "burst": "256 KiB"}), "small")
    assert (cluster.inter.bandwidth, cluster.inter.latency, cluster.inter.burst) == (1.25e9, 2e-5, 262144)
    assert (cluster.gpu.memory_bytes, cluster.gpu.peak_flops) == (16 * 2**30, {"fp32": 8e12})
    assert Cluster.parse(changed(inter={"bandwidth": 1.25e9, "latency": 2e-5}), "small").inter.bandwidth == 1.25e9
    assert quantity("bandwidth", "1_000_000", "bytes/s") == quantity("bandwidth", "1_000 kB/s", "bytes/s") == 1e6


def test_headers_take_their_share_of_a_link() -> None:
    link = Cluster.parse(changed(inter={"bandwidth": "10 Gb/s", "latency": 0, "efficiency": 0.8}), "small").inter
    assert (link.bandwidth, link.efficiency, link.rate) == (1.25e9, 0.8, 1e9)
    assert link.seconds(1e9) == 1.0
    assert type(link.seconds(1e9)) is float
    assert link.seconds(np.array([1e9, 2e9])).tolist() == [1.0, 2.0]
    for name, megabytes in (("ethernet_1g", 119.55), ("ethernet_100m", 11.955)):
        assert Cluster.named(name).inter.rate / 1e6 == pytest.approx(megabytes, rel=1e-4)


def test_networks_are_read() -> None:
    def network(**keys: object) -> object:
        return Cluster.parse(changed(network=keys), "small").network

    assert network(kind="crossbar", hop="1 us") == Crossbar(1e-6)
    assert network(kind="fat_tree", down=[16], up=[4]) == FatTree((16,), (4,))
    assert network(kind="rails") == Rails(Crossbar())
    assert network(kind="rails", down=[16], up=[4]) == Rails(FatTree((16,), (4,)))
    assert network(kind="rails", pxn=False) == Rails(Crossbar(), pxn=False)
    assert FatTree((16, 8), (4, 16)).thin(nics=1) == [(16, 4), (128, 64)]
    assert FatTree((2**40, 2**40), (1, 1)).thin(nics=1) == [(2.0**40, 1), (2.0**80, 1)]


def test_what_cannot_be_is_refused_in_one_line_with_a_way_out() -> None:
    cases = {
        refusal(changed(inter={"bandwidth": "-1 Gb/s", "latency": 0})): (
            "inter: bandwidth must be above 0",
            "-125000000.0",
        ),
        refusal(changed(inter={"bandwidth": "10 Gb", "latency": 0})): ("'10 Gb'", "200 Gb/s"),
        refusal(changed(inter={"bandwidth": "fast", "latency": 0})): ("'fast'", "25 GB/s"),
        refusal(changed(inter={"bandwidth": "1e99999999999 Gb/s", "latency": 0})): ("1e99999999999", "200 Gb/s"),
        refusal(changed(inter={"bandwidth": 10**400, "latency": 0})): ("inter: bandwidth must be", "got inf"),
        refusal(changed(inter={"bandwidth": 1e9})): ("inter", "latency is missing"),
        refusal(changed(inter={"bandwidth": 1e9, "latency": 0, "efficiency": 1.2})): ("inter: efficiency", "(0, 1]"),
        refusal(changed(inter={"bandwidth": 1e9, "latency": 0, "efficiency": "96 %"})): ("inter: efficiency", "'96 %'"),
        refusal(changed(intre={})): ("'intre'", "did you mean int"),
        refusal(changed(per_node=8)): ("intra is missing",),
        refusal(changed(per_node=0)): ("GPUs per node on small", "from 1 on, got 0"),
        refusal(changed(nics=1.5)): ("NICs per node on small", "whole number", "1.5"),
        refusal(changed(gpus=10**30)): ("GPUs on small must be at most",),
        refusal(changed(per_node=8, intra=SMALL["inter"]), gpus=12): ("got 12", "take 8 or 16"),
        refusal(changed(network={"kind": "torus"})): ("'torus'", "fat_tree"),
        refusal(changed(network={"kind": "crossbar", "up": [4]})): ("'up'", "hop"),
        refusal(changed(network={"kind": ["rails"]})): ("'rails'", "fat_tree"),
        refusal(changed(network={"kind": "rails", "pxn": 1})): ("network: pxn", "true or false", "got 1"),
        refusal(changed(network={"kind": "fat_tree", "down": [16], "up": 4})): ("network: up", "[16]"),
        refusal(changed(network={"kind": "fat_tree", "down": [16], "up": []})): ("down=[16]", "each level"),
        refusal(changed(gpu={**SMALL["gpu"], "peak": {"fp64": 1e12}})): ("'fp64'", "bf16"),  # type: ignore[dict-item]
        refusal(changed(gpu={**SMALL["gpu"], "hour_cost": "3 USD"})): ("'3 USD'", "US dollars"),  # type: ignore[dict-item]
        refusal([1, 2]): ("a list is", "known keys"),
    }
    for said, words in cases.items():
        assert "\n" not in said
        assert all(word in said for word in words), said


def test_an_unknown_name_and_a_missing_or_broken_file_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean h200_400g") as error:
        Cluster.named("h200-400g")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"nowhere.yaml: No such file"):
        Cluster.load(tmp_path / "nowhere.yaml")
    broken = tmp_path / "broken.yaml"
    for text, fault in (("PASSWORD: {name: [", "not YAML, in line 1"), ("PASSWORD", "a str is not a table")):
        broken.write_text(text)
        with pytest.raises(ValueError, match=f"broken.yaml: .*{fault}") as error:
            Cluster.load(broken)
        assert "PASSWORD" not in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", names())
def test_what_is_saved_is_loaded_again(name: str, tmp_path: Path) -> None:
    cluster = Cluster.named(name, gpus=16)
    cluster.save(tmp_path / "profile.yaml")
    assert Cluster.load(tmp_path / "profile.yaml") == cluster


def test_a_tree_a_burst_and_an_overhead_are_saved_too(tmp_path: Path) -> None:
    for kind, more in (("fat_tree", {}), ("rails", {}), ("rails", {"pxn": False})):
        inter = {"bandwidth": "10 Gb/s", "latency": 0, "burst": "1 KiB", "efficiency": 0.9}
        network = {"kind": kind, "down": [16, 4], "up": [4, 4], "hop": "1 us", **more}
        cluster = Cluster.parse(changed(inter=inter, network=network), "small", 8)
        cluster.save(tmp_path / "profile.yaml")
        assert Cluster.load(tmp_path / "profile.yaml") == cluster


def test_a_file_of_ones_own_is_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    cluster = Cluster.load(path, gpus=64)
    assert (cluster.name, cluster.gpus, cluster.nodes, cluster.intra) == ("mine", 64, 64, cluster.inter)
