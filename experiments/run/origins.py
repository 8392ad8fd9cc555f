"""What a run takes from elsewhere: the checkpoint of another run, files that its configuration names, and plug-ins.

Whoever reads a store opens none of these files. A run keeps the mixing matrices of its topologies from files in its
folder, as GRAPHS; its topologies are built again of those. Tasks look for their data in the data folder of the reader,
whatever data_dir the run had.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from commeff.experiments.config.loading import source_digest
from commeff.experiments.config.registry import known, locate, plugins_in, split
from commeff.experiments.config.schema import GROUPS, ConfigError, current
from commeff.experiments.data.texts import KNOWN
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.reading import parse_yaml, read_json, read_mapping
from commeff.experiments.run.store import RunFolder
from commeff.experiments.run.system import git, revision
from commeff.files import rewrite

GRAPHS = "graphs.json"
LARGEST = 1 << 18  # numbers of a topology that is kept: a matrix of 512 workers
MATRICES = "commeff.topologies.from_matrices"
GRAPH_FILES = {"commeff.topologies.from_graph": "graph", MATRICES: "matrices"}  # parts that read a file: its setting
DATA_FILES = {"commeff.experiments.tasks.ImageFolder": "path", "commeff.experiments.tasks.Language": "data"}
LINKS = ("repository", "source", "source code", "code", "homepage", "home")  # of a package, the best first


def origin_of(config: Mapping[str, Any], run: RunFolder) -> str | None:
    """The run that this one goes on from, and its step, in words; None if it has checkpoints of its own by now.

    Raises
    ------
    ConfigError : it cannot go on from there.
    """
    from commeff.training.checkpoint import OLD, Checkpoints  # with torch, which readers of a store do not wait for
    from commeff.training.documents import CheckpointRefused

    def has_any(place: Path) -> bool:
        return any((place / "checkpoints" / name).exists() for name in ("latest.pt", "previous.pt", OLD))

    if has_any(run.path):
        return None
    folder = Path(config["resume_from"])
    try:
        source = current(read_mapping(folder / "config.yaml", parse_yaml))
        method = source["method"]["_target_"]
    except (OSError, ValueError, KeyError, TypeError):
        raise _fault("be the folder of a run", folder, "has no configuration: give one that is in a store") from None
    if RunFolder(folder).busy:
        raise _fault("have ended", folder, "is under way: stop it, or wait for it")
    if not has_any(folder):
        raise _fault("have a checkpoint", folder, "has none: stop it by Ctrl-C, or let it end")
    target = config["method"]["_target_"]
    if method != target:
        name = split(method)[1]
        raise _fault(f"be of this run's method, {split(target)[1]}", folder, f"is of {name}: give method={name}")
    try:
        step = Checkpoints(folder / "checkpoints", run=run_id(source)).step() or 0
    except CheckpointRefused as refusal:
        raise ConfigError([f"resume_from: {refusal}"]) from None
    if step > config["steps"]:
        raise ConfigError([f"steps must be at least {step}, got {config['steps']}: {folder.name} stands there"])
    return f"{folder.name} at step {step}"


def differences(run: RunFolder) -> str:
    """The settings, in words, that differ between a run's parts and the run that it goes on from; "" if none do."""
    config = read_mapping(run.path / "config.yaml", parse_yaml)
    if not config.get("resume_from"):
        return ""
    source = current(read_mapping(Path(config["resume_from"]) / "config.yaml", parse_yaml))
    words = [
        f"{part}.{key} is {source[part][key]} there and {value} here"
        for part in GROUPS
        for key, value in (config.get(part) or {}).items()
        if key in (source.get(part) or {}) and source[part][key] != value
    ]
    return f" ({', '.join(words)})" if words else ""


def _fault(must: str, folder: Path, got: str) -> ConfigError:
    return ConfigError([f"resume_from must {must}, got {folder}, which {got}"])


def keep_graphs(config: Mapping[str, Any], folder: Path) -> None:
    """Write the matrices of the topologies from files into a run's folder, if there are any and they are not too large.

    Parameters
    ----------
    config : a resolved configuration.
    folder : of the run.
    """
    from commeff.experiments.config.build import topology  # with torch

    matrices = {}
    for node in _from_files(config):
        graph = topology({"topology": node})
        if (period := graph.period or 1) * graph.n**2 <= LARGEST:
            matrices[_key(node)] = [graph.at(step).dense().tolist() for step in range(period)]
    if matrices:
        rewrite(folder / GRAPHS, json.dumps(matrices) + "\n")


def inside(node: Any, folder: Path) -> Any:
    """A configuration in a store, or a part of it, changed so that parts built of it open no file that it names.

    Parameters
    ----------
    node : of the configuration.
    folder : of the run.

    Raises
    ------
    ValueError : if it names a file for which there is nothing in the store.

    Examples
    --------
    >>> inside({"_target_": "commeff.experiments.tasks.CIFAR10", "data_dir": "their/data"}, Path("a run"))
    {'_target_': 'commeff.experiments.tasks.CIFAR10'}
    >>> inside({"_target_": "commeff.topologies.from_graph", "graph": "/etc/passwd"}, Path("a run"))
    Traceback (most recent call last):
    ValueError: graph=/etc/passwd is a file outside the store: it is not opened, and the run kept no copy
    """
    if isinstance(node, list):
        return [inside(item, folder) for item in node]
    if not isinstance(node, Mapping):
        return node
    if graph := _named(node, GRAPH_FILES):
        matrices = _matrices(read_json(folder / GRAPHS).get(_key(node)))
        if matrices is None:
            raise ValueError(f"{graph} is a file outside the store: it is not opened, and the run kept no copy")
        return {"_target_": MATRICES, "matrices": matrices}
    if (data := _named(node, DATA_FILES)) and node.get("data") not in KNOWN:
        raise ValueError(f"{data} is a file outside the store: it is not opened")
    return {name: inside(value, folder) for name, value in node.items() if name != "data_dir"}


def _named(node: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The setting that names a file, "" if there is none."""
    name = files.get(str(node.get("_target_")), "")
    return f"{name}={node[name]}" if isinstance(node.get(name), str) else ""


def _from_files(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, Mapping) and _named(node, GRAPH_FILES) and not node.get("_partial_"):
        yield node
    elif isinstance(node, (Mapping, list)):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _from_files(item)


def _key(node: Mapping[str, Any]) -> str:
    return json.dumps(node, sort_keys=True)


def _matrices(content: Any) -> list[Any] | None:
    """(period, n, n) numbers; whether they are weights is seen where they are made matrices."""
    try:
        array = np.array(content, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    square = array.ndim == 3 and array.shape[1] == array.shape[2] and 0 < array.size <= LARGEST
    return array.tolist() if square else None


def plugin_info(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The origin of each plug-in of a configuration, by file or package; unknown facts are left out.

    >>> plugin_info({"method": {"_target_": "commeff.methods.choco"}})
    {}
    """
    return {_name(target): _facts(target) for target in reversed(plugins_in(config)) if known(target)}


def _name(target: str) -> str:
    place = split(target)[0]
    return Path(place).name if place.endswith(".py") else place.partition(".")[0]


def _facts(target: str) -> dict[str, str]:
    module = sys.modules[locate(target).__module__]
    file, name = Path(module.__file__ or ""), _name(target)
    facts = {} if name.endswith(".py") else _package(name)
    if "commit" not in facts and (commit := revision(file)):
        remote = git(file.parent, "remote", "get-url", "origin")
        top = git(file.parent, "rev-parse", "--show-toplevel") or ""
        facts |= {"repository": public(remote) if remote else Path(top).name, "commit": commit}
    return facts | {"digest": source_digest(target)}


def _package(name: str) -> dict[str, str]:
    """The facts in an installed package's metadata, and where pip had it from."""
    distributions = metadata.packages_distributions().get(name)
    if not distributions:
        return {}
    about = metadata.distribution(distributions[0])
    listed = [link.partition(",") for link in about.metadata.get_all("Project-URL") or ()]
    links = {label.strip().lower(): url.strip() for label, _, url in listed}
    links |= {"home": about.metadata["Home-page"]} if about.metadata["Home-page"] else {}
    facts = {"version": about.version}
    facts |= next(({"repository": public(links[label])} for label in LINKS if label in links), {})
    origin = json.loads(about.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    return facts | ({"repository": public(origin["url"]), "commit": commit[:10]} if commit else {})


def public(url: str) -> str:
    """An address without the name and password that may stand in it.

    >>> public("https://me:secret@git.example/her/plugin.git"), public("git@git.example:her/plugin.git")
    ('https://git.example/her/plugin.git', 'git.example:her/plugin.git')
    >>> public("their/folder/plugin")
    'plugin'
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return url.rpartition("@")[2] if "@" in url else Path(parts.path).name
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
