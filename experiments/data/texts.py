"""Where the files of a text lie: one of those that papers train on, or any other."""

from __future__ import annotations

from pathlib import Path

from commeff.experiments.data.folder import ENVIRONMENT, DataError, data_folder
from commeff.experiments.data.manifest import DATA_SETS

KNOWN = ("tinyshakespeare", "wikitext-2")


def text_files(data: str, data_dir: str | None) -> tuple[list[Path], str]:
    """The files of a text, and what to do if one is not fit; `DataError` if one is missing.

    Parameters
    ----------
    data : one of `KNOWN`, or a file: absolute, seen from the working directory, or in data_dir.
    data_dir : the data folder, by default the environment variable COMMEFF_DATA.
    """
    if data not in KNOWN:
        remedy = f"give the path of a text file, or one of {', '.join(KNOWN)}"
        file = Path(data)
        return [file if file.is_file() else locate(data, data_dir, remedy)], remedy
    source = DATA_SETS[data]
    remedy = f"get {', '.join(source.files)} from {source.origin} and save under FOLDER/{source.folder}"
    return [locate(f"{source.folder}/{name}", data_dir, remedy) for name in source.files], remedy


def locate(name: str, data_dir: str | None, remedy: str) -> Path:
    """The regular file called `name`; `DataError` if there is none."""
    path = Path(name).expanduser()
    if not path.is_absolute():
        path = data_folder(data_dir, name, remedy) / path
    if not path.exists():
        raise DataError(f"no file {path}: correct task.data, data_dir or {ENVIRONMENT}, or {remedy}")
    if not path.is_file():
        raise DataError(f"{path} is not a regular file: {remedy}")
    return path
