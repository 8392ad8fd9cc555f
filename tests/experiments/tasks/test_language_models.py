"""The language models: their sizes beside published ones, and that no token sees what comes after it."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from commeff.experiments.studies.planner.published import rows
from commeff.experiments.tasks.language import GPT, PRESETS, Llama, count, llama, preset
from commeff.planner import Model

SMALL = {
    "gpt": lambda: GPT(vocabulary=16, layers=2, heads=2, width=8, context=12, bias=True),
    "llama": lambda: Llama(vocabulary=16, layers=2, width=16, heads=4, kv_heads=2, inner=8),
}


@pytest.mark.parametrize("row", rows("gpt3_models"), ids=lambda row: row["name"])
def test_a_gpt3_preset_has_the_published_size(row):
    name = row["name"].lower().replace("gpt-3 ", "gpt3_")
    published = float(row["params"][:-1]) * {"M": 1e6, "B": 1e9}[row["params"][-1]]
    # 350M and 760M are printed small: the paper's own shapes have 356 and 760 million; XL's heads are wider than it.
    assert count(name) == pytest.approx(published, rel=0.2 if name == "gpt3_xl" else 0.025)


@pytest.mark.parametrize(
    ("name", "row"),
    list(zip(("llama_7b", "llama_13b", "llama_33b", "llama_65b"), rows("llama_parameters"), strict=True)),
)
def test_a_llama_preset_has_the_published_size(name, row):
    assert count(name) / 1e9 == pytest.approx(float(row["actual_b"]), abs=0.1)


def test_gpt2_has_its_published_124_million():
    assert count("gpt2") == 124_439_808


def shape(model):
    """What the planner is told of a preset."""
    if isinstance(model, Llama):
        inner, gated, sequence = model.blocks[0].feedforward.gate.out_features, True, 1
        kv_heads, tied = model.kv_heads, model.head.weight is model.tokens.weight
    else:
        inner, gated, sequence = None, False, model.positions.num_embeddings
        kv_heads, tied = None, True
    vocabulary, width = model.tokens.weight.shape
    return Model(
        len(model.blocks),
        width,
        model.heads,
        sequence,
        vocabulary,
        head_dim=model.blocks[0].attention.head_width,
        kv_heads=kv_heads,
        ffn_hidden=inner,
        gated=gated,
        tied_embeddings=tied,
    )


@pytest.mark.parametrize("name", PRESETS)
def test_the_planner_counts_the_same_parameters(name):
    with torch.device("meta"):
        model = preset(name)()
    assert shape(model).parameters == count(name)


@pytest.mark.parametrize("build", SMALL.values(), ids=SMALL)
def test_a_token_sees_none_after_it(build):
    model, tokens = build().double(), torch.randint(16, (3, 12))
    changed = tokens.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 16
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] - after[:, 7:]).abs().amax(-1).min() > 1e-8


def test_query_heads_that_share_keys_are_as_many_copies_of_them():
    """Grouped-query attention is attention whose key and value matrices repeat."""
    torch.manual_seed(0)
    grouped = Llama(16, layers=1, width=16, heads=4, kv_heads=2, inner=8).double()
    full = Llama(16, layers=1, width=16, heads=4, inner=8).double()
    state = grouped.state_dict()
    for name in ("keys", "values"):
        key = f"blocks.0.attention.{name}.weight"
        state[key] = state[key].view(2, 1, 4, 16).expand(2, 2, 4, 16).reshape(16, 16)
    full.load_state_dict(state)
    tokens = torch.randint(16, (2, 6))
    assert torch.allclose(grouped(tokens), full(tokens), atol=1e-14)


@pytest.mark.parametrize("separator", [None, 3])
def test_keys_are_repeated_where_no_kernel_shares_them(separator, monkeypatch):
    """As on a GPU in fp32, or with a mask: it would keep the scores of all heads."""
    torch.manual_seed(0)
    model = Llama(16, layers=2, width=16, heads=4, kv_heads=2, inner=8, separator=separator).double()
    tokens = torch.randint(16, (2, 6))
    results = []
    for sharing in (True, False):
        monkeypatch.setattr(llama, "shares", lambda *_, sharing=sharing: sharing)
        loss = model(tokens).square().sum()
        results.append((loss, *torch.autograd.grad(loss, list(model.parameters()))))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


def test_a_gpu_shares_keys_in_16_bits_without_a_mask():
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    with FakeTensorMode():
        for device, dtype in product(("cuda", "cpu"), (torch.bfloat16, torch.float32)):
            queries = torch.empty(1, 2, 4, 8, dtype=dtype, device=device)
            assert llama.shares(queries, None) == (device == "cpu" or dtype == torch.bfloat16)
            assert llama.shares(queries, mask) == (device == "cpu")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"heads": 3}, "an even multiple of heads=3"),
        ({"heads": 16}, "an even multiple of heads=16"),
        ({"kv_heads": 3}, "kv_heads must divide heads=4, got 3"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(shape, words):
    with pytest.raises(ValueError, match=words):
        Llama(**{"vocabulary": 16, "layers": 1, "width": 16, "heads": 4} | shape)
