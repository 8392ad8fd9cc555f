"""Models under the names of transformers: bit-equal both ways; folders that do not fit are refused in one line.

That LlamaForCausalLM and GPT2LMHeadModel (transformers 5.23, float32) give the same logits to 6e-7 was checked once, by
hand, with what they save read back bit-equal: the package is no dependency.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from commeff.experiments.cli import app
from commeff.experiments.config.compose import compose
from commeff.experiments.data.folder import DataError
from commeff.experiments.run.naming import run_id
from commeff.experiments.tasks import Language
from commeff.experiments.tasks.language import GPT, Llama, count, load, preset, save
from commeff.experiments.tasks.language.families import renamed
from commeff.experiments.tasks.language.tokenise import tokenise
from commeff.experiments.tasks.shapes import shapes_only
from tests.states import parameters

torch_files = pytest.importorskip("safetensors.torch")

MODELS: dict[str, Any] = {
    "llama": lambda: Llama(64, layers=2, width=32, heads=4, kv_heads=2, inner=48, base=5e5),
    "llama, tied": lambda: Llama(64, layers=1, width=16, heads=2, inner=24, tied=True),
    "gpt": lambda: GPT(64, layers=2, heads=2, width=16, context=12, dropout=0.1, bias=True, tanh=True),
    "gpt without biases": lambda: GPT(64, layers=11, heads=2, width=16, context=12),
}


def made(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = MODELS[name]().to(dtype)
    for parameter in model.parameters():
        if parameter.ndim == 1:  # norms and biases that differ
            nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_the_way_there_and_back_is_bit_equal(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = made(name, dtype)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.state_dict().keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
        assert again.state_dict()[key].dtype == dtype
    assert (again.head.weight is again.tokens.weight) == (model.head.weight is model.tokens.weight)
    assert [n for n, p in again.named_parameters() if p.requires_grad] == [n for n, _ in model.named_parameters()]
    tokens = torch.arange(10)[None]
    assert torch.equal(again.eval()(tokens), model.eval()(tokens))


def test_names_and_shapes_are_those_of_transformers(tmp_path: Path) -> None:
    """LlamaForCausalLM and GPT2LMHeadModel, from their state_dict()."""
    save(made("llama"), tmp_path)
    held = torch_files.load_file(tmp_path / "model.safetensors")
    block = {
        "input_layernorm": (32,),
        "self_attn.q_proj": (32, 32),
        "self_attn.k_proj": (16, 32),
        "self_attn.v_proj": (16, 32),
        "self_attn.o_proj": (32, 32),
        "post_attention_layernorm": (32,),
        "mlp.gate_proj": (48, 32),
        "mlp.up_proj": (48, 32),
        "mlp.down_proj": (32, 48),
    }
    expected = {"model.embed_tokens.weight": (64, 32), "model.norm.weight": (32,), "lm_head.weight": (64, 32)}
    expected |= {f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in block.items()}
    assert {name: tuple(tensor.shape) for name, tensor in held.items()} == expected
    save(made("gpt"), tmp_path)
    held = torch_files.load_file(tmp_path / "model.safetensors")
    assert held["transformer.h.1.attn.c_attn.weight"].shape == (16, 48)  # transposed
    assert held["transformer.h.1.mlp.c_proj.bias"].shape == (16,)
    assert {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f.bias"} <= held.keys()
    assert "lm_head.weight" not in held
    facts = json.loads((tmp_path / "config.json").read_text())
    assert facts["architectures"] == ["GPT2LMHeadModel"]
    assert (facts["n_positions"], facts["activation_function"], facts["resid_pdrop"]) == (12, "gelu_new", 0.1)


@pytest.mark.parametrize("name", ["llama2_70b", "gpt2"])
def test_large_presets_have_names_for_every_tensor(name: str) -> None:
    with torch.device("meta"):
        model = preset(name)()
    names = {theirs for _, theirs, _ in renamed(model)}
    assert len(names) == len(list(model.parameters()))
    assert sum(model.get_parameter(ours).numel() for ours, _, _ in renamed(model)) == count(name)


def test_gpt_2_as_it_was_published_leaves_a_word_out_and_comes_in_several_files(tmp_path: Path) -> None:
    model = made("gpt")
    save(model, tmp_path)
    held = torch_files.load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    short = {name.removeprefix("transformer."): tensor for name, tensor in held.items()}
    short["h.0.attn.bias"] = torch.ones(1, 1, 12, 12)  # a mask, which its file holds, too
    parts = [dict(list(short.items())[i::2]) for i in range(2)]
    for i, part in enumerate(parts):
        torch_files.save_file(part, tmp_path / f"{i}.safetensors")
    places = {name: f"{i}.safetensors" for i, part in enumerate(parts) for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    again = load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model_type": "bert"}, "model_type in .* must be llama or gpt2, got 'bert'"),
        ({"hidden_size": None}, "describes no model of ours"),
        ({"hidden_act": "gelu"}, "hidden_act must be silu, got 'gelu': our model computes no other"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type must be default, got 'llama3'"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps must be 1e-05"),
        ({"num_hidden_layers": 3}, "model.layers.2.input_layernorm.weight must have shape .*, got none"),
        ({"num_hidden_layers": 1}, "model.layers.1.* has no place in the model"),
        ({"intermediate_size": 40}, r"gate_proj.weight must have shape \(40, 32\) .*, got \(48, 32\)"),
        ({"tie_word_embeddings": True}, "lm_head.weight must be the embedding"),
    ],
)
def test_folders_that_do_not_fit_are_refused_in_one_line(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    save(made("llama"), tmp_path)
    facts = json.loads((tmp_path / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match=reason) as refusal:
        load(tmp_path)
    assert "\n" not in str(refusal.value)


def test_damaged_files_and_other_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"config\.json cannot be read"):
        load(tmp_path)
    with pytest.raises(ValueError, match="the model must be a GPT or a Llama, got Linear"):
        save(nn.Linear(1, 1), tmp_path)
    save(made("gpt"), tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match=r"model\.safetensors cannot be read"):
        load(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(DataError, match=r"the package safetensors, .* pip install 'commeff\[safetensors\]'"):
        save(made("gpt"), tmp_path)


def test_a_run_is_exported_as_the_mean_of_its_workers(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes(bytes(range(256)) * 20)
    small = ["task.layers=1", "task.heads=2", "task.width=8", "task.context=8", "task.probe=64"]
    settings = ["task=language", f"task.data={tmp_path}/text.txt", *small, "workers=2", "steps=3", "method=local_sgd"]
    trained = CliRunner().invoke(app, ["train", *settings, "--store", str(tmp_path / "store"), "--json"])
    assert trained.exit_code == 0, trained.output
    folder = json.loads(trained.stdout)["run"]
    words = ["export", folder, "--to", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    state = torch.load(f"{folder}/checkpoints/latest.pt", weights_only=True)["state"]
    rows = parameters(state)
    assert (rows[0] - rows[1]).abs().max() > 0
    assert json.loads(done.stdout) == {"folder": str(tmp_path / "out"), "parameters": rows.shape[1], "steps": 3}
    flat = torch.cat([parameter.flatten() for parameter in load(tmp_path / "out").parameters()])
    assert torch.equal(flat, rows.mean(0))
    for wrong, reason in (
        (words, "--to must be a new folder"),
        (["export", str(tmp_path / "absent"), "--to", str(tmp_path / "x")], "there is no run"),
        (["export", str(tmp_path), "--to", str(tmp_path / "x")], "has no configuration: train it first"),
    ):
        refused = CliRunner().invoke(app, wrong)
        assert refused.exit_code == 2
        assert reason in refused.stderr
    other = torch.load(f"{folder}/checkpoints/latest.pt", weights_only=True)
    for state in ({"step": 3}, other["state"] | {"tensors": {"model/": [[2], []]}}):
        torch.save(other | {"state": state}, f"{folder}/checkpoints/latest.pt")
        refused = CliRunner().invoke(app, ["export", folder, "--to", str(tmp_path / "x")])
        assert (refused.exit_code, "of this run" in refused.stderr) == (2, True), refused.stderr
    assert not (tmp_path / "x").exists()


TEXT = bytes(range(64)) * 64


def task(folder: Path, **settings: Any) -> Language:
    (folder / "text").write_bytes(TEXT)
    return Language(1, data=str(folder / "text"), model=str(folder), context=8, batch=4, **settings)


@pytest.mark.parametrize("name", MODELS)
def test_training_begins_from_the_model_of_a_folder(name: str, tmp_path: Path) -> None:
    model = grown(name)
    save(model, tmp_path)
    begun = task(tmp_path, dtype="float64")
    first, again = begun.model(), begun.model()
    for key, value in model.state_dict().items():
        assert torch.equal(first.state_dict()[key], value.double())
        assert torch.equal(again.state_dict()[key], first.state_dict()[key])
    assert begun.loss(first.eval(), begun.batch(0, [0])[0][0]) == begun.loss(again.eval(), begun.batch(0, [0])[0][0])
    (tmp_path / "model.safetensors").unlink()
    with shapes_only():  # of which config.json is enough
        shapes = {key: value.shape for key, value in begun.model().state_dict().items()}
    assert shapes == {key: value.shape for key, value in model.state_dict().items()}


def grown(name: str) -> nn.Module:
    """A model with more tokens than the bytes of a text."""
    torch.manual_seed(0)
    sizes = {"vocabulary": 300, "layers": 1, "width": 16, "heads": 2}
    if "gpt" in name:
        return GPT(**sizes, context=12, bias="without" not in name)
    return Llama(**sizes, tied="tied" in name)


def test_a_model_that_went_on_keeps_what_training_does_not_change(tmp_path: Path) -> None:
    folder, text = tmp_path / "model", tmp_path / "text"
    folder.mkdir()
    text.write_bytes(TEXT)
    save(Llama(256, layers=1, width=16, heads=2), folder)
    facts = json.loads((folder / "config.json").read_text())
    told = {"max_position_embeddings": 4096, "eos_token_id": 7, "pad_token_id": 3, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(facts | told))
    (folder / "tokenizer.json").write_text("{}")
    words = ["task=language", f"task.data={text}", f"model={folder}", "task.context=8", "steps=1", "workers=1"]
    assert CliRunner().invoke(app, ["train", *words, "--store", str(tmp_path / "runs")]).exit_code == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert CliRunner().invoke(app, ["export", str(run), "--to", str(tmp_path / "out")]).exit_code == 0
    told.pop("torch_dtype")
    assert json.loads((tmp_path / "out/config.json").read_text()) == facts | told
    assert (tmp_path / "out/tokenizer.json").read_text() == "{}"
    assert len(list((tmp_path / "out").iterdir())) == 3
    assert load(tmp_path / "out")


def test_dropout_is_that_of_the_run(tmp_path: Path) -> None:
    """Not that of the folder, of which config.json may say what it likes; a Llama has none."""
    save(made("gpt"), tmp_path)
    assert load(tmp_path).drop.p == 0.1
    facts = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(facts | {"embd_pdrop": 0.3}))
    with pytest.raises(DataError, match=r"attn_pdrop, embd_pdrop, resid_pdrop must be equal, got \[0.1, 0.3, 0.1\]"):
        load(tmp_path)
    save(grown("gpt"), tmp_path)
    assert [task(tmp_path, dropout=p).model().drop.p for p in (0.0, 0.2)] == [0.0, 0.2]
    save(grown("llama"), tmp_path)
    with pytest.raises(ValueError, match=r"dropout must be 0 with the llama in .*, which has none, got 0.2"):
        task(tmp_path, dropout=0.2)


def test_a_text_of_documents_has_no_more_tokens_than_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many are fine; attention stays within documents; an evaluation has no more logits than it may have."""
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"= %d =\n%s\n" % (k, bytes(range(97, 123))) for k in range(200)))
    tokenise(str(text), None, tmp_path / "tokens", documents="^= ")
    given = {"data": str(tmp_path / "tokens"), "model": str(tmp_path), "context": 8, "documents": True}
    for vocabulary in (256, 257, 300):
        save(Llama(vocabulary, layers=1, width=16, heads=2), tmp_path)
        if vocabulary == 256:
            with pytest.raises(ValueError, match=r"the text must have at most the 256 tokens of .*, got 257"):
                Language(1, **given)
            continue
        begun = Language(1, **given)
        assert begun.model().separator == 256
    monkeypatch.setattr("commeff.experiments.tasks.language.task.LOGITS", 300 * 16)
    model, sizes = begun.model(), []
    model.register_forward_hook(lambda module, inputs, logits: sizes.append(logits.numel()))
    begun.evaluate(model)
    assert max(sizes) == 300 * 16


def test_a_run_is_named_after_the_weights_that_it_begins_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest of the weights is among the settings; a model with other weights in its place is refused."""
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    names, digests = [], []
    for last in (0, 0, 1):
        torch.manual_seed(0)
        model = Llama(300, layers=1, width=16, heads=2)
        model.norm.weight.data[-1] += last / 1024
        save(model, folder)
        (folder / "text").write_bytes(TEXT)
        config = compose(["task=language", "task.data=model/text", "model=model", "task.context=8"])
        assert config["task"]["model"] == str(folder)
        names.append(run_id(config))
        digests.append(config["task"]["digest"])
    assert names[0] == names[1] != names[2]
    assert task(folder, digest=digests[2]).model()
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(facts | {"rope_theta": 1.0, "rope_parameters": None}))
    assert compose(["task=language", "task.data=model/text", "model=model"])["task"]["digest"] != digests[2]
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(DataError, match=r"model_type in .* must be llama or gpt2, got 'bert'"):
        compose(["task=language", "task.data=model/text", "model=model"])
    (folder / "config.json").write_text(json.dumps(facts))
    tokenise(str(folder / "text"), None, tmp_path / "tokens")
    words = ["task=language", "model=model", "task.data=tokens"]
    assert compose(words)["task"]["digest"] not in (*digests, compose(words[::2])["task"]["digest"])
    folder.rename(tmp_path / "gpt2")
    with pytest.raises(ValueError, match=r"model=gpt2 must be a preset or a folder, got both: write \./gpt2"):
        compose(["task=language", "model=gpt2"])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert compose(["task=language", "model=./gpt2"])["task"]["model"] == str(tmp_path / "gpt2")
    assert Language(1, data=str(tmp_path / "gpt2/text"), model="~/gpt2", context=8).model()
    (tmp_path / "gpt2").rename(folder)
    with pytest.raises(
        DataError, match=r"text and .*model must be the tokens and weights that the run was made with, got others"
    ):
        task(folder, digest=digests[0])


def test_a_folder_that_does_not_fit_the_text_is_refused(tmp_path: Path) -> None:
    save(made("llama"), tmp_path)
    with pytest.raises(ValueError, match=r"the text must have at most the 64 tokens of .*, got 256: tokenise it with"):
        task(tmp_path)
    with pytest.raises(ValueError, match=r"width=8 must be left out with model="):
        task(tmp_path, width=8)
    save(grown("gpt"), tmp_path)
    (tmp_path / "text").write_bytes(TEXT)
    with pytest.raises(ValueError, match=r"context must be at most that of .*, 12, got 13"):
        Language(1, data=str(tmp_path / "text"), model=str(tmp_path), context=13)
    begun = task(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"model.safetensors cannot be read"):
        begun.model()
    with pytest.raises(ValueError, match=r"model must be a preset, or a folder with a config.json, got '.*/none'"):
        Language(1, data=str(tmp_path / "text"), model=str(tmp_path / "none"))
