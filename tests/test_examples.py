"""The examples do what their pages say."""

from __future__ import annotations

import json
import re
import runpy
import sys
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

import commeff
from commeff import DistributedOptimizer, methods
from commeff.experiments.config.check import check_plugin
from tests import owned
from tests.laws.processes import on_processes

EXAMPLES = Path(__file__).parents[1] / "examples"
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
TEXT = bytes(range(97, 123)) * 40


def whole(parts):
    return [parameter.full_tensor().detach().clone() for part in parts for parameter in part.parameters()]


def test_a_trainer_in_torchtitan_s_manner_takes_a_method_where_its_optimizers_are_made():
    """Two replicas on two ranks each under parallel SGD train as one replica on four under SGD."""

    def member():
        torch.set_default_dtype(torch.float64)
        trainer = runpy.run_path(str(EXAMPLES / "trainer.py"))
        train = trainer["train"]
        theirs, before = train(
            lambda parts, _: trainer["OptimizersContainer"](parts, SGD), {"dp_replicate": 1, "dp_shard": 4}, steps=4
        )
        ours, after = train(
            lambda parts, mesh: DistributedOptimizer(parts, methods.psgd(SGD), mesh=mesh), trainer["DIMS"], steps=4
        )
        _, losses = train(trainer["ours"], trainer["DIMS"], steps=12)
        return whole(theirs), whole(ours), before, after, losses

    for theirs, ours, before, after, losses in on_processes(4, member):
        assert all((a - b).abs().max() <= 1e-12 for a, b in zip(theirs, ours, strict=True))
        assert torch.allclose(torch.tensor(before), torch.tensor(after), rtol=0, atol=1e-12)
        assert losses[-1] < 0.9 * losses[0]


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_cnn_is_ddp_s_under_psgd_and_learns_under_every_method(n):
    def member():
        script = runpy.run_path(str(EXAMPLES / "cnn_ddp_to_gossip.py"))
        ends = [script["train"](method, epochs=2)[0] for method in ("ddp", "psgd")]
        rest = {method: script["train"](method, epochs=n // 2)[1] for method in script["METHODS"] if method != "psgd"}
        return *map(flat, ends), rest

    for ddp, psgd, rest in on_processes(n, member):
        assert (ddp - psgd).abs().max() <= 1e-6
        assert all(accuracy > 0.15 for accuracy in rest.values()), rest


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_the_gpt_is_ddp_s_under_psgd_in_each_precision(n):
    """AdamW groups, warm-up, clipping, accumulation: 1e-10 in 64 bits; in 16, losses are near."""

    def member():
        script = runpy.run_path(str(EXAMPLES / "nanogpt_diloco.py"))
        losses = {}
        for dtype in (torch.bfloat16, torch.float16):
            ends = [script["train"](method, TEXT, steps=5, dtype=dtype)[2] for method in ("ddp", "psgd")]
            losses[str(dtype)] = torch.tensor(ends)
        torch.set_default_dtype(torch.float64)
        ends = [script["train"](method, TEXT, steps=6)[0] for method in ("ddp", "psgd")]
        return *map(flat, ends), losses

    for ddp, psgd, losses in on_processes(n, member):
        assert (ddp - psgd).abs().max() <= 1e-10
        for theirs, ours in losses.values():
            assert torch.allclose(theirs, ours, rtol=0, atol=1e-2)
            assert ours[-1] < ours[0]


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_gpt_goes_on_bit_for_bit_under_every_method(n, tmp_path):
    def member():
        script = runpy.run_path(str(EXAMPLES / "nanogpt_diloco.py"))
        pairs = []
        for method in script["METHODS"]:
            whole, _, losses = script["train"](method, TEXT, steps=6)
            script["train"](method, TEXT, steps=6, save=tmp_path / f"{method}.pt", stop=3)
            again, _, all_losses = script["train"](method, TEXT, steps=6, save=tmp_path / f"{method}.pt")
            pairs.append((flat(whole), flat(again), losses == all_losses))
        return pairs

    for pairs in on_processes(n, member):
        for whole, again, same in pairs:
            assert torch.equal(whole, again)
            assert same


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_cnn_goes_on_bit_for_bit_from_the_epoch_after_which_it_was_killed(n, tmp_path):
    """BatchNorm's statistics, momenta and the schedule too, where workers differ and where a method remembers."""
    save = torch.save

    def killed(*arguments):
        save(*arguments)
        raise KeyboardInterrupt

    def member():
        script = runpy.run_path(str(EXAMPLES / "cnn_ddp_to_gossip.py"))
        pairs = []
        for method in ("dsgd", "mem_sgd") if n == 2 else script["METHODS"]:
            ends = [script["train"](method, epochs=2)]
            with patch.object(torch, "save", killed), suppress(KeyboardInterrupt):
                script["train"](method, epochs=2, save=tmp_path / f"{method}.pt")
            ends.append(script["train"](method, epochs=2, save=tmp_path / f"{method}.pt"))
            states = [torch.cat([each.flatten().double() for each in model.state_dict().values()]) for model, _ in ends]
            pairs.append((*states, ends[0][1] == ends[1][1]))
        return pairs

    for pairs in on_processes(n, member):
        for whole, again, same in pairs:
            assert torch.equal(whole, again)
            assert same


def test_one_s_own_compressor_keeps_the_laws_and_trains(tmp_path: Path):
    file = EXAMPLES / "own_compressor.py"
    assert {verdict.state for verdict in check_plugin(str(file))} == {"holds"}
    settings = {"method": "mem_sgd", "workers": 4, "steps": 30, "optimizer.lr": 0.4}
    own = commeff.run(settings, compressor="largest_of_each", plugins=[str(file)], store=tmp_path, progress=False)
    top = commeff.run(settings | {"compressor.ratio": 1 / 32}, compressor="top_k", store=tmp_path, progress=False)
    assert own.summary["train_loss"] < 0.7 * own.summary["start_loss"]
    assert own.summary["payload_bytes"] < top.summary["payload_bytes"], "indices within a block are shorter"


@pytest.mark.slow
def test_one_s_own_compressor_as_a_script(tmp_path: Path):
    script = [sys.executable, str(EXAMPLES / "own_compressor.py")]
    said = owned.run(script, cwd=tmp_path, check=True).stdout
    assert all(float(accuracy) > 0.9 for accuracy in re.findall(r"accuracy (\S+),", said))


def test_the_notebook_is_kept_without_what_it_printed():
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    for cell in code:
        compile("".join(cell["source"]), "first_steps.ipynb", "exec")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("nbclient") is None, reason="needs the extra commeff[docs]")
def test_the_notebook_runs(tmp_path: Path):
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / "first_steps.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in printed) == 2
    assert not any("\x1b" in output.get("text", "") for output in printed), "a live table is none in a notebook"
    assert (tmp_path / "runs" / "first_steps").is_dir()
