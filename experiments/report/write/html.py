"""The report as one HTML file: figures, styles and the little script inside; nothing is loaded from anywhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from string import Template

from commeff.experiments.escape import html_text
from commeff.experiments.report.data.analysis import Analysis
from commeff.experiments.report.data.summary import facts, findings, standing
from commeff.experiments.report.draw.figures import Figure
from commeff.experiments.report.draw.plots import looks
from commeff.experiments.report.write.markup import figure, heading, main_table, swatch
from commeff.experiments.report.write.table import Table, html, tag

FOOT = """Written by <code>commeff report</code>. Bytes are counted; seconds are measured unless they are called
modelled; workers are simulated unless processes are named. Figures as PDF and PNG, tables as CSV and LaTeX lie beside
this file."""


@dataclass(frozen=True)
class Section:
    """A part of the page; an empty one is left out."""

    id: str
    title: str
    body: str
    under_key: bool = False  # does the key of the variants stand above it?


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
        contents="\n".join(tag("a", html_text(section.title), href=f"#{section.id}") for section in sections),
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

    def drawn(name: str, titled: bool = False) -> str:
        return figure(figures[name], titled) if name in figures else ""

    def listed(name: str, titled: bool = False) -> str:
        if name not in tables:
            return ""
        return heading(tables[name].title, titled) + html(tables[name], lambda first: by_name.get(first, ""))

    sweeps = "".join(drawn(name, titled=True) for name in figures if name.startswith("sweep_"))
    curves = drawn("convergence") or tag("p", "No run has measured anything yet.", ["note"])
    modelled = drawn("modelled_convergence", titled=True) + drawn("step_time", titled=True)
    modelled += "".join(listed(name, titled=True) for name in tables if name.startswith("modelled"))
    results = _list(findings(analysis), ["findings"]) + main_table(analysis, tables["main"], samples, out)
    return [
        Section("speed_up", figures["speed_up"].title if "speed_up" in figures else "", drawn("speed_up")),
        Section("results", "Results", results),
        Section("wallclock", "Modelled wall-clock", modelled, under_key=True),
        Section("convergence", "Convergence", curves + drawn("one_by_one", titled=True), under_key=True),
        Section("bytes", "Quality against bytes", drawn("pareto"), under_key=True),
        Section("target", "Time and bytes to target", listed("target"), under_key=True),
        Section("scaling", "Against the number of workers", drawn("scaling")),
        Section("consensus", "Consensus distance", drawn("consensus"), under_key=True),
        Section("topologies", "Topologies", drawn("topologies") + listed("topologies", titled=True)),
        Section("sweep", "Tuning", _list(analysis.warnings, ["warn"]) + sweeps + _folded(listed("sweep"))),
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
    """The variants with their lines; pointing at one brings it forward in all figures, a click keeps it there."""
    samples = _samples(analysis)
    buttons = [
        tag(
            "button",
            samples[variant.number] + html_text(variant.name),
            type="button",
            data_variant=str(variant.number),
            aria_pressed="false",
        )
        for variant in analysis.variants
    ]
    return tag("div", "".join(buttons), ["key"])


def _samples(analysis: Analysis) -> dict[int, str]:
    return {number: swatch(look) for number, look in looks(analysis).items()}


def _list(lines: Sequence[str], kinds: Sequence[str] = ()) -> str:
    return tag("ul", "".join(tag("li", html_text(line)) for line in lines), kinds) if lines else ""


def _folded(body: str) -> str:
    return tag("details", tag("summary", "every value tried") + body) if body else ""


def _same(analysis: Analysis) -> str:
    count = sum(bool(run.record.environment) for run in analysis.runs)
    return tag("p", f"All {count} runs: same machine, versions, threads and commit.", ["note"]) if count > 1 else ""


def _file(name: str) -> str:
    return resources.files("commeff.experiments.report.write").joinpath(name).read_text(encoding="utf-8")
