"""YAML that people write: what it says is bounded before anything is made of it, since aliases can stand for billions
of values.
"""

from __future__ import annotations

from typing import Any

import yaml

CHARACTERS = 1_000_000  # of a file
VALUES = 200_000  # with every alias written out
KEYS = 1_000  # of a mapping
DEPTH = 30  # of lists and mappings in each other


class TooLargeError(ValueError):
    """YAML beyond the bounds, and which."""


class Bounded(yaml.SafeLoader):
    """Refuses what is beyond the bounds."""

    def __init__(self, stream: str) -> None:
        check_length(stream)
        super().__init__(stream)

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        check_node(node)
        return self.construct_document(node)


def check_length(text: str) -> None:
    """Refuse a text of too many characters."""
    if len(text) > CHARACTERS:
        raise TooLargeError(f"must have at most {CHARACTERS:,} characters, got more")


def check_node(root: yaml.Node) -> None:
    """Refuse nodes that are nested too deeply, that hold themselves, or that are too many with aliases written out."""
    measured: dict[int, tuple[int, int] | None] = {}  # values and depth by the identity of a node; None: under way

    def measure(node: yaml.Node) -> tuple[int, int]:
        if id(node) in measured:
            found = measured[id(node)]
            if found is None:
                raise TooLargeError("must not refer to itself, got a part that holds itself; write its values")
            return found
        measured[id(node)] = None
        inside = [measure(part) for part in _parts(node)]
        found = 1 + sum(values for values, _ in inside), 1 + max((depth for _, depth in inside), default=0)
        if found[0] > VALUES:
            raise TooLargeError(f"must have at most {VALUES:,} values with its aliases written out, got more")
        if found[1] > DEPTH:
            raise TooLargeError(f"must have lists and mappings nested at most {DEPTH} deep, got more")
        measured[id(node)] = found
        return found

    measure(root)


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        if len(node.value) > KEYS:
            raise TooLargeError(f"must have at most {KEYS:,} keys in a mapping, got {len(node.value):,}")
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []
