"""Prepare a data set from files that the user has; nothing is downloaded without --download."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from commeff.experiments.data.folder import ENVIRONMENT, DataError, cache_folder
from commeff.experiments.data.manifest import DataSet, find
from commeff.files import appearing, private_folder, rewrite


@dataclass(frozen=True)
class Installed:
    """Where a data set now lies, and which of its files have a sum that is not known, where good copies differ."""

    folder: Path
    unverified: tuple[str, ...] = ()


def prepare(name: str, source: Path | None, to: Path | None, download: bool) -> Installed:
    """Put a data set into the data folder `to`, by default COMMEFF_DATA, from `source` or from its official address.

    Images in an archive are unpacked into the cache folder, if `to` is not given.
    """
    data, default = find(name), os.environ.get(ENVIRONMENT)
    folder = to or (Path(default).expanduser() if default else None)
    if source is not None and not source.exists():
        raise ValueError(f"no file or folder {source}: correct --from")
    if data.unpacks:
        return Installed(unpack(_archive(data, source, folder), (to or cache_folder()) / data.folder))
    if folder is None:
        raise ValueError(f"no data folder to prepare {name} in: give --to FOLDER, or set {ENVIRONMENT}")
    if source is not None:
        return install(data, source, folder)
    if not download:
        raise ValueError(
            f"nothing to prepare {name} from: give its files with --from, having got them from {data.origin}"
        )
    if not data.addresses:
        raise ValueError(f"{name} is not downloaded: get it from {data.origin}, and give it with --from")
    with private_folder() as fetched:
        files = [_download(address, md5, fetched) for address, md5 in data.addresses.items()]
        return install(data, files[0] if len(files) == 1 else fetched, folder)  # one may be an archive


def _download(address: str, md5: str, folder: Path) -> Path:
    """A file of this sum, under its name there."""
    try:
        with urlopen(address, timeout=60) as response:
            content = response.read()
    except (OSError, HTTPException) as error:
        raise DataError(f"{address} cannot be downloaded ({' '.join(str(error).split())})") from error
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise DataError(f"{address} cannot be downloaded (what came has another MD5 sum)")
    path = folder / address.rpartition("/")[2]
    path.write_bytes(content)
    return path


def install(data: DataSet, source: Path, data_dir: Path) -> Installed:
    """Copy the files of a data set from an archive, a folder or a file into their place; all of them or none.

    A file whose MD5 sum is not the publisher's is refused, unless good copies are known to differ.
    """
    chosen: dict[str, bytes] = {}
    others: dict[str, bytes] = {}
    for name, content in offered(data, source):
        good = hashlib.md5(content, usedforsecurity=False).hexdigest() == data.files[name]
        (chosen if good else others).setdefault(name, content)
    unverified = () if data.official else tuple(name for name in others if name not in chosen)
    chosen |= {name: others[name] for name in unverified}
    absent = [name for name in data.files if name not in chosen]
    if absent:
        damaged = [name for name in absent if name in others]
        reason = f"{', '.join(damaged)}: another MD5 sum" if damaged else f"it holds no {', '.join(absent)}"
        raise DataError(f"{source} is no good copy of {data.title} ({reason}): get it from {data.origin}")
    for name, content in chosen.items():
        _write(data_dir / data.folder / name, content)
    return Installed(data_dir / data.folder, unverified)


def offered(data: DataSet, source: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of everything in `source` that has the name of a file of the data set."""
    try:
        if source.is_dir():
            for path in sorted(source.rglob("*")):
                if path.name in data.files and path.is_file():
                    yield path.name, path.read_bytes()
        elif source.name not in data.files and tarfile.is_tarfile(source):
            yield from _members(data, source)
        else:
            yield source.name if source.name in data.files else next(iter(data.files)), source.read_bytes()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{source} cannot be read ({' '.join(str(error).split())})") from error


def unpack(archive: Path, folder: Path) -> Path:
    """The images of an archive as files in `folder`, which appears whole or not at all."""
    if folder.exists():
        return folder
    if not hasattr(tarfile, "data_filter"):
        raise DataError(f"{archive} cannot be unpacked safely before Python 3.11.4: take a later one")
    try:
        with appearing(folder, shared=True) as draft:
            draft.mkdir(parents=True)
            with tarfile.open(archive) as tar:
                tar.extractall(draft, filter="data")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{archive} cannot be unpacked to {folder} ({' '.join(str(error).split())})") from error
    return folder


def _archive(data: DataSet, source: Path | None, folder: Path | None) -> Path:
    """The archive of a data set: what was given, or the file in the data folder."""
    (name,) = data.files
    place = folder / data.folder / name if folder else Path(name)
    if source is None and not place.is_file():
        raise ValueError(f"no archive {place}: give it with --from, having got it from {data.origin}")
    return source or place


def _members(data: DataSet, archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name
            content = tar.extractfile(member) if name in data.files and member.isfile() else None
            if content is not None:
                yield name, content.read()


def _write(path: Path, content: bytes) -> None:
    """A file that appears whole, by rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        rewrite(path, content, shared=True)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}): choose another folder") from error
