"""Which data sets are in a data folder, and whether their files are complete, by their MD5 sums."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from commeff.experiments.data.manifest import DATA_SETS, DataSet, find

GOOD, UNKNOWN, CORRUPT = "good", "unknown", "corrupt"


@dataclass(frozen=True)
class Finding:
    """One data set in a data folder.

    state: "complete", "incomplete", "missing", or "subset": the files of its known subset lie in its place.
    checksums: "good", "unknown" (not those known, where good copies differ), "corrupt", or "" where there are no files.
    absent: names of the files that are not there.
    """

    name: str
    title: str
    folder: str
    state: str
    checksums: str
    absent: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether a task can be expected to read it."""
        return self.state in ("complete", "subset") and self.checksums != CORRUPT


def verify(data_dir: Path, names: Sequence[str] = ()) -> list[Finding]:
    """The files present of the data sets called `names`, by default of all."""
    chosen = [find(name) for name in names] or list(DATA_SETS.values())
    return [inspect(data_dir, name, data) for name, data in DATA_SETS.items() if data in chosen]


def inspect(data_dir: Path, name: str, data: DataSet) -> Finding:
    """The files present of one data set."""
    folder = data_dir / data.folder
    sums = {file: md5(folder / file) for file in data.files if (folder / file).is_file()}
    absent = tuple(file for file in data.files if file not in sums)
    title, state = data.title, "missing" if not sums else "incomplete" if absent else "complete"
    if data.subset and sums == DATA_SETS[data.subset].files:
        title, state, checksums = DATA_SETS[data.subset].title, "subset", GOOD
    elif not sums:
        checksums = ""
    elif all(data.files[file] == checksum for file, checksum in sums.items()):
        checksums = GOOD
    else:
        checksums = CORRUPT if data.official else UNKNOWN
    return Finding(name, title, str(folder), state, checksums, absent)


def md5(path: Path) -> str:
    """The MD5 sum of a file: it finds damage, not attacks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
