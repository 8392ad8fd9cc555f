"""A script of one's own finds its faults by `commeff.testing.late`, as the page says."""

from __future__ import annotations

import runpy
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch.multiprocessing as mp

from tests.test_docs import ROOT, blocks


def test_the_example_fails_as_the_page_says_and_passes_when_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example, printed, *_ = blocks(ROOT / "docs" / "testing.md")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(mp, "spawn", partial(mp.start_processes, start_method="fork"))  # torch is imported once

    def main(code: str) -> None:
        (tmp_path / example.title).write_text(code)
        runpy.run_path(str(tmp_path / example.title), run_name="__main__")

    with pytest.raises(mp.ProcessRaisedException) as raised:
        main(example.code)
    assert str(raised.value).strip().splitlines()[-1] == printed.code.strip()
    main(example.code.replace("init_process_group(backend", 'init_process_group("gloo"'))
    main(example.code.replace("async_op=True)", "async_op=True).wait()"))
