"""A policy as settings of a run, and a run as a policy: one table read both ways."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from commeff.cluster.places import read_place
from commeff.experiments.config.compose import compose
from commeff.experiments.config.policies import SAME, as_sent, planned, settings_of, shape
from commeff.experiments.planning.emit import FRAMEWORKS
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.planning.question import read_question
from commeff.experiments.tasks.language import Llama, preset
from commeff.experiments.tasks.shapes import shapes_only
from commeff.planner import Policy, predict

BATCH = 64


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("text") / "numbers.txt"
    file.write_text(" ".join(map(str, range(4000))))
    return file


def emitted(policy: Policy, text: Path, **changes: Any) -> list[str]:
    """What `commeff plan --emit commeff` writes of a policy, and the text to train on."""
    with shapes_only():
        model = shape(preset("llama_1m")(), 64)
    question = read_question(["parameters=1e9", f"gpus={policy.gpus}", f"global_batch={BATCH}"])
    words = FRAMEWORKS["commeff"](replace(question, model=model, **changes), policy)
    return [*words, f"task.data={text}"]


def canonical() -> list[Policy]:
    """Policies that say nothing of ranks that they do not have."""
    kinds = []
    for pipeline, workers, shard, tensor in product((1, 2), (1, 2), (1, 2), (1, 2)):
        if pipeline * workers * shard * tensor == 1:
            continue
        orders = [("1f1b", 1)] + [("gpipe", 1), ("interleaved", 2)] * (pipeline > 1)
        degrees = {"pipeline": pipeline, "workers": workers, "data": workers * shard, "tensor": tensor}
        for i, (schedule, chunks) in enumerate(orders):
            precision = ("fp32", "bf16", "fp16")[(i + tensor + shard) % 3]
            kinds.append(Policy(**degrees, schedule=schedule, chunks=chunks, precision=precision, micro_batch=4))
        last = kinds[-1]
        kinds += [replace(last, zero=zero) for zero in (1, 2, 3) if shard > 1]
        kinds += [replace(last, recompute=how) for how in ("selective", "full")]
        kinds += [replace(last, recompute="full", offload_checkpoints=True)]
        kinds += [replace(last, recompute="full", partition_checkpoints=True)] * (tensor > 1)
        kinds += [replace(last, sequence_parallel=True)] * (tensor > 1)
        if workers == 1 and shard > 1:
            kinds.append(replace(last, precision="bf16", half_gradients=True))
        kinds += [replace(last, collective="tree", loss_chunks=4)]
    return kinds


def test_settings_of_a_policy_are_a_run_whose_policy_it_is(text: Path) -> None:
    policies = canonical()
    assert len(policies) > 90
    for policy in policies:
        model, again, batch = planned(compose(emitted(policy, text)))
        assert (again, batch) == (policy, BATCH), policy
        assert (model.layers, model.hidden, model.sequence, model.vocab) == (4, 128, 64, 256)


def test_what_a_policy_says_of_ranks_that_it_lacks_is_forgotten_once(text: Path) -> None:
    vague = Policy(data=2, workers=2, zero=2, schedule="gpipe", sequence_parallel=True, precision="fp32")
    _, once, _ = planned(compose(emitted(vague, text)))
    assert (once.zero, once.schedule, once.sequence_parallel) == (0, "1f1b", False)
    _, twice, _ = planned(compose(emitted(once, text)))
    assert once == twice


def test_a_method_is_the_one_of_the_run_with_its_compressor_and_its_period(text: Path) -> None:
    shared = ["task=language", f"task.data={text}", "model=llama_1m", "mesh.worker=4", "mesh.tensor=2"]
    for words in (
        ["method=local_sgd", "method.period=8"],
        ["method=mem_sgd", "compressor=top_k", "compressor.ratio=0.02"],
        ["method=dsgd", "topology=ring"],
    ):
        _, policy, _ = planned(compose([*shared, *words, "optimizer=adamw"]))
        question = read_question(["parameters=1e9", "gpus=8", "tensor=2", f"global_batch={BATCH}", *words])
        theirs, model = question.one(), question.model
        seconds = [
            replace(question, model=model).predict(replace(theirs, method=method)).breakdown
            for method in (policy.method, theirs.method)
        ]
        assert seconds[0] == seconds[1], words
        assert policy.worker_method.name == words[0].partition("=")[2]
    _, alone, _ = planned(compose(["task=language", f"task.data={text}", "mesh.tensor=2", "method=mem_sgd"]))
    assert alone.worker_method.is_plain, "one worker sends to nobody"


def test_layers_that_do_not_divide_are_where_a_run_puts_them(text: Path) -> None:
    words = ["task=language", f"task.data={text}", "task.layers=5", "mesh.pipeline=2", "micro_batches=2"]
    model, policy, batch = planned(compose(words))
    assert (model.layers, policy.stages, batch) == (5, (3, 2), 8)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["mesh.tensor=2"], {"tensor": "tensor_bytes"}),
        (["mesh.tensor=2", "sequence=true", "precision=fp16"], {"tensor": "tensor_bytes"}),
        (["mesh.tensor=2", "precision=bf16", "micro_batches=4"], {"tensor": "tensor_bytes"}),
        (["mesh.shard=2"], {"data": "shard_bytes"}),
        (["mesh.shard=2", "zero=2", "precision=bf16_reduce_fp32"], {"data": "shard_bytes"}),
        (["mesh.shard=2", "zero=3", "precision=bf16"], {"data": "shard_bytes"}),
        (["mesh.worker=2", "mesh.tensor=2", "precision=bf16"], {"tensor": "tensor_bytes", "workers": "wire_bytes"}),
        (["mesh.worker=2", "method=local_sgd", "method.period=2"], {"workers": "wire_bytes"}),
        (["mesh.shard=2", "zero=2", "micro_batches=4"], {"data": "shard_bytes"}),
        (["mesh.shard=2", "zero=2", "accumulate=3"], {"data": "shard_bytes"}),
        (["mesh.shard=2", "zero=3", "accumulate=3"], {"data": "shard_bytes"}),
    ],
)
def test_the_planner_prices_what_a_run_sends(words: list[str], parts: dict[str, str], text: Path) -> None:
    """On a link so slow that seconds are bytes, if nothing hides."""
    small = ["task=language", f"task.data={text}", "model=llama_1m", "task.context=64", "task.batch=8", "steps=4"]
    config = compose([*small, *words])
    sent, (model, policy, batch) = forecast(config).sent, planned(config)
    policy = as_sent(policy, config["micro_batches"])
    place = read_place({"cluster": "a100_4nic"}).with_link(1.0, policy.gpus)
    step = predict(model, replace(policy, overlap="none"), place.cluster.with_gpus(policy.gpus), global_batch=batch)
    for part, name in parts.items():
        ranks = policy.gpus / policy.workers
        assert step.breakdown["seconds"][part] * ranks == pytest.approx(sent[name] / config["steps"], rel=2e-3), name


def test_stage_3_with_several_micro_batches_has_no_price() -> None:
    policy = Policy(data=2, zero=3)
    assert as_sent(policy, micro_batches=1) == policy
    with pytest.raises(ValueError, match="zero must be at most 2 with micro_batches"):
        as_sent(policy, micro_batches=2)


def test_the_planner_prices_what_stages_send(text: Path) -> None:
    """Computing waits for it both ways, and so does the sum of a tied embedding's two gradients."""
    small = ["task=language", f"task.data={text}", "model=llama_1m", "task.context=64", "task.batch=8", "steps=4"]
    for width, precision in ((4, "fp32"), (2, "bf16")):
        config = compose([*small, "mesh.pipeline=2", "micro_batches=4", f"precision={precision}"])
        model, policy, batch = planned(config)
        place = read_place({"cluster": "a100_4nic"}).with_link(1.0, 2)
        step = predict(model, replace(policy, overlap="none"), place.cluster.with_gpus(2), global_batch=batch)
        tied = 2 * width * model.vocab * model.hidden
        assert step.breakdown["seconds"]["pipeline"] == pytest.approx(
            forecast(config).sent["pipeline_bytes"] / config["steps"] - tied, rel=1e-3
        )


@pytest.mark.parametrize("name", ["llama_40k", "llama_1m", "llama_1b", "gpt2", "gpt3_xl"])
def test_a_shape_has_the_parameters_of_the_model(name: str) -> None:
    with shapes_only():
        model = preset(name)()
        numbers = sum(parameter.numel() for parameter in model.parameters())
        assert shape(model, getattr(model, "context", 64)).parameters == numbers


def test_a_mask_of_documents_is_read_whole() -> None:
    with shapes_only():
        together, apart = (Llama(64, layers=2, width=16, heads=2, separator=separator) for separator in (None, 3))
    assert shape(together, 16).flash_attention
    assert not shape(apart, 16).flash_attention


def test_every_name_is_a_field_and_a_key(text: Path) -> None:
    assert {*SAME} <= {*Policy.__dataclass_fields__}
    config = compose(["task=language", f"task.data={text}"])
    for key in settings_of(Policy(), 1):
        part, _, name = key.rpartition(".")
        assert name in (config[part] if part else config), key
