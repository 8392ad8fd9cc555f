"""Compiled and plain messages are the same, bit for bit, of every compressor; without a compiler there is a line."""

from __future__ import annotations

import os
import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode

from commeff import topologies
from commeff.communicator import mixing
from commeff.compressors import Layout, ScaledSign, WorkerRandom, compiled, scratch
from commeff.compressors.codebook import looked_up
from commeff.compressors.laws import concrete
from commeff.compressors.packing import packed, unpacked
from commeff.compressors.reductions import RUN, row_halves, row_max, row_norm, row_sum
from commeff.experiments.config.compose import compose
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import prepare
from tests import owned

OURS = [kind for kind in concrete() if kind.__module__.startswith("commeff.compressors.")]
CASES = [sample for kind in OURS for sample in kind.samples()]
FIRST = [kind.samples()[0] for kind in OURS]


def bits_of(compressor, vectors, offset):
    """What is sent of the first row, and what is read of both: that of the second is NaN, which has many bits."""
    message = compressor.compress(vectors, WorkerRandom(0, range(len(vectors)), offset=offset, device=vectors.device))
    return [message.select(slice(0, 1)).to_buffer(), message.decode().nan_to_num(7.0).view(torch.uint8)]


def assert_alike(compressor, vectors, compiler, offset, strict=True):
    compiler.on = False
    plain = bits_of(compressor, vectors, offset)
    compiler.on = True
    assert all(torch.equal(a, b) for a, b in zip(plain, bits_of(compressor, vectors, offset), strict=True)), compressor
    assert compiler.on or not strict, "it was not compiled"


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


@pytest.mark.parametrize("reduction", [row_max, row_sum, row_halves, row_norm])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_reductions_of_long_rows_have_one_order(reduction, dtype, compiler):
    vectors = vectors_of(3 * RUN + 5, dtype).mul_(torch.linspace(-1, 9, 3 * RUN + 5).exp2())
    plain = reduction(vectors)
    for rows in (vectors, vectors[:1], vectors.t().contiguous().t()):
        compiler.on = False
        assert torch.equal(reduction(rows)[:1], plain[:1])
        compiler.on = True
        assert torch.equal(reduction(rows)[:1], plain[:1])
    assert compiler.made


@pytest.mark.parametrize("reduction", [row_max, row_sum, row_halves, row_norm])
@pytest.mark.parametrize("d", [100, 3 * RUN + 5])
def test_reductions_depend_neither_on_tiles_nor_on_numbers_beside(reduction, d, monkeypatch):
    vectors = vectors_of(d + 3).nan_to_num(1.0)
    plain = reduction(vectors[:, :d].clone())
    monkeypatch.setattr(scratch, "HOST", 128)
    assert torch.equal(reduction(vectors[:, :d]), plain)


@pytest.mark.parametrize("bits", range(1, 9))
def test_both_forms_of_packed_codes_are_alike(bits, monkeypatch):
    codes = torch.randint(0, 1 << bits, (3, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(bits))
    data = packed(codes, bits)
    assert torch.equal(unpacked(data, bits), codes)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(packed(codes, bits), data)
    assert torch.equal(unpacked(data, bits).to(torch.uint8)[:, :40], codes)


@pytest.mark.parametrize("count", range(1, 18))
def test_both_forms_of_levels_are_alike(count, monkeypatch):
    codes, levels = torch.arange(count).expand(2, -1), tuple(torch.linspace(-1, 2, count).tolist())
    plain = looked_up(codes, levels, torch.float64)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(looked_up(codes, levels, torch.float64).expand_as(codes), plain)


def mixed_alike(compiler, rows, x, more=()):
    """Whether plain and compiled mixing by some rows give the same bits."""
    both = []
    for compiler.on in (False, True):
        program, own = mixing.InPlace.of([[*zip(*row, strict=True)] for row in rows]), x.clone()
        both += [program.run(own, more) for _ in range(mixing.AGAIN + 1)][-1:]
    return torch.equal(*(own.view(torch.uint8) for own in both))


def test_traced_mixing_is_the_plain_one_from_a_later_run_on(compiler, monkeypatch):
    monkeypatch.setattr(mixing, "AGAIN", 2)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    x = torch.arange(160.0).view(4, 40)
    # Nothing is rounded.
    rows = [((0, 1, 3), (0.25, 0.25, 0.5)), ((0, 1, 4), (0.25, 0.25, 0.5)), ((1, 3), (-0.5, 2.0)), ((2, 0), (1.0, 1.0))]
    assert mixed_alike(compiler, rows, x, [torch.ones(40)])
    assert len(compiler.made) == 1
    assert mixed_alike(compiler, topologies.one_peer_exponential(4).at(0).rows, x)
    assert len(compiler.made) == 1, "copies and means of two are as fast without"


def test_mixing_beside_a_thread_that_compiles_is_the_plain_one(monkeypatch):
    x = torch.randn(2, 1000, generator=torch.Generator().manual_seed(0))
    program = mixing.InPlace.of([[(0, 0.3), (1, 0.7)], [(0, 0.2), (1, 0.8)]])
    plain = program.run(x.clone())
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)  # torch says so in every thread
    assert torch.equal(program.run(x.clone()), plain)


def test_without_a_compiler_there_is_one_line_and_the_same_message(compiler, caplog):
    compiler.backend = "none of these"
    plain = ScaledSign().compress(torch.ones(1, 16), WorkerRandom(0, [0])).to_buffer()
    compiler.on = True
    for _ in range(2):
        assert torch.equal(ScaledSign().compress(torch.ones(1, 16), WorkerRandom(0, [0])).to_buffer(), plain)
    assert not compiler.on
    assert [record.message.split(":")[0] for record in caplog.records] == ["messages are not compiled"]


def test_an_error_of_the_function_itself_is_raised_and_the_compiler_stays_on(compiler):
    def wrong(x):
        raise ValueError("x must be short")

    compiler.on = True
    with pytest.raises(ValueError, match="x must be short"):
        compiler.call(wrong, (torch.ones(8),))
    assert compiler.on
    assert not compiler.made, "it takes no place among the shapes"


def test_what_comes_after_the_last_shape_is_plain_and_a_line_says_so(compiler, caplog, monkeypatch):
    monkeypatch.setattr(compiled, "SHAPES", 2)
    for d in (1, 2, 3, 4):
        assert compiler.call(torch.neg, (torch.ones(d),)).tolist() == [-1.0] * d
    lines = [record.message for record in caplog.records if record.name == compiled.__name__]
    assert lines == ["2 messages are given to the compiler, the most there may be; others are plain"]
    assert len(compiler.made) == 2


@pytest.mark.parametrize("device", compiled.DEVICES)
def test_only_what_is_compiled_is_not_cut_into_tiles(device, compiler):
    with FakeTensorMode():
        vectors = torch.empty(1, 1 << 27, device=device)
        cut = compiled.pieces(vectors)
        compiler.on = True
        assert len(compiled.pieces(vectors)) == 1 < len(cut)
        assert compiled.pieces(vectors, compiled=False) == cut


def test_a_key_of_the_run_is_the_switch_and_no_part_of_its_name(compiler):
    names = set()
    for words, on in (([], False), (["compile=on"], True), (["compile=off"], False), (["steps=10000000000"], True)):
        config = compose(words)
        prepare(config)
        assert compiler.on is on
        names.add(run_id(config | {"steps": 1}))
    assert len(names) == 1
    config = compose(["compile=all"])
    prepare(config)
    assert compiler.on
    assert run_id(config | {"steps": 1}) not in names, "models that are compiled round in another way"


# Aligned and ragged rows, from an even and an odd coordinate, of several dtypes.
ROWS = ((CASES, 4000, torch.float32, 0), (FIRST, 8203, torch.float32, 5), (FIRST, 8192, torch.bfloat16, 0))


def every_message(rows):
    """Compile all of some rows, with NaN."""
    compiled.SHORTEST, compiled.SHAPES = 1, 1 << 10
    compiled.compile_messages(True)
    compiler = compiled._COMPILER
    strict = "ATEN_CPU_CAPABILITY" not in os.environ  # without vectors torch 2.13 compiles no kernel that has any
    compressors, d, dtype, offset = ROWS[rows]
    for compressor in compressors:
        assert_alike(compressor.bind(Layout.flat(d)), vectors_of(d, dtype), compiler, offset, strict)
    assert not strict or 15 < len(compiler.made) < compiled.SHAPES


@pytest.mark.gpu
@pytest.mark.parametrize("compressor", FIRST, ids=repr)
def test_compiled_messages_of_a_gpu_are_its_plain_ones(compressor, compiler):
    compiler.backend = "inductor"
    torch.use_deterministic_algorithms(True, warn_only=True)  # the sums of a sketch
    try:
        assert_alike(compressor.bind(Layout.flat(4003)), vectors_of(4003).cuda(), compiler, 5)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.slow
@pytest.mark.parametrize("rows", range(len(ROWS)))
@pytest.mark.parametrize("environment", [{}, {"OMP_NUM_THREADS": "2"}, {"ATEN_CPU_CAPABILITY": "default"}], ids=str)
def test_compiled_messages_are_the_plain_ones(environment, rows):
    place = os.path.dirname(__file__)
    code = f"import sys; sys.path.insert(0, {place!r}); import test_compiled as t; t.every_message({rows})"
    owned.run([sys.executable, "-c", code], check=True, env=os.environ | environment)


def every_mixing():
    """Mix by several graphs, with weights of any kind, compiled."""
    compiled.SHORTEST, mixing.AGAIN = 1, 1
    compiled.compile_messages(True)
    compiler, generator = compiled._COMPILER, torch.Generator().manual_seed(0)
    weights = torch.rand(5, 7, dtype=torch.float64, generator=generator)
    graphs = [
        topologies.ring(16),
        topologies.exponential(16),
        topologies.random_regular(16, 4, seed=0),
        topologies.star(9),
    ]
    cases = [graph.at(0).rows for graph in graphs]
    cases += [[(range(7), row) for row in w.tolist()] for w in (weights, weights / weights.sum(1, True), weights - 0.5)]
    for rows in cases:
        for d, dtype in ((8203, torch.float32), (4099, torch.float64)):
            x = torch.randn(len(rows), d, dtype=dtype, generator=generator)
            x[:, 3], x[0, 5] = 0.1, float("inf")
            more = [*torch.randn(2, d, dtype=dtype, generator=generator)] if len(rows) == 5 else []
            assert mixed_alike(compiler, rows, x, more), (rows, dtype)
    fused = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    assert len(compiler.made) == 2 * len(cases) * fused


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"OMP_NUM_THREADS": "2"}, {"ATEN_CPU_CAPABILITY": "default"}], ids=str)
def test_compiled_mixing_is_the_plain_one(environment):
    place = os.path.dirname(__file__)
    code = f"import sys; sys.path.insert(0, {place!r}); import test_compiled as t; t.every_mixing()"
    owned.run([sys.executable, "-c", code], check=True, env=os.environ | environment)
