"""The name of a run, by what decides its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.registry import lasting, plugins_in, split
from commeff.experiments.config.schema import gathered, meshed

# Keys that do not decide the result, wherever they stand.
IRRELEVANT = ("bucket_mb", "checkpoint_every", "data_dir", "nproc")
YOUNGER_RUN = {
    "accumulate": None,
    "decay": "all",
    "participation": 1.0,
    "dropout": 0.0,
    "availability": None,
    "speeds": None,
    "step_time": 1.0,
    "spread": 0.2,
    "straggler": 1.0,
    "links": None,
    "attack": None,
    "attackers": 0,
}  # of a run; a part's of that name counts
BESIDE = ("compile", "log", "profile")  # nor do these, of a run; a part may have one of the same name that does
# Keys that are younger than the first runs; the value that means what was done before does not count.
YOUNGER = {
    "clip": None,
    "collective": "auto",
    "device": "cpu",
    "digest": None,
    "documents": False,
    "mesh": {"worker": 1, "pipeline": 1, "shard": 1, "tensor": 1, "schedule": "1f1b"},
    "micro_batches": 1,
    "model": "gpt",
    "pieces": None,
    "precision": "fp32",
    "recompute": "none",
    "resume_from": None,
    "sequence": False,
    "server": "row",
    "zero": 0,
}
_DILOCO = {"ahead": 0, "begin": 0, "bits": None, "delay": 0, "host": False, "mixing": 0.0}
YOUNGER_OF: dict[str, dict[str, Any]] = {  # of these parts alone
    "commeff.methods.diloco": _DILOCO,
    "commeff.methods.streaming_diloco": _DILOCO,
    "commeff.methods.scaffold": {"option": "two"},
    "commeff.methods.gradient_tracking": {"order": "atc"},
    "commeff.compressors.QSGD": {"norm": "l2"},
    "commeff.compressors.PerTensor": {"below": 0, "rules": []},
    "commeff.compressors.ScaledSign": {"scale": "l1"},
    "commeff.compressors.TopK": {"coded": False},
    "commeff.optimizers.FedAdam": {"weight_decay": 0.0},
    "commeff.optimizers.FedYogi": {"weight_decay": 0.0},
    **{f"torch.optim.{name}": {"fused": None} for name in ("Adam", "AdamW", "SGD")},
    "commeff.experiments.tasks.Language": {"loss_chunks": 1, "order": "random"},
    "commeff.experiments.tasks.LeastSquares": {"data_seed": None},
    "commeff.experiments.tasks.Logistic": {"regulariser": "l2"},
    "commeff.experiments.tasks.Quadratic": {"columns": 1},
    "commeff.experiments.tasks.Risk": {"rows": 1000, "dimension": 10, "drift": 0.2, "sigma": 0.0},
}


def run_id(config: Mapping[str, Any]) -> str:
    """The name of a run: method-task-hash, equal for equal results. A plug-in counts by its source, not by its path.

    Parameters
    ----------
    config : a resolved configuration.

    Examples
    --------
    >>> task = {"_target_": "commeff.experiments.tasks.Digits"}
    >>> config = {"method": {"_target_": "commeff.methods.psgd"}, "task": task}
    >>> run_id(config)  # doctest: +ELLIPSIS
    'psgd-digits-...'
    >>> run_id(config | {"checkpoint_every": 7}) == run_id(config), run_id(config | {"steps": 6}) == run_id(config)
    (True, False)
    """
    relevant = deciding(config)
    if "resume_from" in relevant:
        relevant["resume_from"] = Path(relevant["resume_from"]).name  # only the name of that folder decides
    relevant |= {"whole": True} if meshed(config) and config.get("nproc") == 1 else {}  # its bytes are others
    plugins = {target: [split(target)[1], source_digest(target)] for target in plugins_in(relevant)}
    text = json.dumps(_lasting(relevant), sort_keys=True)
    for target, identity in plugins.items():
        text = text.replace(json.dumps(target), json.dumps(identity))
    names = (split(config[part]["_target_"])[1].lower() for part in ("method", "task"))
    return "-".join((*names, hashlib.sha256(text.encode()).hexdigest()[:10]))


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a configuration that decides the result."""
    younger = [name for name, value in YOUNGER_RUN.items() if config.get(name, value) == value]
    relevant: dict[str, Any] = _relevant({k: v for k, v in config.items() if k not in (*BESIDE, *younger)})
    return relevant | ({"compile": "all"} if config.get("compile") == "all" else {})  # compiled models round anew


def _relevant(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node
    younger = YOUNGER | YOUNGER_OF.get(str(node.get("_target_")), {})
    known = gathered(node.get("_target_"))  # a part of another class counts as what it is
    parts = [name for name, part in known.items() if node.get(name, part).get("_target_") == part["_target_"]]
    settings = {name: value for name, value in node.items() if name not in parts}
    settings |= {name: value for part in parts for name, value in node.get(part, {}).items() if name != "_target_"}
    return {
        name: _relevant(value)
        for name, value in settings.items()
        if name not in IRRELEVANT and (name not in younger or value != younger[name])
    }


def _lasting(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {name: lasting(value) if name == "_target_" else _lasting(value) for name, value in node.items()}
