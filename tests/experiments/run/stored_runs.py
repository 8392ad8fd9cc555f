"""Stores of runs of which nothing but the records is there, and files of records that are as somebody wants them."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from commeff.experiments.run import archive
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.store import RunFolder


def config_of(seed: int) -> dict[str, Any]:
    parts = {"method": "commeff.methods.psgd", "task": "commeff.experiments.tasks.Quadratic"}
    return {part: {"_target_": target} for part, target in parts.items()} | {"seed": seed}


def name_of(seed: int) -> str:
    return run_id(config_of(seed))


def finished(store: Path, *seeds: int, state: str = "done") -> list[Path]:
    """The folders of runs with these seeds."""
    folders = [RunFolder(store / name_of(seed)) for seed in seeds]
    for folder, seed in zip(folders, seeds, strict=True):
        folder.path.mkdir(parents=True)
        folder.create(config_of(seed), {"cpu": "one"})
        folder.write("summary.json", {"val_loss": 1.0})
        (folder.path / "metrics.jsonl").write_text('{"step": 1}\n')
        folder.mark(state)
        (folder.path / "checkpoints").mkdir()
    return [folder.path for folder in folders]


def members(*seeds: int, config: object = None, state: str = "done", name: str = "") -> dict[str, bytes]:
    """The files of runs by their names in an archive; with another configuration, state or name than they have."""
    found = {}
    for seed in seeds:
        run = name or name_of(seed)
        found |= {f"{run}/{file}": b'{"val_loss": 1.0}' for file in archive.FILES}
        found[f"{run}/config.yaml"] = yaml.safe_dump(config_of(seed) if config is None else config).encode()
        found[f"{run}/status.json"] = json.dumps({"state": state}).encode()
    return found


def tarred(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def write(file: Path, files: Mapping[str, bytes]) -> Path:
    """An archive of these files; the path of it."""
    file.write_bytes(lzma.compress(tarred(files)))
    return file
