"""Records of finished runs as one small file: without checkpoints, to be kept beside the page that they came to.

A file is believed as a whole or not at all: its checksum and its end must be there, and each of its runs must be
finished and have the name that its configuration gives.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.config.schema import ConfigError
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.origins import GRAPHS
from commeff.experiments.run.reading import LARGEST, parse_yaml, read_bytes
from commeff.experiments.run.store import FINISHED, RunFolder, stamp, state_of, typed
from commeff.files import regular, rewrite

FILES = ("config.yaml", "env.json", "metrics.jsonl", "summary.json", "status.json")  # the state last
KEPT = (GRAPHS, *FILES)  # what a run may have beside them comes first
NAME = re.compile("[a-z0-9_]+-[a-z0-9_]+-[0-9a-f]{10}")  # of a run
BLOCK = tarfile.BLOCKSIZE  # bytes; two of zeros end an archive
MEMORY = 1 << 27  # bytes that unpacking may take beside what comes out
AGAIN = "; remove it to begin anew"

Files = dict[str, bytes]


def check(file: Path) -> None:
    """Refuse a name or a file that holds no records, before anything runs."""
    if not file.name.endswith(".tar.xz"):
        raise ConfigError([f"--records must end in .tar.xz, such as runs.tar.xz, got {file}"])
    read(file)


def read(file: Path) -> dict[str, Files]:
    """The files of each run, {} where there is no such file yet.

    Raises
    ------
    ConfigError
        If it is no regular file, is damaged, is larger than LARGEST, packed or not, or holds anything but the KEPT of
        finished runs whose configurations give their names. One that needs a plug-in gives none where that is unknown.
    """
    if file.is_symlink():
        raise ConfigError([f"--records must be a regular file, got the link {file}; give what it leads to"])
    if not file.exists():
        return {}
    if not file.is_file():
        raise ConfigError([f"--records must be a regular file, got {file}, which is none; choose another"])
    try:
        with open(file, "rb", opener=regular) as stream:
            members = _members(_decompressed(stream.read(LARGEST + 1)))
    except (OSError, EOFError, LookupError, ValueError, tarfile.TarError, lzma.LZMAError) as error:
        raise ConfigError([f"--records {file} cannot be read ({error}){AGAIN}"]) from None
    runs: dict[str, Files] = {}
    for name, content in members:
        run, _, part = name.partition("/")
        if content is None or part not in KEPT or not NAME.fullmatch(run):
            raise ConfigError([f"--records {file} holds {name!r}, which is no record of a run{AGAIN}"])
        if part in runs.setdefault(run, {}):
            raise ConfigError([f"--records {file} holds {name!r} twice{AGAIN}"])
        runs[run][part] = content
    for run, files in runs.items():
        if fault := _fault(run, files):
            raise ConfigError([f"--records {file} {fault}{AGAIN}"])
    return runs


def unpack(file: Path, store: Path) -> list[str]:
    """Put the runs of a file into a store; their names. Those that are finished or running there stay as they are."""
    runs = read(file)
    stamp(store)
    for run, files in runs.items():
        with (folder := RunFolder(store / run)).claimed() as claimed:
            if claimed and folder.state not in FINISHED:
                for name in filter(files.__contains__, KEPT):
                    with open(folder.path / name, "wb", opener=regular) as stream:
                        stream.write(files[name])
    return [*runs]


def pack(file: Path, folders: Iterable[Path]) -> None:
    """Add those runs that are finished to a file, which appears whole or not at all; equal records, equal bytes.

    Where the file has a run already, that of the folder takes its place.

    Raises
    ------
    ConfigError
        If the file cannot be read or written, and stays as it was; or if a finished run is none that `read` takes, and
        all others are in the file.
    """
    runs, faults = read(file), list[str]()
    try:
        for folder in folders:
            if RunFolder(folder).state not in FINISHED or not all((folder / name).is_file() for name in FILES):
                continue
            files = {name: read_bytes(folder / name) for name in KEPT if name in FILES or (folder / name).is_file()}
            if fault := _fault(folder.name, files):
                faults.append(f"--records {file} cannot keep this: {folder.parent} {fault}; remove it there")
            else:
                runs[folder.name] = files
        content = _packed(runs)
        if len(content) > LARGEST:
            raise ConfigError([f"--records {file} would hold more than {LARGEST >> 20} MiB; choose another file"])
        file.parent.mkdir(parents=True, exist_ok=True)
        rewrite(file, lzma.compress(content), shared=True)
    except OSError as error:
        why = f"--records {file} cannot be written ({error}): what has finished is in the store alone"
        raise ConfigError([f"{why}; the same command again writes it once that is mended"]) from None
    if faults:
        raise ConfigError(faults)


def _decompressed(packed: bytes) -> bytes:
    """The one xz stream that a file is, up to its checksum."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MEMORY)
    content = decoder.decompress(packed, LARGEST + 1)
    if max(len(packed), len(content)) > LARGEST:
        raise lzma.LZMAError(f"it is larger than {LARGEST >> 20} MiB")
    if not decoder.eof or decoder.unused_data:
        raise lzma.LZMAError("it is cut off, or goes on behind its end")
    return content


def _members(content: bytes) -> list[tuple[str, bytes | None]]:
    """Names and contents, None for what is no plain file. tarfile also stops at damage: the end must be there."""
    files, end = list[tuple[str, bytes | None]](), 0
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
        for member in tar:
            if not member.isreg() or member.issparse() or member.size < 0:
                return [(member.name, None)]
            start = member.offset_data
            files.append((member.name, content[start : start + member.size]))
            end = start + -(-member.size // BLOCK) * BLOCK
    if len(content) - end < 2 * BLOCK or content[end:].strip(b"\0"):
        raise tarfile.ReadError(f"it is damaged or cut off behind {repr(files[-1][0]) if files else 'its beginning'}")
    return files


def _fault(run: str, files: Mapping[str, bytes]) -> str:
    """The reason why files are no records of a finished run of that name, "" if they are."""
    lacking = [f"lacks {run}/{name}" for name in FILES if name not in files]
    if lacking:
        return lacking[0]
    try:
        name = run_id(_mapping(files["config.yaml"], parse_yaml))
        summarised = bool(_mapping(files["summary.json"]))
        state = state_of(typed(_mapping(files["status.json"])), summarised)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return f"holds {run!r}, whose records cannot be read ({reason})"
    if name != run:
        return f"holds {run!r}, whose config.yaml is that of {name!r}"
    return "" if state in FINISHED else f"holds {run!r}, which is {state}, not {' or '.join(FINISHED)}"


def _mapping(content: bytes, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    value = parse(content.decode())
    if not isinstance(value, dict):
        raise ValueError(f"names and values must be there, not {type(value).__name__}")
    return value


def _packed(runs: Mapping[str, Files]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:") as tar:
        for run in sorted(runs):
            for name in filter(runs[run].__contains__, KEPT):
                member = tarfile.TarInfo(f"{run}/{name}")
                member.size = len(runs[run][name])
                tar.addfile(member, io.BytesIO(runs[run][name]))
    return stream.getvalue()
