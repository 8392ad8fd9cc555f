"""Runs whose workers lie on several processes: from the command line's words to the record, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from commeff.experiments.config.build import build, part
from commeff.experiments.config.compose import compose
from commeff.experiments.config.meshes import place
from commeff.experiments.config.plugins import adopt
from commeff.experiments.config.schema import ConfigError
from commeff.experiments.config.settings import RUN
from commeff.experiments.planning.forecast import forecast
from commeff.experiments.run.launch.membership import with_processes
from commeff.experiments.run.naming import run_id
from commeff.experiments.run.runner import RunFailed, run_one
from commeff.experiments.tasks.language import Llama, count, save
from commeff.replicas import ShardedWorker
from commeff.sharding.recompute import RECOMPUTATIONS
from commeff.sharding.schedules import SCHEDULES

SMALL = ("task=language", "model=llama_300k", "task.context=16", "task.batch=4", "task.probe=256", "task.dtype=float64")


def words(text: Path, *more: str) -> list[str]:
    return [*SMALL, f"task.data={text}", "method=local_sgd", "method.period=2", "steps=4", "evaluate_every=1", *more]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text"
    path.write_bytes(bytes(range(256)) * 16)
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def same(ours: dict[str, Any], theirs: dict[str, Any], keys: set[str]) -> None:
    for key in keys:
        assert ours[key] == pytest.approx(theirs[key], abs=1e-10), key


MEASURED = {"step", "samples", "minibatch_loss", "val_loss", "val_accuracy", "train_loss", "consensus_distance"}


def test_a_run_on_a_mesh_is_recorded_as_the_run_of_whole_workers_and_goes_on_where_it_was_killed(
    text: Path, tmp_path: Path
) -> None:
    """Two workers of two tensor ranks, a process each, killed after their second step or later and started again."""
    whole = run_one(compose(words(text, "workers=2", "clip=0.5")), tmp_path / "whole")
    config = compose(words(text, "mesh.worker=2", "mesh.tensor=2", "clip=0.5", "checkpoint_every=1"))

    def progress(step: int, row: dict[str, Any]) -> None:
        if row:
            raise OSError("the power is gone")

    with pytest.raises(RunFailed, match="the power is gone"):
        run_one(config, tmp_path / "mesh", progress)
    ours = run_one(config, tmp_path / "mesh")
    assert (ours["state"], ours["workers"]) == ("done", 2)
    for row, reference in zip(rows(tmp_path / "mesh"), rows(tmp_path / "whole"), strict=True):
        same(row, reference, {*MEASURED, "gradient_norm"})
        assert row["payload_bytes"] >= reference["payload_bytes"]
        assert row["tensor_bytes"] > 0 <= row["tensor_exposed_seconds"]
    assert ours["payload_bytes"] > whole["payload_bytes"] > 0, "copies of norms travel, too"
    same(ours, whole, {"test_loss", "local_val_loss", "start_loss", "parameter_norm"})
    predicted = forecast(config)
    assert {name: ours[name] for name in predicted.sent} == predicted.sent
    assert ours["held_bytes"] == predicted.states
    folders = sorted(path.name for path in (tmp_path / "mesh" / "checkpoints").iterdir())
    others = [f"step-{step}.{rank}.pt" for step in (3, 4) for rank in (1, 2, 3)]
    assert folders == ["latest.pt", "previous.pt", *others]
    assert len(json.loads((tmp_path / "mesh" / "env.json").read_text())["members"]) == 4


@pytest.mark.parametrize(
    "mesh",
    [
        ("mesh.worker=2", "mesh.tensor=2"),
        ("mesh.shard=2", "zero=2"),
        ("mesh.pipeline=2", "mesh.tensor=2", "micro_batches=2"),
    ],
    ids=["tensor", "shard", "stages"],
)
def test_whole_workers_select_within_the_pieces_of_a_mesh(text: Path, tmp_path: Path, mesh: tuple[str, ...]) -> None:
    """Top-k with feedback, over processes and in one that cuts its rows where they are cut there."""
    method = ("method=mem_sgd", "compressor=top_k", "compressor.ratio=0.01", "pieces=own")
    ours, theirs = (
        run_one(
            compose([word for word in (*SMALL, f"task.data={text}", "steps=4", *method, *mesh, *more) if word]), path
        )
        for path, more in ((tmp_path / "mesh", ()), (tmp_path / "one", ("nproc=1", "micro_batches=1")))
    )
    plain = [*SMALL, f"task.data={text}", "steps=4", *method[:3], f"workers={ours['workers']}"]
    same(ours, theirs, {"val_loss", "start_loss", "parameter_norm"})
    assert abs(run_one(compose(plain), tmp_path / "plain")["val_loss"] - ours["val_loss"]) > 1e-6


def test_stages_of_zero_and_16_bits_end_near_whole_workers(text: Path, tmp_path: Path) -> None:
    whole = run_one(compose(words(text, "workers=1", "task.dtype=float32")), tmp_path / "whole")
    for given in (("zero=2",), ("zero=3", "precision=bf16")):
        config = compose(words(text, "mesh.shard=2", "task.dtype=float32", *given))
        ours = run_one(config, tmp_path / given[0])
        near = 1e-4 if len(given) == 1 else 2e-2
        assert ours["val_loss"] == pytest.approx(whole["val_loss"], rel=near)
        assert ours["val_loss"] != whole["val_loss"]


@pytest.mark.parametrize(
    "mesh",
    [
        ("mesh.tensor=2",),
        ("mesh.shard=2", "zero=2"),
        ("mesh.shard=2", "zero=3"),
        ("mesh.pipeline=2", "micro_batches=2"),
    ],
    ids=["tensor", "zero 2", "zero 3", "stages"],
)
def test_neither_norms_nor_biases_decay_on_a_mesh(text: Path, tmp_path: Path, mesh: tuple[str, ...]) -> None:
    decaying = ("workers=1", "optimizer=adamw", "optimizer.weight_decay=20", "optimizer.lr=0.01", "decay=matrices")
    whole, split, everything = (
        run_one(compose(words(text, *decaying, *more)), tmp_path / str(i))
        for i, more in enumerate([(), mesh, ("decay=all",)])
    )
    assert split["val_loss"] == pytest.approx(whole["val_loss"], rel=1e-10)
    assert abs(everything["val_loss"] / whole["val_loss"] - 1) > 1e-6


@pytest.mark.slow  # the compiler takes a minute
@pytest.mark.parametrize("zero", [1, 3])
def test_compiled_models_of_shard_ranks_train_as_plain_ones_do(text: Path, tmp_path: Path, zero: int) -> None:
    ours, theirs = (
        run_one(compose(words(text, "mesh.shard=2", f"zero={zero}", f"compile={form}")), tmp_path / form)
        for form in ("all", "off")
    )
    assert ours["val_loss"] == pytest.approx(theirs["val_loss"], rel=1e-6)
    assert ours["shard_bytes"] == theirs["shard_bytes"]


def test_a_run_in_stages_is_recorded_as_the_run_of_a_whole_worker(text: Path, tmp_path: Path) -> None:
    """A tied Llama in two stages, its activations computed anew; evaluated through the pipeline."""
    whole = run_one(compose(words(text, "workers=1")), tmp_path / "whole")
    staged = words(text, "mesh.pipeline=2", "schedule=1f1b", "micro_batches=2", "recompute=full")
    ours = run_one(compose(staged), tmp_path / "staged")
    for row, reference in zip(rows(tmp_path / "staged"), rows(tmp_path / "whole"), strict=True):
        same(row, reference, MEASURED)
    same(ours, whole, {"test_loss", "start_loss", "parameter_norm"})
    assert rows(tmp_path / "staged")[-1]["pipeline_bytes"] > 0


NARROW = [
    ("bf16_reduce_fp32", "mesh.shard=2 zero=3"),
    ("fp16", "mesh.shard=2 zero=2"),
    *(
        pytest.param(name, mesh, marks=pytest.mark.slow)
        for name, mesh in (
            ("bf16", "mesh.shard=2 mesh.tensor=2 zero=3"),
            ("bf16", "mesh.shard=2 mesh.pipeline=2 micro_batches=2 zero=3"),
            ("bf16_reduce_fp32", "mesh.shard=2 mesh.pipeline=2 micro_batches=2 zero=2"),
            ("bf16_reduce_fp32", "mesh.shard=2 zero=0"),
        )
    ),
]


@pytest.mark.parametrize(("precision", "mesh"), NARROW)
def test_bytes_of_a_run_in_16_bits_are_predicted(text: Path, tmp_path: Path, precision: str, mesh: str) -> None:
    of = [*SMALL[:-1], f"task.data={text}", "model=llama_40k", "steps=2", f"precision={precision}", *mesh.split()]
    config = compose([word for word in of if word != SMALL[1]])
    run, predicted = run_one(config, tmp_path), forecast(config)
    assert {name: run[name] for name in predicted.sent} == pytest.approx(predicted.sent, rel=1e-12)
    assert run["held_bytes"] == predicted.states


@pytest.mark.parametrize("mesh", ["mesh.shard=2 zero=3", "mesh.tensor=2", "mesh.pipeline=2 micro_batches=2"])
def test_a_mesh_begins_from_the_weights_of_a_folder(text: Path, tmp_path: Path, mesh: str) -> None:
    """As a whole worker does, whose losses it has."""
    pytest.importorskip("safetensors")
    torch.manual_seed(3)
    save(Llama(256, layers=2, width=16, heads=2, inner=24), tmp_path)
    given = [*(word for word in SMALL if "model" not in word), f"task.data={text}", f"model={tmp_path}", "steps=2"]
    whole = run_one(compose([*given, "workers=1"]), tmp_path / "whole")
    ours = run_one(compose([*given, *mesh.split()]), tmp_path / "mesh")
    assert any(f"{axis}_bytes" in ours for axis in ("shard", "tensor", "pipeline"))
    same(ours, whole, {"start_loss", "test_loss", "parameter_norm"})


@pytest.mark.parametrize(("zero", "psi", "halves"), [(0, 2, 2), (1, 2, 2), (2, 2, 2), (3, 3, 1)])
def test_bytes_of_a_shard_axis_are_predicted(text: Path, zero: int, psi: int, halves: int) -> None:
    """2 Psi numbers a step over 2 ranks, 3 Psi where parameters are sharded, too; half of it from each."""
    found = forecast(compose(words(text, "mesh.shard=2", f"zero={zero}")))
    assert found.sent["shard_bytes"] == 4 * 2 * 8 * psi * count("llama_300k") / 2
    assert (found.held["parameters"], found.held["method"]) == (halves * count("llama_300k") * 8 // 2, 0)


def test_activations_are_those_of_one_micro_batch(text: Path) -> None:
    all_at_once, halves = (
        forecast(compose(words(text, "mesh.shard=2", f"micro_batches={count}"))).held["activations"] for count in (1, 2)
    )
    assert 2 * halves == pytest.approx(all_at_once, rel=0.01)


def test_bytes_of_a_pipeline_are_predicted(text: Path) -> None:
    """Activations and their gradients (b, t, d) over one boundary, and the sum of two copies of tied embeddings."""
    found = forecast(compose(words(text, "mesh.pipeline=2", "micro_batches=2")))
    assert found.sent["pipeline_bytes"] == 4 * 8 * (2 * 4 * 16 * 96 + 2 * 256 * 96)


@pytest.mark.parametrize(("axis", "more"), [("tensor", ()), ("shard", ("zero=1",)), ("pipeline", ("micro_batches=2",))])
def test_the_norm_of_a_clip_is_predicted(text: Path, axis: str, more: tuple[str, ...]) -> None:
    """Two float64 squares are summed over the axis: 16 bytes from each of two ranks in each of four steps."""
    plain, clipped = (
        forecast(compose(words(text, f"mesh.{axis}=2", *more, *clip))).sent for clip in ((), ("clip=0.5",))
    )
    assert clipped == plain | {f"{axis}_bytes": plain[f"{axis}_bytes"] + 2 * 4 * 16}


def test_few_micro_batches_are_said_once(
    text: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    forecast(compose(words(text, "mesh.pipeline=2")))
    (line,) = caplog.messages
    assert line.startswith("micro_batches=1 are fewer than pipeline=2 ranks")
    assert not [warning for warning in recwarn if "micro_batches" in str(warning.message)]


@pytest.mark.parametrize(
    ("given", "often"),
    [
        (("zero=1",), 2),
        (("zero=3",), 4),
        (("zero=3", "schedule=interleaved", "micro_batches=4", "task.batch=8"), 6),
        (("zero=3", "schedule=zero_bubble"), 2),
    ],
)
def test_bytes_of_a_shard_axis_under_a_pipeline_are_predicted(text: Path, given: tuple[str, ...], often: int) -> None:
    """M + 2 times the parameters and the copy of tied embeddings, for M micro-batches; twice where they stay gathered,
    or whole.
    """
    few = ("model=gpt", "task.layers=4", "task.heads=2", "task.width=16")
    found = forecast(compose(words(text, "mesh.pipeline=2", "mesh.shard=2", "micro_batches=2", *few, *given)))
    task = build(compose(words(text, *few))).task
    numbers = sum(p.numel() for p in task.model().parameters()) + 256 * 16
    assert found.sent["shard_bytes"] == 4 * 2 * 8 * often * numbers / 2


@pytest.mark.parametrize(("more", "often"), [(("micro_batches=2",), 2), (("zero=3",), 1 / 2)])
def test_what_tensor_ranks_hold_alike_is_summed_with_each_micro_batch(
    text: Path, more: tuple[str, ...], often: float
) -> None:
    """Norms (2 L + 1) d, from each of 4 ranks in each of 4 steps; stage 3 sums its shard once."""
    split = ("mesh.tensor=2", "mesh.shard=2", "sequence=true")
    once, other = (forecast(compose(words(text, *split, *each))).sent["tensor_bytes"] for each in ((), more))
    norms = sum(p.numel() for p in part(compose(words(text)), "task").model().parameters() if p.ndim == 1)
    assert other - once == (often - 1) * 4 * 4 * 8 * norms


@pytest.mark.parametrize(
    ("mesh", "often"),
    [
        (("mesh.tensor=2",), 2),
        (("mesh.shard=2", "zero=2"), 1),
        (("mesh.shard=2", "zero=3"), 2),
        (("mesh.pipeline=2", "micro_batches=2"), 2),
    ],
    ids=["tensor", "stage 2", "stage 3", "pipeline"],
)
def test_what_ranks_send_in_each_of_several_minibatches_a_step(text: Path, mesh: tuple[str, ...], often: int) -> None:
    """Ranks of stage 2 share gradients and parameters once a step, however many minibatches it takes."""
    one, two = (forecast(compose(words(text, *mesh, f"accumulate={n}"))).sent for n in (1, 2))
    inside = next(name for name in one if name in ("tensor_bytes", "shard_bytes", "pipeline_bytes"))
    assert two[inside] == often * one[inside] > 0


def test_a_rank_that_fails_is_named_by_its_place(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, compute = compose(words(text, "mesh.shard=2", "zero=1")), ShardedWorker.compute

    def broken(self: ShardedWorker, *given: Any) -> Any:
        if self.mesh.coordinates["shard"] == 1:
            raise OSError("it is broken")
        return compute(self, *given)

    monkeypatch.setattr(ShardedWorker, "compute", broken)
    with pytest.raises(RunFailed, match=r"process 1, shard 1:? "):
        run_one(config, tmp_path / "mesh")


def refusals(*settings: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        build(compose(settings))
    return list(refused.value.faults)


def test_keys_that_do_not_fit_the_mesh_are_refused_all_at_once() -> None:
    lines = refusals("mesh.worker=2", "mesh.tensor=2", "zero=1", "workers=4", "nproc=3", "engine=vmap")
    assert [line.split(",")[0] for line in lines] == [
        "workers must be mesh.worker=2",
        "nproc must be 4",
        "engine must be loop on a mesh",
        "zero must be 0 with mesh.shard=1",
    ]
    assert refusals("sequence=true", "pieces=own", "precision=bf16", "engine=vmap") == [
        "pieces must be null without a mesh, got own: every model is whole; omit pieces=",
        "engine must be loop in 16 bits, got vmap with precision=bf16; omit engine=",
        "sequence must be false with mesh.tensor=1, got true: nothing is split; set mesh.tensor=2 or more",
    ]
    assert refusals("compile=all", "engine=vmap") == [
        "engine must be loop with compile=all, got vmap: it is one graph already; omit engine="
    ]
    for schedule in ("zero_bubble", "zbv"):
        words = "compile=all", "mesh.pipeline=2", f"schedule={schedule}"
        assert refusals(*words)[0].startswith("schedule must not divide backward")
    for words in (["recompute=full", "mesh.tensor=2"], ["recompute=offloaded", "mesh.shard=2"]):
        assert refusals("compile=all", *words)[0].startswith("recompute must be none with compile=all")
    assert refusals("mesh.tenor=2") == ["unknown key 'mesh.tenor'; did you mean mesh.tensor?"]
    assert refusals("mesh.tensor=0") == ["mesh.tensor must be at least 1 and at most 4,096, got 0"]


def test_models_and_batches_that_do_not_divide_are_refused_all_at_once(text: Path) -> None:
    lines = refusals(*words(text, "mesh.tensor=3", "mesh.shard=3", "sequence=true"))
    assert lines[0].startswith("mesh: batch must be a multiple of shard x micro_batches = 3 x 1, got 4")
    assert lines[1].startswith("mesh: the context must be a multiple of mesh.tensor=3 with sequence=true, got 16")
    assert "mesh: tensor = 3 must divide the 4 units of blocks.*.attention.queries: take another degree" in lines
    assert len(lines) == len(set(lines)) <= 12, "a line for each kind of block, not for each block"


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (("method=mem_sgd", "mesh.tensor=2"), "which works on whole vectors"),
        (("task=digits", "mesh.tensor=2"), "must have a plan, got Digits without"),
        (("task=quadratic", "mesh.worker=2", "mesh.tensor=2"), "must have a plan, got Quadratic without"),
        (("task=quadratic", "mesh.worker=2", "mesh.shard=1"), "must have inputs_targets and criterion, got Quadratic"),
        (("mesh.pipeline=3",), "pipeline"),
        (
            ("mesh.pipeline=2", "mesh.shard=2", "zero=3", "schedule=zbv", "micro_batches=2", "task.layers=4"),
            "zero must be at most 2 where a tensor lies in two stages of one rank, got 3 with stages 0 and 3",
        ),
        (
            ("mesh.pipeline=2", "schedule=interleaved", "micro_batches=5", "task.batch=5", "task.layers=4"),
            "micro_batches must be a multiple of the 2 rounds that interleaved makes on 2 ranks, got 5",
        ),
        (("recompute=full",), "recompute must be none without a mesh, got full"),
        (("mesh.shard=2", "recompute=partitioned"), "must have mesh.tensor=2 or more and sequence=false, got mesh.t"),
        (("schedule=zbv", "mesh.tensor=2"), "schedule must be left alone with mesh.pipeline=1, got zbv"),
        (("micro_batches=2",), "micro_batches must be 1 without a mesh, got 2"),
        (("precision=bf16_reduce_fp32",), "precision must be bf16 where a worker has one shard rank"),
        (("precision=bf16_reduce_fp32", "mesh.worker=2"), "precision must be bf16 where a worker has one shard rank"),
        (("model=llama_300k", "task.layers=3"), "layers=3 must be left out with model=llama_300k"),
        (("model=llama_2b",), "model must be a preset, or a folder with a config.json, got 'llama_2b'; did you mean"),
        (("model=gpt2", "task.context=1025"), "context must be at most that of gpt2, 1024, got 1025"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(text: Path, settings: tuple[str, ...], refusal: str) -> None:
    task = () if any("task=" in setting for setting in settings) else ("task=language", f"task.data={text}")
    (line,) = refusals(*task, *settings)
    assert refusal in line


def test_whoever_shares_states_may_train_any_task_with_a_criterion() -> None:
    assert build(compose(["task=digits", "mesh.worker=2", "mesh.shard=2", "zero=1"])).checkpoint > 0


def test_a_mesh_says_how_many_workers_and_processes_there_are() -> None:
    config = compose(["mesh.worker=2", "mesh.tensor=4", "topology=ring", "method=dsgd"])
    assert (config["workers"], config["nproc"], config["topology"]["n"], config["task"]["workers"]) == (2, 8, 2, 2)
    assert [place(config, rank) for rank in (0, 7)] == ["worker 0, tensor 0", "worker 1, tensor 3"]
    with pytest.raises(ValueError, match="as many ranks as there are processes, 4, got 8"):
        with_processes(config, 4)
    assert with_processes(config, 8)["nproc"] == 8


def test_a_run_without_a_mesh_keeps_its_name() -> None:
    config = compose(["method=dsgd"])
    assert config["mesh"] == {"worker": 1, "pipeline": 1, "shard": 1, "tensor": 1, "schedule": "1f1b"}
    older = {
        key: value
        for key, value in config.items()
        if key not in ("mesh", "micro_batches", "recompute", "zero", "sequence", "pieces")
    }
    assert run_id(older) == run_id(config)
    assert run_id(compose(["method=dsgd", "mesh.shard=2"])) != run_id(compose(["method=dsgd", "workers=1"]))


def test_every_recomputation_may_be_chosen_by_its_name() -> None:
    assert get_args(RUN["recompute"].hint) == tuple(RECOMPUTATIONS)


def test_every_schedule_of_pipelines_may_be_chosen_by_its_name() -> None:
    assert set(get_args(RUN["mesh.schedule"].hint)) == {*SCHEDULES}
    for name in SCHEDULES:
        config = compose([f"schedule={name}", "mesh.pipeline=2"])
        assert config["mesh"]["schedule"] == name
        assert config["schedule"] == compose([])["schedule"]


def test_what_does_not_fit_the_mesh_is_refused_all_at_once(text: Path) -> None:
    """Of the batch, the plan, the stages and the method, with those of a part that refuses its own arguments."""
    shape = ("task.layers=1", "task.heads=3", "task.width=36", "task.dropout=0.1", "mesh.shard=3", "sequence=true")
    mesh = ("mesh.tensor=2", "mesh.pipeline=3", "task.context=15", "micro_batches=2")
    given = ("task=language", f"task.data={text}", "task.batch=4", *shape, *mesh)
    lines = refusals(*given, "method=mem_sgd", "compressor=top_k")
    said = [
        "batch must be",
        "the context must be",
        "tensor = 2 must divide the 3 units",
        "dropout must be 0",
        "there must",
    ]
    for words in (*said, "a method over a model that is split"):
        assert any(line.startswith(f"mesh: {words}") for line in lines), words
    assert len(lines) == len({*lines}) == 7, "one of dropout in the blocks, one of it before them"
    others = refusals(*given, "method=dsgd", "topology=hypercube", "mesh.worker=6")
    assert others[0].startswith("topology: ")
    assert others[1:] == lines[:-1]


def test_what_is_only_warned_of_is_said_once(text: Path, caplog: pytest.LogCaptureFixture) -> None:
    build(compose(words(text, "mesh.pipeline=2")))
    (line,) = caplog.messages
    assert line.startswith("micro_batches=1 are fewer than pipeline=2 ranks")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("stray", "^mesh: .* got norm, which lies at another: name it in `first`"),
        ("spare", "^mesh: .* got none for spare.weight"),
        ("wrong", r"^task: KeyError: 'tokens' \(line 29 of .*strange.py\)"),
    ],
)
def test_stages_that_do_not_belong_together_are_refused_before_anything_starts(
    text: Path, tmp_path: Path, task: str, words: str
) -> None:
    """A plug-in whose first stage uses a norm of the last one, and one of which the loss leaves a module out."""
    (tmp_path / "strange.py").write_text(STRANGE)
    settings = [f"task={task}", f"task.data={text}", "task.batch=4", "mesh.pipeline=2", "micro_batches=2"]
    with pytest.raises(ConfigError, match=words):
        build(compose(settings, adopt([str(tmp_path / "strange.py")])[0]))


STRANGE = '''
from torch import nn
from commeff.experiments.tasks import Language
from commeff.sharding import Layers

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.norm, self.head = nn.Embedding(256, 8), nn.LayerNorm(8), nn.Linear(8, 256)
        self.blocks, self.spare = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)), nn.Linear(8, 8, bias=False)

class Spare(Language):
    """Leaves a module out."""

    def model(self):
        return Net()

    def before(self, net, x):
        return net.tokens(x)

    def layers(self, model):
        last = ("norm", "spare", "head")
        return Layers("blocks", self.before, lambda net, x: net.head(net.norm(x)), first=("tokens",), last=last)

class Wrong(Spare):
    """Fails in its first stage."""

    def before(self, net, x):
        return {}["tokens"]

class Stray(Spare):
    """Uses a norm of the other end."""

    def before(self, net, x):
        return net.norm(net.tokens(x))
'''
