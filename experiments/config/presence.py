"""Who takes part, and who lies: what cannot be asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LABEL_FLIP = "label_flip"  # the attack on data; others are on gradients


def participates(config: Mapping[str, Any]) -> bool:
    """Whether there may be steps in which some workers are absent; old configurations have none.

    >>> participates({}), participates({"participation": 0.5}), participates({"availability": [[0, 1, 2]]})
    (False, True, True)
    """
    return bool(config.get("participation", 1) < 1 or config.get("dropout", 0) or config.get("availability"))


def participation_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for what the keys of participation cannot be."""
    faults = []
    if not 0 < config["participation"] <= 1:
        faults.append(f"participation must lie in (0, 1], got {config['participation']}")
    if not 0 <= config["dropout"] < 1:
        faults.append(f"dropout must lie in [0, 1), got {config['dropout']}")
    trace, n = config["availability"], config["workers"]
    if isinstance(trace, list):
        must = f"availability must name workers from 0 to {n - 1} and steps 0 <= start < stop"
        faults += [f"{must}, got {line}: correct the trace" for line in trace if not _fits(line, n)][:3]
        if not trace:
            faults.append("availability must have a line for each stay, got none: omit it if all workers are there")
    return faults


def attack_faults(config: Mapping[str, Any]) -> list[str]:
    """A line for what the keys of an attack cannot be.

    >>> attack_faults({"attack": "noise", "attackers": 0, "workers": 4})
    ['attackers must be from 1 to 3 of 4 workers with attack=noise, got 0']
    """
    attack, attackers, n = config["attack"], config["attackers"], config["workers"]
    if attack is None:
        return [f"attack must be given with attackers={attackers}, got none: say what they do"] if attackers else []
    if 0 < attackers < n:
        return []
    return [f"attackers must be from 1 to {n - 1} of {n} workers with attack={attack}, got {attackers}"]


def _fits(line: Any, n: int) -> bool:
    whole = isinstance(line, list) and len(line) == 3 and all(type(number) is int for number in line)
    return whole and 0 <= line[0] < n and 0 <= line[1] < line[2]
