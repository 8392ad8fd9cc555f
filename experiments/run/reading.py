"""Files as a reader finds them: of any kind, size and content, since anybody may have written them.

What comes out of a store is plain: names and values, of bounded size and depth, without signs that a terminal would
obey. What cannot be read of the YAML files that people write, grids and sites, is refused in one line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.escape import visible
from commeff.files import regular

LARGEST = 1 << 28  # bytes of a file
SHORT = 8_000  # signs that a configuration has, which cannot be nested deeply enough to hurt a parser written in C
LONGEST = 10_000  # signs of a text; what follows is cut
DEEPEST = 40  # levels of names in names
MOST = 2_000_000  # values in a file
CHARACTERS = 1_000_000  # of a YAML file, which take some seconds
VALUES = 200_000  # of one, with every alias written out: a few of them can stand for more than any memory holds
KEYS = 1_000  # of a mapping in one
DEPTH = 30  # of lists and mappings in each other in one
MERGE = "tag:yaml.org,2002:merge"  # of `<<: *anchor`


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises
    ------
    OSError : also for what is no regular file, such as a link or a pipe that nobody writes, and for one too large.
    """
    with open(path, "rb", opener=own_file) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(f"{path} is larger than {LARGEST >> 20} MiB")
    return content


def read_text(path: Path) -> str:
    """The text of such a file, its lines ended by \\n."""
    return read_bytes(path).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


def own_file(path: str, flags: int) -> int:
    """An opener for `open`: a regular file, as `commeff.files.regular` has it, to which no link leads."""
    return regular(path, flags | os.O_NOFOLLOW)


def read_mapping(path: Path, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """Names and values in a file of JSON, or of what else `parse` reads.

    Raises
    ------
    OSError : if there is no such file, or none that can be read.
    ValueError : if it holds anything else.
    """
    try:
        content = plain(parse(read_text(path)))
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(content, dict):
        raise ValueError("it holds no names and values")
    return content


def read_json(path: Path) -> dict[str, Any]:
    """The content of a JSON file, {} where there is none that can be read."""
    try:
        return read_mapping(path)
    except (OSError, ValueError):
        return {}


def run_name(text: Any) -> str:
    """The folder of a run that another file names: one of the same store, never one outside.

    >>> run_name("psgd-digits-0"), run_name("../../etc")
    ('psgd-digits-0', 'etc')
    """
    name = Path(str(text)).name
    if name in ("", ".."):
        raise ValueError(f"{text!r} names no run")
    return name


def parse_yaml(text: str) -> Any:
    """Plain YAML; `yaml.YAMLError` also for what is beyond the bounds."""
    fast = getattr(yaml, "CSafeLoader", None)
    short = len(text) <= SHORT and "&" not in text and "*" not in text
    return yaml.load(text, Loader=fast if fast is not None and short else Bounded)


class TooLargeError(yaml.YAMLError):
    """YAML beyond the bounds, and which."""


class Bounded(yaml.SafeLoader):
    """YAML that is bounded before anything is made of it."""

    def __init__(self, stream: str) -> None:
        if len(stream) > CHARACTERS:
            raise TooLargeError(f"must have at most {CHARACTERS:,} characters, got more")
        super().__init__(stream)
        self._left = VALUES

    def get_single_node(self) -> yaml.Node | None:
        """The whole document, unless it is beyond the bounds."""
        node = super().get_single_node()
        if node is not None:
            self._measure(node, ())
        return node

    def _measure(self, node: yaml.Node, above: tuple[yaml.Node, ...]) -> None:
        """Refuse nodes nested too deeply, those that hold themselves, and too many of them with aliases written out."""
        self._left -= 1
        if node in above:
            raise TooLargeError("must not refer to itself, got a part that holds itself; write its values")
        if self._left < 0:
            raise TooLargeError(f"must have at most {VALUES:,} values with its aliases written out, got more")
        if len(above) == DEPTH:
            raise TooLargeError(f"must have lists and mappings nested at most {DEPTH} deep, got more")
        for part in _parts(node):
            self._measure(part, (*above, node))


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        if len(node.value) > KEYS:
            raise TooLargeError(f"must have at most {KEYS:,} keys in a mapping, got {len(node.value):,}")
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


class Unrepeated(Bounded):
    """YAML without repeated keys, no larger than files that people write."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping as YAML does, but refuse repeated keys."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            line = node.start_mark.line + 1
            raise ConfigError([f"{', '.join(twice)} given twice in the part that begins in line {line}; keep one"])
        return super().construct_mapping(node, deep)


class Words(Unrepeated):
    """The same, every value being text as it stands there: 4:00:00 is no number of seconds, and no is a word."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.yaml_implicit_resolvers = {}


def read_yaml(path: Path, kind: str, keys: Sequence[str], loader: type[Unrepeated] = Unrepeated) -> dict[str, Any]:
    """The mapping in a YAML file; `kind` and `keys` are for the error message."""
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            raw = yaml.load(file.read(CHARACTERS + 1), loader)
    except OSError as error:
        raise ConfigError([f"{kind} {path} cannot be read: {error.strerror}"]) from None
    except RecursionError:
        raise ConfigError([f"{kind} {path} refers to itself, or is nested too deeply"]) from None
    except ConfigError as error:
        raise ConfigError([f"{kind} {path}: {fault}" for fault in error.faults]) from None
    except TooLargeError as error:
        raise ConfigError([f"{kind} {path} {error}"]) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError([f"{kind} {path} is no YAML: {' '.join(str(error).split())}"]) from None
    if not isinstance(raw, dict):
        raise ConfigError([f"{kind} {path} holds no settings; it is a mapping with the keys {', '.join(keys)}"])
    return {str(key): value for key, value in raw.items()}


def plain(content: Any) -> Any:
    """The same content with names that are texts, texts that are visible and not too long, and numbers that fit.

    Raises
    ------
    ValueError : if it is deeper or larger than files of a store are.

    >>> plain({1: ["a", None, 10**400], "text": "x" * 20_000})["1"]
    ['a', None, '1000000000000000000000...']
    """
    left = MOST

    def tidy(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > DEEPEST:
            raise ValueError(f"more than {MOST} values, or {DEEPEST} levels of names")
        if isinstance(value, dict):
            return {_text(str(name)): tidy(item, depth + 1) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [tidy(item, depth + 1) for item in value]
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if abs(value) < 2**63 else f"{str(value)[:22]}..."
        return _text(str(value))

    return tidy(content, 0)


def _text(text: str) -> str:
    if len(text) <= LONGEST and text.isprintable():  # nearly every one
        return text
    return visible(text if len(text) <= LONGEST else text[:LONGEST] + " ...")
