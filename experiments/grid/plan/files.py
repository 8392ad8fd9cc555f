"""YAML files that people write: grids and sites. What cannot be read is refused in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.reading import CHARACTERS, Bounded, TooLargeError
from commeff.files import regular

MERGE = "tag:yaml.org,2002:merge"  # of `<<: *anchor`


class Loader(Bounded):
    """YAML without repeated keys, no larger than files that people write."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping as YAML does, but refuse repeated keys."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != MERGE]
        twice = sorted({str(key) for key in keys if keys.count(key) > 1})
        if twice:
            line = node.start_mark.line + 1
            raise ConfigError([f"{', '.join(twice)} given twice in the part that begins in line {line}; keep one"])
        return super().construct_mapping(node, deep)


class Words(Loader):
    """The same, every value being text as it stands there: 4:00:00 is no number of seconds, and no is a word."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.yaml_implicit_resolvers = {}


def read_mapping(path: Path, kind: str, keys: Sequence[str], loader: type[Loader] = Loader) -> dict[str, Any]:
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
