"""Records of finished runs as one small file: without checkpoints, to be kept beside the page that they came to."""

from __future__ import annotations

import io
import lzma
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.reading import LARGEST
from commeff.experiments.run.store import FINISHED, RunFolder, stamp

FILES = ("config.yaml", "env.json", "metrics.jsonl", "summary.json", "status.json")  # the state last


def check(file: Path) -> None:
    """Refuse a name or a file that holds no records, before anything runs."""
    if not file.name.endswith(".tar.xz"):
        raise ConfigError([f"--records must end in .tar.xz, such as runs.tar.xz, got {file}"])
    read(file)


def read(file: Path) -> dict[str, dict[str, bytes]]:
    """The files of each run, {} where there is no such file yet.

    Raises
    ------
    ConfigError : if it cannot be read, or holds anything else.
    """
    runs: dict[str, dict[str, bytes]] = {}
    if not file.exists():
        return runs
    try:
        with tarfile.open(file, "r:xz") as tar:
            for member in tar:
                run, _, name = member.name.partition("/")
                source = tar.extractfile(member) if name in FILES and member.size <= LARGEST else None
                if source is None or not run.strip("."):
                    raise ConfigError([f"--records {file} holds {member.name!r}, which is no record of a run"])
                runs.setdefault(run, {})[name] = source.read()
    except (OSError, EOFError, KeyError, tarfile.TarError, lzma.LZMAError) as error:
        raise ConfigError([f"--records {file} cannot be read ({error}); remove it to begin anew"]) from None
    lacking = [f"{run}/{name}" for run, own in runs.items() for name in FILES if name not in own]
    if lacking:
        raise ConfigError([f"--records {file} lacks {lacking[0]}; remove it to begin anew"])
    return runs


def unpack(file: Path, store: Path) -> None:
    """Put the runs of a file into a store. Those that are finished there, or run there now, stay as they are."""
    runs = read(file)
    stamp(store)
    for run, files in runs.items():
        with (folder := RunFolder(store / run)).claimed() as own:
            if own and folder.state not in FINISHED:
                for name in FILES:
                    (folder.path / name).write_bytes(files[name])


def pack(file: Path, folders: Iterable[Path]) -> None:
    """Add those runs that are finished to a file, which appears whole or not at all; equal records, equal bytes."""
    runs = read(file)
    for folder in folders:
        if RunFolder(folder).state in FINISHED and all((folder / name).is_file() for name in FILES):
            runs[folder.name] = {name: (folder / name).read_bytes() for name in FILES}
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with tarfile.open(draft, "w:xz") as tar:
        for run in sorted(runs):
            for name in FILES:
                member = tarfile.TarInfo(f"{run}/{name}")
                member.size = len(runs[run][name])
                tar.addfile(member, io.BytesIO(runs[run][name]))
    os.replace(draft, file)
