"""What a command leaves behind, or finds: no store where nothing was run, and the page of another table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from commeff.experiments.escape import markdown_code, markdown_prose
from commeff.experiments.run.reading import read_text

WRITTEN = ("store.json", "tables/*.yaml")  # into a store before anything runs
EMPTY = ("tables", "measured")


@contextmanager
def no_trace(store: Path, kept: bool) -> Iterator[None]:
    """Remove a store that was not there before and in which nothing was run: where that is refused, or not `kept`."""
    missing = [place for place in (store, *store.absolute().parents) if not place.exists()]
    done = False
    try:
        yield
        done = kept
    finally:
        if missing and not done:
            _remove(store, missing)


def _remove(store: Path, missing: list[Path]) -> None:
    """The files that are written before a run, and the folders that are empty then; nothing if there are others."""
    files = {path for path in store.rglob("*") if not path.is_dir()}
    own = {path for pattern in WRITTEN for path in store.glob(pattern)}
    if files - own:
        return
    for file in own:
        file.unlink(missing_ok=True)
    for folder in (*(store / name for name in EMPTY), *missing):
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def replaced(page: Path, title: str, command: str) -> list[str]:
    """A line if a page is there that another table, or another command, has made."""
    try:
        lines = read_text(page).splitlines()
    except OSError:
        return []
    if not lines or {f"# {markdown_prose(title)}", f"- {markdown_code(command)}"} <= {*lines}:
        return []
    made = next((line[2:] for line in lines if line.startswith("- `commeff reproduce ")), "another command")
    return [f"{page} was of {lines[0].removeprefix('# ')!r}, made by {made}, and is replaced; --out keeps pages apart"]
