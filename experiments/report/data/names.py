"""What methods, topologies and compressors are called in print: code calls them by one word each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

NAMES = {
    "ad_psgd": "AD-PSGD",
    "adamw": "AdamW",
    "all_gather": "all-gather",
    "all_reduce": "all-reduce",
    "async_sgd": "asynchronous SGD",
    "bert_large": "BERT-Large",
    "choco": "CHOCO-SGD",
    "d2": "D²",
    "d_equistatic": "D-EquiStatic",
    "decentlam": "DecentLaM",
    "diana": "DIANA",
    "diloco": "DiLoCo",
    "dmsgd": "DmSGD",
    "double_squeeze": "DoubleSqueeze",
    "drive": "DRIVE",
    "dsgd": "DSGD",
    "dsgd, one_peer_exponential": "gossip after the update",
    "dsgd, order awc, one_peer_exponential": "gossip while computing",
    "ef21": "EF21",
    "ef21_sgd": "EF21-SGD",
    "ef21_sgdm": "EF21-SGDM",
    "eden": "EDEN",
    "ethernet_100g": "100 Gb/s Ethernet",
    "ethernet_100m": "100 Mb/s Ethernet",
    "ethernet_10g": "10 Gb/s Ethernet",
    "ethernet_1g": "1 Gb/s Ethernet",
    "gossip_aga": "Gossip-AGA",
    "gossip_pga": "Gossip-PGA",
    "local_sgd": "local SGD",
    "marina": "MARINA",
    "mem_sgd": "error feedback",
    "mem_sgd, top_k, ratio 0.01": "error feedback, top 1 %",
    "natural": "natural compression",
    "neolithic": "NEOLITHIC",
    "od_equidyn": "OD-EquiDyn",
    "one_peer": "one peer",
    "one_peer_exponential": "one-peer exponential",
    "optimizer.lr": "learning rate",
    "ou_equidyn": "OU-EquiDyn",
    "power_sgd": "PowerSGD",
    "psgd": "parallel SGD",
    "qsgd": "QSGD",
    "random_k": "random-k",
    "resnet50": "ResNet-50",
    "scaffnew": "Scaffnew",
    "scaffold": "SCAFFOLD",
    "sgd": "SGD",
    "sgp": "SGP",
    "sparse_loco": "SparseLoCo",
    "streaming_diloco": "streaming DiLoCo",
    "tern_grad": "TernGrad",
    "top_k": "top-k",
    "u_equistatic": "U-EquiStatic",
}


def plugins(environment: Mapping[str, Any]) -> list[str]:
    """Each plug-in of a run: its version, repository and commit, as far as they are known, and the digest of its code.

    >>> facts = {"repository": "git.example/her/plugin", "commit": "0a1b2c3d4e", "digest": "f" * 64}
    >>> plugins({"plugins": {"mine.py": facts}, "commit": "9"})
    ['mine.py of git.example/her/plugin at 0a1b2c3d4e, digest ffffffffffff']
    """
    entries = environment.get("plugins")
    lines = []
    for name, facts in entries.items() if isinstance(entries, Mapping) else ():
        if not isinstance(facts, Mapping):
            continue
        known = {key: str(value) for key, value in facts.items() if value}
        words = [str(name), known.get("version", "")]
        words += [f"{word} {known[key]}" for word, key in (("of", "repository"), ("at", "commit")) if key in known]
        digest = f", digest {known['digest'][:12]}" if "digest" in known else ""
        lines.append(" ".join(word for word in words if word) + digest)
    return lines


def quoted(name: str) -> str:
    """A name in a sentence: between quotes where it has a comma, at which a list of names would fall apart.

    >>> quoted("top-k, 10 %"), quoted("psgd")
    ('“top-k, 10 %”', 'psgd')
    """
    return f"“{name}”" if "," in name else name


def called(name: str, words: Mapping[str, str] | None = None) -> str:
    """What a name of code is called, by its own words first.

    >>> called("ef21"), called("exact_diffusion"), called("qsgd", {"qsgd": "QSGD, 4 bits"})
    ('EF21', 'exact diffusion', 'QSGD, 4 bits')
    """
    return (words or {}).get(name) or NAMES.get(name) or name.replace("_", " ")


def readable(text: str) -> str:
    """The name of a variant in a reader's words: names of code in it are called by theirs, `key=value` by its words.

    >>> readable("psgd then DiLoCo H=5"), readable("sparse_loco top_k workers=2 ratio=0.02")
    ('parallel SGD then DiLoCo H=5', 'SparseLoCo top-k workers 2 ratio 0.02')
    >>> readable("natural compression"), readable("dsgd one_peer_exponential, optimizer.lr=0.1")
    ('natural compression', 'DSGD one-peer exponential, learning rate 0.1')
    """
    text = re.sub(r"\b([a-z][\w.]+)=", lambda key: f"{NAMES.get(key[1]) or key[1].rpartition('.')[2]} ", text)
    return re.sub(r"\b[a-z]\w*\b", lambda word: word[0] if called(word[0]) in text else called(word[0]), text)
