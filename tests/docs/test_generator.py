"""The documentation as a site: every page is reached, everything that can be chosen is in the catalogue."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from commeff import methods, optimizers
from commeff.experiments.catalogue.borrowed import BORROWED
from commeff.experiments.config.schema import built_in
from docs.generator import catalogue, docstrings, reference, repository
from docs.generator.equations import latex
from tests import owned

ROOT = Path(__file__).parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def reached(nav) -> list[str]:
    entries = nav if isinstance(nav, list) else [*nav.values()]
    return [page for entry in entries for page in ([entry] if isinstance(entry, str) else reached(entry))]


def test_every_page_is_in_the_navigation_once():
    made = {f"catalogue/{group}s.md" for group in ("method", "compressor", "optimizer")}
    made |= {"catalogue/topologies.md"}
    made |= {f"api/{package.rpartition('.')[2]}.md" for package in reference.PACKAGES}
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    roots = {page for path, page in repository.PAGES.items() if (ROOT / path).is_file()}
    assert sorted(reached(SITE["nav"])) == sorted(made | written | roots)


def test_the_catalogue_has_every_public_method_compressor_and_topology():
    families = [name for names in catalogue.families().values() for name in names]
    assert sorted(families) == sorted(methods.__all__) == sorted(built_in("method"))
    groups = ("method", "compressor", "topology", "optimizer")
    assert len(catalogue.described()) == sum(len(built_in(group)) for group in groups) - len(BORROWED)


def test_every_optimizer_is_ours_or_torchs_with_its_equation_and_paper():
    ours, theirs = set(), set()
    for name in built_in("optimizer"):
        (theirs if catalogue.target("optimizer", name).startswith("torch.optim.") else ours).add(name)
    assert theirs == set(BORROWED)
    assert len(ours) == len(optimizers.__all__)
    page = catalogue._optimizers()
    assert "| [adam](#adam) | torch's | coordinates | 2 | Kingma, Ba, Adam, [arXiv 1412.6980]" in page
    for name in theirs:
        assert re.search(rf"^## {name}\n\n.+ `torch\.optim\.\S+`\n\n```math\n.+?```", page, re.MULTILINE | re.DOTALL)
    assert "| [muon][commeff.optimizers.layerwise.MuonWithAdamW] | ours | whole tensors | 1 |" in page


def test_what_is_described_nowhere_else_is_in_the_reference_once():
    pages = reference.pages(catalogue.described())
    entries = re.findall(r"^::: (.+)$", "\n".join(pages.values()), flags=re.MULTILINE)
    assert len(entries) == len({*entries})
    assert not {*entries} & catalogue.described()
    assert "commeff.adapters.optimizer.DistributedOptimizer" in entries


@pytest.mark.parametrize(
    ("plain", "set_"),
    [
        ("x_i <- sum_j W[i, j] (x_j - gamma g_j)", r"x_{i}\leftarrow \sum _{j}W_{ij}(x_{j}-\gamma g_{j})"),
        ("x^{k+1} = P Q^T", r"x^{k+1}=PQ^{\top}"),
        (
            "at every `period`-th step  a <- outer(a, (1/n) b)",
            r"\text{ at every period-th step }\quad a\leftarrow \operatorname{outer}(a,\frac{1}{n}b)",
        ),
        ("then as in EF21", r"\text{ then as in EF21 }"),
    ],
)
def test_plain_equations_become_latex(plain: str, set_: str):
    assert latex(plain) == set_


def test_docstrings_become_markdown():
    text = (
        "One.\n\n===  ===\na    b\n===  ===\n1    2\n===  ===\n\nMemory: none.\n\n>>> 1\n1\n\nSee arXiv 1610.02132.\n"
    )
    assert docstrings.markdown(text) == (
        "One.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\n**Memory**: none.\n\n```pycon\n>>> 1\n1\n```\n\n"
        "See [arXiv 1610.02132](https://arxiv.org/abs/1610.02132).\n"
    )


def test_links_out_of_docs_lead_to_pages_of_the_site():
    found: list[str] = []
    text = "[a](../tests/walks.py), [b](grids.md#x), [`c`](../README.md), [d](../tests)\n```\n[e](../f)\n```\n"
    assert repository.linked(text, "docs/python.md", found.append) == (
        "[a](repository/tests/walks.py.md), [b](grids.md#x), [`c`](index.md), d\n```\n[e](../f)\n```\n"
    )
    assert found == ["tests/walks.py", "README.md"]


def test_a_docstring_s_equation_is_set_and_its_code_is_not():
    pytest.importorskip("latex2mathml", reason="needs the extra commeff[docs]")
    text = "One.\n\n    x <- x - g\n\nTwo.\n\n    Strategy(a, b=c)\n"
    made = docstrings.markdown(text)
    assert made.startswith('One.\n\n<div class="equation"><math')
    assert "    Strategy(a, b=c)" in made


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs the extra commeff[docs]; `make docs` builds the site")
def test_the_site_is_built_without_a_warning_and_loads_nothing(tmp_path: Path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    owned.run(build, cwd=ROOT, check=True)
    for page in tmp_path.rglob("*.html"):
        if "repository" not in page.parts:
            assert not re.findall(r'(?:src|<link[^>]*href)="https?://', page.read_text(encoding="utf-8")), page
