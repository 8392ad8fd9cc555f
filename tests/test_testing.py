"""A script of one's own finds its faults by `commeff.testing.late`, as the page says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import owned
from tests.test_docs import ROOT, blocks


def test_the_example_fails_as_the_page_says_and_passes_when_it_waits(tmp_path: Path) -> None:
    example, printed, *_ = blocks(ROOT / "docs" / "testing.md")

    def main(code: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / example.title).write_text(code)
        return owned.run([sys.executable, example.title], cwd=tmp_path)

    late = main(example.code)
    assert late.returncode == 1
    assert late.stderr.strip().splitlines()[-1] == printed.code.strip()
    for other in (
        ("init_process_group(backend", 'init_process_group("gloo"'),
        ("async_op=True)", "async_op=True).wait()"),
    ):
        assert main(example.code.replace(*other)).returncode == 0
