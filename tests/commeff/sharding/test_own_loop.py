"""A loop of one's own on split models: what it does with a plain model it does with tensor ranks, stages and shards."""

from __future__ import annotations

import copy
import re
from functools import partial

import torch
from torch.distributed.tensor import DTensor

from commeff import DistributedOptimizer, methods, sharding
from commeff.experiments.tasks.language import llama_plan
from commeff.experiments.tasks.language.plans import LLAMA_LAYERS
from commeff.sharding import Mesh, Objective, cross_entropy, split
from commeff.sharding.pipeline import Pipeline
from tests.commeff.adapters.loops import complaint
from tests.commeff.sharding.test_zero import SGD, batch, llama
from tests.laws.processes import on_processes, through_a_file
from tests.test_docs import ROOT, blocks

ADAMW = partial(torch.optim.AdamW, lr=0.01)


class Split:
    """A model on a mesh of one worker, and how a loop goes backward."""

    def __init__(self, zero=0, **degrees):
        self.mesh, self.model, self.zero = Mesh(**degrees), llama(), zero
        self.pipeline, self.tensor = None, self.mesh.axis("tensor")

    def cut(self):
        split(self.model, llama_plan(self.model), self.tensor)
        if self.mesh.degrees["pipeline"] > 1:
            stages = self.mesh.axis("pipeline")
            self.pipeline = Pipeline(self.model, LLAMA_LAYERS, stages, micro_batches=3, vocabulary=self.tensor)
        return self

    def optimizer(self, method=ADAMW, **options):
        return DistributedOptimizer(self.model, methods.psgd(method), mesh=self.mesh, zero=self.zero, **options)

    def backward(self, tokens, weight=1.0):
        share = tokens.chunk(self.mesh.degrees["shard"])[self.mesh.coordinates["shard"]]
        loss = partial(cross_entropy, axis=self.tensor)
        if self.pipeline is None:
            (weight * loss(self.model(share[:, :-1]), share[:, 1:])).backward()
        else:
            objective = Objective(lambda tokens: ((tokens[:, :-1],), tokens[:, 1:]), loss)
            self.pipeline.backward(objective, (share,), weight)

    def steps(self, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            self.backward(batch(step, 0))
            optimizer.step()
        return self.weights()

    def weights(self):
        own = {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in self.model.named_parameters()}
        return {name: tensor.detach().clone() for name, tensor in own.items()}


def equal(ones, others, atol=0.0):
    return ones.keys() == others.keys() and all((ones[n] - others[n]).abs().max() <= atol for n in ones)


WAYS = {
    "shards": {"zero": 3, "shard": 2},
    "tensor": {"tensor": 2},
    "stages": {"pipeline": 2},
    "shards of stages": {"zero": 3, "shard": 2, "pipeline": 2},
}
COPIED = (
    "TypeError: a model of zero=3 must not be copied, got copy.deepcopy(model): a rank holds shards of it; give "
    "average_into a new model, or a copy that was made before the optimizer"
)


def decayed(model):
    """The last block and the output are a group, of which a first stage has none."""
    last = [(name, p) for name, p in model.named_parameters() if name.startswith(("blocks.1.", "head"))]
    names = {name for name, _ in last}
    others = [p for name, p in model.named_parameters() if name not in names]
    return [{"params": others, "weight_decay": 0.0}, {"params": last, "weight_decay": 0.5, "lr": 0.02}]


def loop(way):
    """Groups made before a model is split are those made of its pieces, what torch saves goes on, and all is averaged.

    Gives what is said of a copy.
    """
    before, after, again = Split(**way), Split(**way).cut(), Split(**way).cut()
    groups = decayed(before.model)
    optimizer, other = before.cut().optimizer(groups=groups), after.optimizer(groups=decayed(after.model))
    assert equal(before.steps(optimizer, range(2)), after.steps(other, range(2)))
    for mine, its in zip(optimizer.param_groups, other.param_groups, strict=True):
        assert [p.shape for p in mine["params"]] == [p.shape for p in its["params"]]
        assert mine | {"params": 0} == its | {"params": 0}

    state = through_a_file({"model": before.model.state_dict(), "optimizer": optimizer.state_dict()})
    third = again.optimizer(groups=decayed(again.model))
    again.model.load_state_dict(state["model"])
    assert equal(again.weights(), before.weights())
    third.load_state_dict(state["optimizer"])
    assert equal(before.steps(optimizer, range(2, 4)), again.steps(third, range(2, 4)))

    new = Split(**way).cut()
    optimizer.average_into(new.model)
    assert equal(new.weights(), before.weights())
    if before.zero == 3:
        return complaint(lambda: copy.deepcopy(before.model))
    copied = optimizer.average_into(copy.deepcopy(before.model))
    assert equal(dict(copied.named_parameters()), before.weights())
    if before.pipeline is None:
        outputs = [model(batch(5, 0)).detach() for model in (before.model, new.model, copied)]
        assert torch.equal(outputs[0], outputs[1])
        assert torch.equal(outputs[0], outputs[2])
    return "fine"


def test_a_loop_with_groups_and_files_is_that_of_a_plain_model():
    ways = list(WAYS.values())
    for found in on_processes(2, lambda: [loop(way) for way in ways[:3]]):
        assert found == [COPIED, "fine", "fine"]
    assert on_processes(4, lambda: loop(ways[3])) == [COPIED] * 4


def passes(zero):
    """Two steps by one large batch, by backward passes over its parts, and what is said where they may not come."""
    once, often = (Split(zero, shard=2) for _ in range(2))
    whole = once.steps(once.optimizer(SGD), range(2))
    optimizer = often.optimizer(SGD, bucket_mb=0)
    for step in range(2):
        optimizer.zero_grad()
        for part in zip(*(share.chunk(3) for share in batch(step, 0).chunk(2)), strict=True):
            often.backward(torch.cat(part), 1 / 3)
        optimizer.step()
    assert equal(whole, often.weights(), 1e-12)
    if zero < 2:  # the last pass of a step is final, from the second step on while it runs
        within = Split(zero, shard=2)
        optimizer = within.optimizer(SGD, bucket_mb=0.01)
        for step in range(2):
            optimizer.zero_grad()
            *first, last = (
                torch.cat(part) for part in zip(*(s.chunk(3) for s in batch(step, 0).chunk(2)), strict=True)
            )
            with optimizer.no_sync():
                for part in first:
                    within.backward(part, 1 / 3)
            within.backward(last, 1 / 3)
            assert optimizer._gradients.consumed == (step > 0)
            optimizer.step()
        assert equal(whole, within.weights(), 1e-12)
    fresh = Split(zero, shard=2)
    optimizer = fresh.optimizer(SGD, bucket_mb=0.01)
    return complaint(lambda: [fresh.backward(batch(0, 0)) for _ in range(2)])


def test_several_backward_passes_are_one_large_batch_at_every_stage_of_zero():
    for *fine, second, third in on_processes(2, lambda: [passes(zero) for zero in range(4)]):
        assert fine == ["fine"] * 2
        for words in (second, third):
            assert "came a second time" in words
            assert "within optimizer.no_sync(), or give bucket_mb=0" in words


def dropped(zero):
    """What is said of a step after gradients have been dropped."""
    worker = Split(zero, shard=2)
    optimizer = worker.optimizer(SGD)
    worker.backward(batch(0, 0))
    optimizer.zero_grad()
    return complaint(optimizer.step)


def test_gradients_that_are_dropped_are_gone_at_every_stage_of_zero():
    for said in on_processes(2, lambda: [dropped(zero) for zero in range(4)]):
        assert all("every trainable parameter must have a gradient, got none for" in words for words in said), said


PIECES = """
PLAN = {"0": ParallelInput(), "0.0": ColumnParallel(), "0.2": RowParallel()}
whole = net


def net():
    split(model := nn.Sequential(whole()), PLAN, mesh.axis("tensor"))
    return model


model = net()
"""
SCRIPTS = {"tensor": {"model = net()\n": PIECES, ", strategy)": ", strategy, mesh=mesh)"}}
SCRIPTS["tensor"]["manual_seed(dist.get_rank())"] = "manual_seed(0)"  # tensor ranks have the same data
SCRIPTS["shard"] = {", strategy)": ", strategy, mesh=mesh, zero=3)"}


def scripted(axis):
    """The page's own script, on two ranks of a worker: the average of one worker is its model."""
    (code,) = [block.code for block in blocks(ROOT / "docs" / "own_script.md") if block.title == "mine.py"]
    code = re.sub(r"dist\.(init|destroy)_process_group.*", "", code)
    for line, other in SCRIPTS[axis].items():
        assert code.count(line) == 1
        code = code.replace(line, other)
    names = vars(sharding) | {"mesh": Mesh(**{axis: 2})}
    exec(compile(code, "mine.py", "exec"), names)
    saved = torch.load(f"state{torch.distributed.get_rank()}.pt")
    assert saved["optimizer"]["step"] == 100
    own = [p.full_tensor() if isinstance(p, DTensor) else p for p in names["model"].parameters()]
    return all(map(torch.equal, names["averaged"].parameters(), own))


def test_the_script_of_the_page_runs_on_tensor_ranks_and_on_shards(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert on_processes(2, lambda: [scripted(axis) for axis in SCRIPTS]) == [[True] * 2] * 2
    assert capfd.readouterr().out.count("bytes a worker") == 2
