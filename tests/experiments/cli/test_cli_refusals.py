"""Bad input: exit code 2, one line a fault on stderr, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from commeff.experiments.cli import app

UNFIT = [  # settings, and what the one line must say
    ("optimiser.lr=0.1", "did you mean optimizer.lr?"),
    ("lr=0.1", "did you mean optimizer.lr?"),
    ("worker=4", "did you mean workers?"),
    ("+optimizer.lrr=0.1", "did you mean optimizer.lr?"),
    ("++steps=3", "did you mean steps?"),
    ("~method", "neither added nor removed"),
    ("steps", "write key=value"),
    ("workers=abc", "workers must be a whole number, got 'abc'"),
    ("workers=0", "at least 1"),
    ("optimizer.lr=nan", "optimizer.lr must be finite"),
    ("optimizer.lr=inf", "optimizer.lr must be finite"),
    ("seed=99999999999999999999", "less than 2^63"),
    ("schedule=cosine schedule.T_max=0", "ZeroDivisionError"),
    ("optimizer=adam optimizer.betas=[0.9]", "optimizer.betas must be a list of 2, got [0.9]"),
    ("workers=1.5", "whole number"),
    ("steps=-1", "at least 1"),
    ("optimizer.lr=fast", "optimizer.lr must be a number, got 'fast'"),
    ("optimizer.nesterov=3", "true or false"),
    ("l2=.nan", "l2 must be"),
    ("engine=warp", "'loop' or 'vmap'"),
    ("nproc=5 workers=4", "nproc must be at most workers=4, got 5"),
    ("optimizer.lr=0.1,0.2", "commeff grid"),
    ("seed=range(3)", "commeff grid"),
    ("method=chocco", "did you mean choco?"),
    ("method=chocco compressor=qsgd compressor.levels=8", "did you mean choco?"),
    ("method=dsgd topology=rign", "did you mean ring?"),
    ("method=mem_sgd compressor=topp", "did you mean top_k?"),
    ("task=digit", "did you mean digits?"),
    ("optimizer=sdg", "did you mean sgd?"),
    ("model=mpl", "mlp"),
    ("task=quadratic model=mlp", "unknown key 'task.model'"),
    ("method.period=3", "unknown key 'method.period'"),
    ("method=choco method.order=C", "'A' or 'B'"),
    ("compressor=qsgd", "method psgd takes no compressor"),
    ("topology.n=8 method=dsgd", "run's 16 workers, got one of 8"),
    ("task.workers=8", "set workers=..."),
    ("method=dsgd topology=torus workers=7", "rectangle"),
    ("method=dsgd topology=torus workers=12 topology.rows=5", "5 equal rows"),
    ("method=dsgd topology=torus workers=16 topology.rows=2 topology.cols=4", "16"),
    ("method=dsgd topology=hypercube workers=12", "12"),
    ("method=choco topology=one_peer_exponential", "changes"),
    ("method=d2 topology=one_peer_exponential", "d2"),
    ("method=d2 topology=random_matching", "d2"),
    ("method=mem_sgd compressor.k=100000", "100000"),
    ("method=mem_sgd compressor.ratio=1.5", "ratio"),
    ("method=mem_sgd compressor.k=3 compressor.ratio=0.1", "ratio"),
    ("method=local_sgd method.period=0", "0"),
    ("workers=2000", "2000"),
    ("method=mem_sgd collective=ring", "it adds them on the way; choose collective=all_gather"),
    ("method=ef21 compressor=top_k collective=tree workers=4", "it adds them on the way; choose collective=all_gather"),
    ("collective=rings", "'auto' or 'all_reduce' or 'ring'"),
    ("bucket_mb=-1", "bucket_mb"),
    ("method=hierarchical_dsgd topology=ring topology.n=3 workers=16", "multiple of the 3 nodes"),
    ("task.alpha=0", "alpha"),
    ("task.partition=dirichlett", "dirichlet"),
    ("task=logistic data_dir=/nowhere", "/nowhere"),
    ("optimizer.lr=-1", "-1"),
]


def refused(tokens: str, store: Path) -> list[str]:
    """The lines on stderr of a command that must be refused before anything is written."""
    result = CliRunner().invoke(app, ["train", "--store", str(store), *tokens.split()])
    assert result.exit_code == 2, result.output
    assert not store.exists()
    assert result.stdout == ""
    return result.stderr.splitlines()


@pytest.mark.parametrize(("tokens", "says"), UNFIT)
def test_a_fault_is_one_line(tokens: str, says: str, tmp_path: Path) -> None:
    lines = refused(tokens, tmp_path / "store")
    assert len(lines) == 1, lines
    assert lines[0].startswith("commeff: ")
    assert says in lines[0]


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    tokens = "method=choco optimizer.lr=fast workers=0 metod=3 +x=2 topology=rign"
    lines = refused(tokens, tmp_path / "store")
    for says in ("optimizer.lr", "workers", "did you mean method?", "'+x=2'", "did you mean ring?"):
        assert sum(says in line for line in lines) == 1, (says, lines)
    assert len(lines) == 5


def test_parts_that_refuse_are_told_at_once_before_data_are_read(tmp_path: Path) -> None:
    words = "method=choco topology=torus workers={} compressor=top_k compressor.ratio={} task.alpha=-1"
    lines = refused(words.format(7, 2), tmp_path / "store")
    assert [line.split(":")[1].strip() for line in lines] == ["compressor", "topology"]
    lines = refused(words.format(9, 0.5), tmp_path / "store")
    assert [line.split(":")[1].strip() for line in lines] == ["task"]


@pytest.mark.parametrize("content", [b"", b"\x00\x01garbage", b"+1 3:x\n"])
def test_a_corrupt_data_file_is_refused(content: bytes, tmp_path: Path) -> None:
    data = tmp_path / "data" / "libsvm"
    data.mkdir(parents=True)
    (data / "mushrooms").write_bytes(content)
    lines = refused(f"task=logistic task.data=mushrooms data_dir={data.parent}", tmp_path / "store")
    assert len(lines) == 1
    assert "mushrooms" in lines[0]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "no plug-in file"),
        ("x = 1\n", "adds nothing"),
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_module\n", "no_such_module"),
        ("from commeff.compressors import Dense\nclass TopK(Dense): pass\n", "top_k"),
    ],
)
def test_a_plug_in_that_cannot_be_used_is_refused(source: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    if source is not None:
        file.write_text(source)
    lines = refused(f"--plugin {file} steps=1", tmp_path / "store")
    assert len(lines) == 1
    assert says in lines[0]
