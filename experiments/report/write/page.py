"""The one writer of pages: Markdown that quotes its tables, whose data lie beside it as CSV files, as figures do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from commeff.experiments.report.draw.figures import Figure, write, write_csv
from commeff.experiments.report.write.table import Table, markdown
from commeff.experiments.run.system import cpu_name, git_commit
from commeff.files import regular, writing


@dataclass(frozen=True)
class Page:
    """A page that is made of a text with fields.

    Attributes
    ----------
    name : of its file, without the ending.
    text : with a field for each table by its name, each of `words`, and {commit} and {cpu}, on which it was made.
    tables : those quoted, and those whose data alone are written.
    figures : beside it.
    words : what other fields say.
    digits : significant digits of fractions in CSV files; None: all that they have.
    """

    name: str
    text: str
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    words: Mapping[str, object] = field(default_factory=dict)
    digits: int | None = None

    def write(self, out: Path) -> list[Path]:
        """Write all files into a folder; their paths, the page's first."""
        quoted = {table.name: "\n".join(markdown(table)) for table in self.tables}
        text = self.text.format(commit=git_commit(), cpu=cpu_name(), **quoted, **self.words)  # of the tree as it was
        out.mkdir(parents=True, exist_ok=True)
        for figure in self.figures:
            write(figure, out)
        data = {out / f"{table.name}.csv": table.data for table in self.tables if not table.data.empty}
        for path, frame in data.items():
            write_csv(frame, path, self.digits)
        drawn = [out / f"{figure.name}.{kind}" for figure in self.figures for kind in ("pdf", "png")]
        return [write_text(out / f"{self.name}.md", text), *data, *drawn]


def write_text(path: Path, text: str | Iterable[str]) -> Path:
    """Write a text, or its lines, which end with one line's end; the path."""
    whole = text if isinstance(text, str) else "\n".join(text)
    with writing(path), open(path, "w", encoding="utf-8", opener=regular) as file:
        file.write(whole.rstrip() + "\n")
    return path
