"""The report as Markdown: the same tables, and figures as PNG files beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commeff.experiments.report.data import facts
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.findings import findings
from commeff.experiments.report.data.tables import Item, Table
from commeff.experiments.report.draw.figures import Figure


def document(analysis: Analysis, tables: Iterable[Table], figures: Iterable[Figure], faults: Sequence[str]) -> str:
    """The whole file."""
    parts = [f"# {_plain(analysis.grid.title)}", facts.standing(analysis)]
    parts.append("\n".join(f"- **{name}**: {_plain(value)}" for name, value in facts.facts(analysis)))
    if analysis.grid.command:
        parts.append(f"```\n{analysis.grid.command}\n```")
    parts.append("\n".join(f"- {_plain(line)}" for line in findings(analysis)))
    parts += [table(each) for each in tables]
    parts += [
        f"## {each.title}\n\n![{each.title}](figures/{each.name}.png)\n\n{_plain(each.caption)}" for each in figures
    ]
    parts += [f"- {_plain(warning)}" for warning in analysis.warnings]
    parts.append("\n".join(f"- {_plain(fault)}" for fault in faults))
    return "\n\n".join(part for part in parts if part) + "\n"


def table(each: Table) -> str:
    r"""One table with its notes.

    >>> from commeff.experiments.report.data.tables import Column
    >>> columns = [Column("variant", words=True), Column("loss")]
    >>> print(table(Table("t", "T", columns, [[Item("a|b"), Item("1.0", best=True)]])))
    ## T
    <BLANKLINE>
    | variant | loss |
    |:--|--:|
    | a\|b | **1.0** |
    """
    heads = [f"{column.heading} {f'({column.under})' if column.under else ''}".strip() for column in each.columns]
    lines = [heads, *([_cell(item) for item in row] for row in each.rows)]
    rule = "|".join(":--" if column.words else "--:" for column in each.columns)
    rows = [f"| {' | '.join(line)} |" for line in lines]
    notes = [f"\n{_plain(note)}" for note in each.notes]
    return "\n".join([f"## {each.title}", "", rows[0], f"|{rule}|", *rows[1:], *notes])


def _cell(item: Item) -> str:
    text = f"**{_plain(item.text)}**" if item.best else _plain(item.text)
    return text + (f" ± {item.half}" if item.half else "") + item.mark


def _plain(text: str) -> str:
    """Text that Markdown leaves alone: no bars, no underscores that become italics, no line breaks."""
    return " ".join(text.split()).replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "&lt;")
