"""Compiled and plain messages are the same, bit for bit, of every compressor; without a compiler there is a line."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from commeff.compressors import Layout, ScaledSign, WorkerRandom, compiled
from commeff.compressors.laws import concrete

OURS = [kind for kind in concrete() if kind.__module__.startswith("commeff.compressors.")]
CASES = [sample for kind in OURS for sample in kind.samples()]
FIRST = [kind.samples()[0] for kind in OURS]


def bits_of(compressor, vectors, offset):
    message = compressor.compress(vectors, WorkerRandom(0, range(len(vectors)), offset=offset))
    return [message.to_buffer(), message.decode().nan_to_num(7.0).view(torch.uint8)]


def assert_alike(compressor, vectors, compiler, offset):
    compiler.on = False
    plain = bits_of(compressor, vectors, offset)
    compiler.on = True
    assert all(torch.equal(a, b) for a, b in zip(plain, bits_of(compressor, vectors, offset), strict=True)), compressor
    assert compiler.on, "it was not compiled"


def vectors_of(d, dtype=torch.float32):
    vectors = torch.randn(2, d, generator=torch.Generator().manual_seed(0)).to(dtype)
    vectors[0, :3], vectors[1, d // 2] = torch.tensor([0.0, -0.0, 1e-42]), float("nan")
    return vectors


@pytest.fixture
def compiler(monkeypatch):
    """That traces, with the branches of compiled code, and generates none."""
    torch._dynamo.reset()
    own = compiled._Compiler()
    own.backend = "eager"
    monkeypatch.setattr(compiled, "_COMPILER", own)
    monkeypatch.setattr(compiled, "SHORTEST", 1)
    return own


@pytest.mark.parametrize("compressor", FIRST, ids=repr)
def test_traced_messages_are_the_plain_ones(compressor, compiler):
    assert_alike(compressor.bind(Layout.flat(24)), vectors_of(24).nan_to_num(1.0), compiler, 0)


def test_without_a_compiler_there_is_one_line_and_the_same_message(compiler, caplog):
    compiler.backend = "none of these"
    plain = ScaledSign().compress(torch.ones(1, 16), WorkerRandom(0, [0])).to_buffer()
    compiler.on = True
    for _ in range(2):
        assert torch.equal(ScaledSign().compress(torch.ones(1, 16), WorkerRandom(0, [0])).to_buffer(), plain)
    assert not compiler.on
    assert [record.message.split(":")[0] for record in caplog.records] == ["messages are not compiled"]


def every_message(cases=CASES):
    """Compile all, at a length that is compiled: aligned and ragged, from an even and an odd coordinate, and NaN."""
    compiled.compile_messages(True)
    compiler = compiled._COMPILER
    for dtype, d, offset in ((torch.float32, 20_000, 0), (torch.float32, 20_003, 5), (torch.bfloat16, 20_000, 0)):
        for compressor in cases:
            assert_alike(compressor.bind(Layout.flat(d)), vectors_of(d, dtype), compiler, offset)


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"OMP_NUM_THREADS": "2"}, {"ATEN_CPU_CAPABILITY": "default"}], ids=str)
def test_compiled_messages_are_the_plain_ones(environment):
    code = (
        f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_compiled as t; t.every_message()"
    )
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
