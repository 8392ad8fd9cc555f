"""What cannot be is refused in one line that says why."""

from __future__ import annotations

import pytest

from commeff.cluster import Cluster
from commeff.planner import Model, Policy, predict
from commeff.planner.policies import Policies
from tests.commeff.planner.ways import method

MODEL = Model(layers=24, hidden=2048, heads=16, sequence=1024, vocab=51200)
KEYS = Model(layers=24, hidden=2048, heads=16, sequence=1024, vocab=51200, kv_heads=4)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"schedule": "1f1d"}, "did you mean 1f1b"),
        ({"recompute": "some"}, "recompute must be one of"),
        ({"overlap": "ideal"}, "overlap must be one of"),
        ({"precision": "fp"}, "precision must be one of"),
        ({"method": "psg"}, "psgd or a function"),
        ({"zero": 4}, "1, 2 or 3, got 4"),
        ({"tensor": 0}, "tensor must be a whole number of at least 1, got 0"),
        ({"micro_batch": -1}, "micro_batch must be .* got -1"),
        ({"data": 2.0}, "data must be .* got 2.0"),
        ({"data": 8, "workers": 3}, "does not divide into workers=3"),
        ({"method": method("diloco")}, "workers must be at least 2"),
        ({"data": 8, "workers": 8, "method": 3}, "psgd or a function"),
        ({"chunks": 2, "pipeline": 4}, "take schedule=interleaved"),
        ({"pipeline": 4, "stages": (6, 6, 12)}, "got 3 pieces"),
        ({"pipeline": 2, "stages": (0, 24)}, "at least 1 layer each"),
        ({"pipeline": 2, "stages": (3.5, 20.5)}, "tuple of whole numbers"),
        ({"pipeline": 2, "stages": [4, 20]}, "tuple of whole numbers"),
        ({"zero": 1.0}, "zero must be 0 .* got 1.0"),
        ({"zero": True}, "zero must be 0 .* got True"),
        ({"zero": 3, "unit": -1}, "unit must be .* got -1"),
        ({"zero": 2, "unit": 4}, "zero must be 3 with unit"),
        ({"zero": 3, "prefetch": -1}, "prefetch must be .* got -1"),
        ({"zero": 2, "prefetch": 0}, "zero must be 3 with unit, prefetch"),
        ({"context_by": "heads"}, "context_by must be one of ring, all_to_all"),
        ({"recompute_every": 2}, "recompute must be selective or full with recompute_every=2"),
        ({"recompute_stages": 1, "pipeline": 2}, "recompute must be selective or full with recompute_stages, got none"),
        ({"recompute": "full", "recompute_stages": 1}, "recompute_stages must be .* below pipeline=1, .* got 1"),
        ({"recompute": "full", "pipeline": 4, "recompute_stages": -1}, "recompute_stages must be .* got -1"),
        ({"recompute": "full", "pipeline": 4, "recompute_stages": True}, "recompute_stages must be .* got True"),
        ({"recompute": "full", "recompute_every": 0}, "recompute_every must be .* got 0"),
        ({"fp8_copies": True}, "precision must be fp8 with fp8_copies, got bf16"),
        ({"loss_chunks": 0}, "loss_chunks must be .* got 0"),
        ({"fragmentation": 1.0}, "fragmentation must be a share in .*, such as 0.1, got 1.0"),
        ({"reshard": False}, "zero must be 3 with unit"),
        ({"fp32_parameters": True}, "zero must be 3 with unit"),
        ({"sequence_parallel": 2}, "true or false"),
        ({"offload_checkpoints": 1}, "true or false"),
        ({"micro_batch": 10**30}, "at most 100,000,000"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(what, said):
    with pytest.raises(ValueError, match=said) as refusal:
        Policy(**what)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("model", "policy", "batch", "said"),
    [
        (MODEL, {"tensor": 8, "data": 2}, 64, "the 8 GPUs of a100_selene, got 8 x 1 x 2"),
        (MODEL, {"data": 8}, 12, "global_batch must divide .* got 12"),
        (MODEL, {"data": 8}, 0, "global_batch must be .* got 0"),
        (MODEL, {"data": 8}, True, "global_batch must be .* got True"),
        (MODEL, {"data": 8}, 10**30, "at most 100,000,000"),
        (MODEL, {"pipeline": 8, "stages": (3,) * 8}, 10**6, None),
        (
            MODEL,
            {"pipeline": 4, "data": 2, "schedule": "interleaved", "chunks": 2, "stages": (3,) * 8},
            10**6,
            "equal stages, which have a formula",
        ),
        (MODEL, {"data": 8, "precision": "fp8"}, 64, "has no fp8"),
        (Model(24, 2048, 16, 1000, 8), {"data": 1, "tensor": 8, "sequence_parallel": True}, 8, None),
        (Model(24, 2048, 16, 1001, 8), {"tensor": 8, "sequence_parallel": True}, 8, "sequence=1001"),
        (Model(24, 2100, 12, 1024, 8), {"tensor": 8}, 8, "tensor must divide heads=12, got 8"),
        (Model(24, 2048, 16, 1024, 8, ffn_hidden=1001), {"tensor": 8}, 8, "ffn_hidden=1001"),
        (KEYS, {"tensor": 8}, 8, None),
        (Model(24, 2304, 24, 1024, 8, kv_heads=6), {"tensor": 4, "data": 2}, 8, "replicates"),
        (Model(25, 2048, 16, 1024, 8), {"pipeline": 8}, 8, "give stages"),
        (Model(25, 2048, 16, 1024, 8), {"pipeline": 8, "stages": (3,) * 7 + (4,)}, 8, None),
        (Model(25, 2048, 16, 1024, 8), {"pipeline": 8, "stages": (3,) * 8}, 8, "are 24 layers"),
        (MODEL, {"pipeline": 8, "schedule": "interleaved", "chunks": 3}, 12, "multiple of pipeline=8"),
        (MODEL, {"tensor": 4, "context": 4}, 8, "tensor x context x pipeline x data must be the 8 .* 4 x 4 x 1 x 1"),
        (Model(24, 2048, 16, 1032, 8), {"context": 8}, 8, "context must divide half of sequence=1032"),
        (
            Model(24, 2048, 16, 1028, 8),
            {"context": 2, "tensor": 4, "sequence_parallel": True},
            8,
            "context x tensor must divide half of .* got 2 x 4",
        ),
        (Model(24, 2048, 16, 1028, 8), {"context": 2, "tensor": 4}, 8, None),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(model, policy, batch, said):
    cluster = Cluster.named("a100_selene", gpus=8)
    if said is None:
        assert predict(model, Policy(**policy), cluster, global_batch=batch).step_seconds > 0
        return
    with pytest.raises(ValueError, match=said) as refusal:
        predict(model, Policy(**policy), cluster, global_batch=batch)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"hidden": 2050}, "hidden must be a multiple of heads=16, got 2050"),
        ({"layers": 0}, "layers must be .* got 0"),
        ({"vocab": -5}, "vocab must be .* got -5"),
        ({"kv_heads": 5}, "kv_heads must divide heads=16, got 5"),
        ({"head_dim": 0}, "head_dim must be .* got 0"),
        ({"hidden": 10**30}, "at most 100,000,000"),
        ({"head_dim": 10**8}, "heads x head_dim"),
        ({"gated": 2}, "true or false"),
    ],
)
def test_a_model_that_cannot_be_is_refused(what, said):
    with pytest.raises(ValueError, match=said):
        Model(**{"layers": 24, "hidden": 2048, "heads": 16, "sequence": 1024, "vocab": 51200, **what})


def test_precisions_are_priced_apart():
    with pytest.raises(ValueError, match="price each apart"):
        Policies.of([Policy(), Policy(precision="fp16")])
