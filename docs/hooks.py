"""What mkdocs calls while it builds the site: pages are added, links and equations set."""

from __future__ import annotations

import re

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

from docs.generator import catalogue, reference, repository
from docs.generator.equations import mathml


def on_files(files: Files, config) -> Files:
    """Add the pages that docs/ does not hold: those of the root, what is linked to, and those made of docstrings."""

    def add(path: str) -> None:
        uri = repository.place(path)
        if uri in files.src_uris:
            return
        if uri.endswith(".md"):
            text = repository.linked(repository.page(path), path, add)
            files.append(File.generated(config, uri, content=text))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(repository.ROOT / path)))

    for path in repository.PAGES:
        if (repository.ROOT / path).is_file():
            add(path)
    for file in files.documentation_pages():
        if file.generated_by is None:
            repository.linked(file.content_string, f"docs/{file.src_uri}", add)
    for uri, text in (catalogue.pages() | reference.pages(catalogue.described())).items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    """Links of a page of docs/ as the site has them, and equations set."""
    if page.file.generated_by is None:
        markdown = repository.linked(markdown, f"docs/{page.file.src_uri}", lambda path: None)
    return re.sub(r"^```math\n(.*?)```$", _equation, markdown, flags=re.MULTILINE | re.DOTALL)


def _equation(block: re.Match[str]) -> str:
    return f'<div class="equation">{mathml(block[1], block=True)}</div>'


def on_post_page(output: str, page, config) -> str:
    """The search's helper from this site, which the theme would load from a network."""
    return _ours(output, get_relative_url("offline.js", page.url))


def on_post_template(output: str, template_name: str, config) -> str:
    """The same on the page for what is not there."""
    return _ours(output, "/offline.js")


def _ours(output: str, address: str) -> str:
    return re.sub(r'<script src="https?://[^"]*"></script>', f'<script src="{address}"></script>', output)
