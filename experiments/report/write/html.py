"""The report as one HTML file: figures, styles and the little script inside; nothing is loaded from anywhere."""

from __future__ import annotations

import math
import os
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from string import Template
from urllib.parse import quote

from commeff.experiments.escape import html_text
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.quantities import MISSING, quantity, significant
from commeff.experiments.report.data.rows import TableRow
from commeff.experiments.report.data.summary import facts, findings, standing
from commeff.experiments.report.data.variants import RecordedRun
from commeff.experiments.report.draw.figures import INKS, Figure, Look, svg
from commeff.experiments.report.draw.plots import looks
from commeff.experiments.report.write.table import Table, html, html_cells, html_frame, tag
from commeff.experiments.report.write.table_details import command_of

FOOT = """Written by <code>commeff report</code>. Bytes are counted; seconds are measured unless they are called
modelled; workers are simulated unless processes are named. Figures as PDF and PNG, tables as CSV and LaTeX lie beside
this file."""
SHAPES = {  # the markers of `figures.MARKERS` about (15, 5)
    "o": '<circle cx="15" cy="5" r="3"/>',
    "s": '<path d="M12.2 2.2h5.6v5.6h-5.6z"/>',
    "D": '<path d="M15 1.2 18.8 5 15 8.8 11.2 5z"/>',
    "^": '<path d="M15 1.4 18.6 8H11.4z"/>',
    "v": '<path d="M15 8.6 18.6 2H11.4z"/>',
    "P": '<path d="M13.8 1.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4V6.2h-2.4V3.8h2.4z"/>',
    "X": '<path d="M12.6 1.2 15 3.6l2.4-2.4 1.4 1.4L16.4 5l2.4 2.4-1.4 1.4L15 6.4l-2.4 2.4-1.4-1.4L13.6 5l-2.4-2.4z"/>',
    "*": '<path d="m15 .6 1.2 2.9 3.1.2-2.4 2 .8 3-2.7-1.6-2.7 1.6.8-3-2.4-2 3.1-.2z"/>',
}
NARROW = 4.2  # inches: of a lone panel on a telephone
RUN_COLUMNS = ("val_accuracy", "val_loss", "test_accuracy", "test_loss", "train_loss", "wire_bytes", "seconds")


@dataclass(frozen=True)
class Section:
    """A part of the page; an empty one is left out."""

    id: str
    title: str
    body: str
    under_key: bool = False  # does the key of the variants stand above it?
    short: str = ""  # its title in the contents


def page(
    analysis: Analysis, tables: Mapping[str, Table], figures: Mapping[str, Figure], faults: Sequence[str], out: Path
) -> str:
    """The whole document."""
    sections = [section for section in _sections(analysis, tables, figures, faults, out) if section.body]
    script = _file("page.js")
    return Template(_file("page.html")).substitute(
        title=html_text(analysis.grid.title),
        style=_file("page.css"),
        head=_head(analysis),
        contents="\n".join(
            tag("a", html_text(section.short or section.title), href=f"#{section.id}") for section in sections
        ),
        body=_body(sections, _key(analysis)),
        foot=FOOT,
        script=script,
        digest=b64encode(sha256(script.encode()).digest()).decode(),
    )


def _sections(
    analysis: Analysis, tables: Mapping[str, Table], figures: Mapping[str, Figure], faults: Sequence[str], out: Path
) -> list[Section]:
    samples = _samples(analysis)
    by_name = {variant.name: samples[variant.number] for variant in analysis.variants}

    def drawn(kind: str, titled: bool = False) -> str:
        return "".join(figure_block(f, titled or bool(f.kind)) for f in figures.values() if kind in (f.name, f.kind))

    def listed(kind: str, titled: bool = False) -> str:
        return "".join(
            _heading(table.title, titled or bool(table.kind)) + html(table, lambda first: by_name.get(first, ""))
            for table in tables.values()
            if kind in (table.name, table.kind)
        )

    def kinds(start: str, of: Mapping[str, Figure] | Mapping[str, Table]) -> Iterable[str]:
        return dict.fromkeys(one.kind or one.name for one in of.values() if one.name.startswith(start))

    sweeps = "".join(drawn(kind, titled=True) for kind in kinds("sweep_", figures))
    tried = listed("sweep") and tag("details", tag("summary", "every value tried") + listed("sweep"))
    curves = drawn("convergence") or tag("p", "No run has measured anything yet.", ["note"])
    modelled = drawn("modelled_convergence", titled=True) + drawn("step_time", titled=True)
    modelled += "".join(listed(kind, titled=True) for kind in kinds("modelled", tables))
    main = [table for table in tables.values() if "main" in (table.name, table.kind)]
    results = _list(findings(analysis), ["findings"])
    for part, table in zip(analysis.parts, main, strict=True):
        results += _heading(table.title, bool(table.kind)) + _main_table(part, table, samples, out)
    results += "".join(listed(kind, titled=True) for kind in kinds("more", tables))
    faster = next((figure.title for figure in figures.values() if figure.name == "speed_up"), "Modelled speed-up")
    return [
        Section("speed_up", faster, drawn("speed_up"), short="Speed-up"),
        Section("results", "Results", results),
        Section("wallclock", "Modelled wall-clock", modelled, under_key=True),
        Section("stragglers", "Against simulated seconds", drawn("stragglers"), short="Stragglers"),
        Section("convergence", "Convergence", curves, under_key=True),
        Section("bytes", "Quality against bytes", drawn("pareto"), under_key=True),
        Section("target", "Time and bytes to target", listed("target"), under_key=True),
        Section("scaling", "Against the number of workers", drawn("scaling")),
        Section("consensus", "Consensus distance", drawn("consensus"), under_key=True),
        Section("topologies", "Topologies", drawn("topologies") + listed("topologies", titled=True)),
        Section("sweep", "Tuning", _list(analysis.warnings, ["warn"]) + sweeps + tried),
        Section("failures", "Failures", listed("failures")),
        Section("environment", "Environment", listed("environment") or _same(analysis)),
        Section("unread", "Unreadable files", _list(faults)),
    ]


def _body(sections: Sequence[Section], key: str) -> str:
    """The sections in order; those that the key belongs to stand in one block, above which it stays in view."""
    parts, inside = [], False
    for section in sections:
        if section.under_key != inside:
            parts.append(f"<div>{key}" if section.under_key else "</div>")
            inside = section.under_key
        parts.append(tag("section", f"\n<h2>{html_text(section.title)}</h2>\n{section.body}\n", id=section.id))
    return "\n".join([*parts, *(["</div>"] if inside else [])])


def _head(analysis: Analysis) -> str:
    """Title, how the grid stands, and what was run."""
    states = analysis.states
    tone = ["warn"] if analysis.unfinished or not states.get("done") else []
    bar = "".join(tag("i", "", [state], style=f"flex:{count}") for state, count in states.items())
    counts = "".join(tag("li", html_text(f"{count} {state}"), [state]) for state, count in states.items())
    wide = [("store", str(analysis.store)), ("command", analysis.grid.command or "")]
    rows = [tag("div", _fact(name, value)) for name, value in facts(analysis)]
    rows += [tag("div", _fact(name, value), ["wide"]) for name, value in wide if value]
    parts = [
        tag("h1", html_text(analysis.grid.title)),
        tag("p", html_text(standing(analysis)), tone),
        tag("div", bar, ["states"], aria_hidden="true"),
        tag("ul", counts, ["counts"]),
        tag("dl", "".join(rows), ["facts"]),
    ]
    return "\n".join(parts)


def _fact(name: str, value: str) -> str:
    return tag("dt", html_text(name)) + tag("dd", html_text(value))


def _key(analysis: Analysis) -> str:
    """The variants with their lines; pointing at one brings it forward in all figures, clicks show those alone."""
    samples = _samples(analysis)
    families = {variant.kind: variant for variant in reversed(analysis.variants)}
    buttons = [
        tag(
            "button",
            samples[variant.number] + html_text(variant.family),
            type="button",
            data_variant=str(kind),
            aria_pressed="false",
        )
        for kind, variant in sorted(families.items())
    ]
    return tag("div", "".join(buttons), ["key"])


def _samples(analysis: Analysis) -> dict[int, str]:
    return {number: swatch(look) for number, look in looks(analysis).items()}


def _list(lines: Sequence[str], kinds: Sequence[str] = ()) -> str:
    return tag("ul", "".join(tag("li", html_text(line)) for line in lines), kinds) if lines else ""


def _same(analysis: Analysis) -> str:
    count = sum(bool(run.record.environment) for run in analysis.runs)
    return tag("p", f"All {count} runs: same machine, versions, threads and commit.", ["note"]) if count > 1 else ""


def _file(name: str) -> str:
    return resources.files("commeff.experiments.report.write").joinpath(name).read_text(encoding="utf-8")


def _main_table(analysis: Analysis, table: Table, swatches: Mapping[int, str], out: Path) -> str:
    """The main table: a body a variant, so that a line and its runs stay together when lines are sorted."""
    bodies = []
    for row, items in zip(analysis.rows, table.rows, strict=False):
        number = row.variant.number
        cells = html_cells(table, items, f'<i class="caret"></i>{swatches[number]}')
        runs = tag("td", _runs(analysis, row, out), colspan=str(len(table.columns)))
        lines = tag("tr", cells, ["line"], data_variant=str(row.variant.kind)) + "\n" + tag("tr", runs, ["more"])
        bodies.append(tag("tbody", lines))
    for items in table.rows[len(analysis.rows) :]:
        bodies.append(tag("tbody", tag("tr", html_cells(table, items)), data_last="1"))
    return html_frame(table, "main", bodies)


def figure_block(drawn: Figure, titled: bool) -> str:
    """Panels that the page lays out, the caption, and the files."""
    panels = [(panel, ["panel"]) for panel in drawn.panels]
    if len(panels) == 1 and drawn.panels[0].width > NARROW:
        (whole,) = drawn.panels
        narrow = replace(whole, name=f"{whole.name}-narrow", width=NARROW)
        panels = [(whole, ["panel", "single", "wide"]), (narrow, ["panel", "single", "narrow"])]
    parts = [tag("div", svg(drawn, panel), kinds) for panel, kinds in panels]
    links = [tag("a", kind.upper(), href=f"figures/{drawn.name}.{kind}") for kind in ("pdf", "png", "csv")]
    caption = f"{html_text(drawn.caption)} {tag('span', ' · '.join(links), ['files'])}"
    shape = ["panels", "small"] if drawn.small else ["panels"]
    key = [
        tag("button", swatch(look) + html_text(name), type="button", data_group=str(i), aria_pressed="false")
        for i, (name, look) in enumerate(drawn.legend)
    ]
    legend = [tag("div", "".join(key), ["legend"])] if key else []
    body = [_heading(drawn.title, titled), tag("div", "\n".join(parts), shape), *legend, tag("figcaption", caption)]
    return tag("figure", "\n".join(body))


def swatch(style: Look) -> str:
    """A sample of a variant's line with its marker."""
    dash = "" if style.dash in ("-", "") else " ".join(f"{length * style.width:g}" for length in style.dash[1])
    width = f"{style.width:g}" if style.dash else "0"
    line = tag("path", "", d="M0 5h30", stroke="currentColor", stroke_width=width, stroke_dasharray=dash)
    ink = f"color:{INKS[style.colour]}"
    shape = SHAPES[style.marker]
    return tag("svg", line + shape, ["swatch"], viewBox="0 0 30 10", aria_hidden="true", fill="currentColor", style=ink)


def _heading(title: str, titled: bool) -> str:
    """A heading, but for what is alone in a section that has the same."""
    return tag("h3", html_text(title)) if titled else ""


def _runs(analysis: Analysis, row: TableRow, out: Path) -> str:
    """The runs of a line, those at the chosen values first: folder, seed, state, final numbers, and the command."""
    others = [run for trial in row.variant.trials if trial is not row.variant.chosen for run in trial.runs]
    runs, tuned, quiet = [*row.variant.runs, *others], list(analysis.grid.over), set(others)
    metrics = [name for name in RUN_COLUMNS if any(math.isfinite(run.record.final(name)) for run in runs)]
    heads = ["run", *tuned, "seed", "state", *(quantity(name).heading for name in metrics)]
    lines = [tag("tr", "".join(tag("th", html_text(head), ["words"] if head == "run" else []) for head in heads))]
    for run in runs:
        labels = [run.cell.labels.get(key, MISSING) for key in tuned]
        words = [*labels, str(run.seed), run.record.state, *(_final(run, name) for name in metrics)]
        origin = run.record.status.get("origin")
        named = _link(run, out) + (html_text(f", from {origin}") if origin else "")
        cells = tag("td", named, ["words", "code"]) + "".join(tag("td", html_text(text)) for text in words)
        command = tag("td", html_text(command_of(run, analysis)), ["words", "code", "command"], colspan=str(len(heads)))
        lines += [tag("tr", cells, ["quiet"] if run in quiet else []), tag("tr", command)]
    plural = "run" if len(runs) == 1 else "runs"
    tried = f" at {len(row.variant.trials)} tuned values" if len(row.variant.trials) > 1 else ""
    return tag("details", tag("summary", f"{len(runs)} {plural}{tried}, with commands") + tag("table", "".join(lines)))


def _final(run: RecordedRun, metric: str) -> str:
    value, of = run.record.final(metric), quantity(metric)
    return significant(value * of.scale, 4 if of.unit == "%" else 3) if math.isfinite(value) else MISSING


def _link(run: RecordedRun, out: Path) -> str:
    """The run's name, leading to its folder where there is one."""
    if not run.record.folder.is_dir():
        return html_text(run.cell.run)
    way = Path(os.path.relpath(run.record.folder, out)).as_posix()
    return tag("a", html_text(run.cell.run), href=f"{quote(way)}/")
