"""Whose code a run is made of, besides ours: the repository, commit, version and digest of each plug-in of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from commeff.experiments.config.registry import foreign, known, locate, split, targets_in
from commeff.experiments.config.sources import source_digest
from commeff.experiments.run.system import git, revision

LINKS = ("repository", "source", "source code", "code", "homepage", "home")  # of a package, the best first


def plugin_info(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By file or package, where each plug-in of a configuration comes from; what nobody knows is left out.

    >>> plugin_info({"method": {"_target_": "commeff.methods.choco"}})
    {}
    """
    targets = [str(target) for target in targets_in(config) if isinstance(target, str) and foreign(target)]
    return {_name(target): _facts(target) for target in reversed(targets) if known(target)}


def _name(target: str) -> str:
    place = split(target)[0]
    return Path(place).name if place.endswith(".py") else place.partition(".")[0]


def _facts(target: str) -> dict[str, str]:
    module = sys.modules[locate(target).__module__]
    file, name = Path(module.__file__ or ""), _name(target)
    found = {} if name.endswith(".py") else _package(name)
    if "commit" not in found:
        found |= checkout(file)
    return found | {"digest": source_digest(target)}


def checkout(file: Path) -> dict[str, str]:
    """Repository and commit of a file that is in one."""
    commit = revision(file)
    if not commit:
        return {}
    remote = git(file.parent, "remote", "get-url", "origin")
    top = git(file.parent, "rev-parse", "--show-toplevel") or ""
    return {"repository": public(remote) if remote else Path(top).name, "commit": commit}


def _package(name: str) -> dict[str, str]:
    """What an installed package says of itself, and where pip had it from."""
    distributions = metadata.packages_distributions().get(name)
    if not distributions:
        return {}
    about = metadata.distribution(distributions[0])
    links = {
        label.strip().lower(): url.strip() for label, _, url in map(_parts, about.metadata.get_all("Project-URL") or ())
    }
    links |= {"home": about.metadata["Home-page"]} if about.metadata["Home-page"] else {}
    found = {"version": about.version}
    found |= next(({"repository": public(links[label])} for label in LINKS if label in links), {})
    origin = json.loads(about.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id")
    return found | ({"repository": public(origin["url"]), "commit": commit[:10]} if commit else {})


def _parts(link: str) -> tuple[str, str, str]:
    return link.partition(",")


def public(url: str) -> str:
    """An address without the name and password that may stand in it.

    >>> public("https://me:secret@git.example/her/plugin.git"), public("git@git.example:her/plugin.git")
    ('https://git.example/her/plugin.git', 'git.example:her/plugin.git')
    >>> public("/home/me/plugin")
    'plugin'
    """
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        return url.rpartition("@")[2] if "@" in url else Path(parts.path).name
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
