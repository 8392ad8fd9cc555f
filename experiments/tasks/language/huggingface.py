"""Llama and GPT under the names that Hugging Face's `transformers` gives their tensors, in safetensors files.

    save(model, folder)     model.safetensors and config.json, which LlamaForCausalLM or GPT2LMHeadModel reads
    load(folder)            a GPT or Llama from such a folder, in the dtype of its files

Queries and keys are rotated in the same pairs there, so only GPT-2's linear layers, which are stored transposed, are
changed. The way back is bit-equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from commeff.experiments.data.folder import DataError
from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama
from commeff.files import regular

WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
LARGEST = 1 << 26  # bytes of a JSON file


@dataclass(frozen=True)
class Family:
    """How one kind of model is called there.

    architecture, kind : of config.json.
    names : our name of a module -> theirs; * is the number of a block.
    turned : our modules whose matrices lie transposed there.
    ignored : ends of names of theirs that are no parameters.
    facts : a model -> its config.json.
    build : a config.json -> a fresh model.
    """

    architecture: str
    kind: str
    names: Mapping[str, str]
    turned: frozenset[str]
    ignored: tuple[str, ...]
    facts: Callable[[Any], dict[str, Any]]
    build: Callable[[Mapping[str, Any]], nn.Module]


def _llama_facts(model: Llama) -> dict[str, Any]:
    vocabulary, width = model.tokens.weight.shape
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": model.get_parameter("blocks.0.feedforward.gate.weight").shape[0],
        "num_hidden_layers": len(model.blocks),
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps,
        "rope_theta": model.base,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.base},
        "max_position_embeddings": 2048,  # of rotary positions there are as many as one likes
        "tie_word_embeddings": model.head.weight is model.tokens.weight,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _llama(facts: Mapping[str, Any]) -> nn.Module:
    rotary = facts.get("rope_parameters") or {}
    heads = facts["num_attention_heads"]
    _agree(
        facts,
        hidden_act=("silu",),
        rms_norm_eps=(1e-5,),
        attention_bias=(False, None),
        mlp_bias=(False, None),
        rope_scaling=(None, rotary or None),
        head_dim=(None, facts["hidden_size"] // heads),
    )
    if rotary.get("rope_type", "default") != "default":
        raise ValueError(f"rope_type must be default, got {rotary['rope_type']!r}")
    return Llama(
        facts["vocab_size"],
        layers=facts["num_hidden_layers"],
        width=facts["hidden_size"],
        heads=heads,
        kv_heads=facts.get("num_key_value_heads"),
        inner=facts["intermediate_size"],
        tied=facts.get("tie_word_embeddings", False),
        base=rotary.get("rope_theta", facts.get("rope_theta", 10000.0)),
    )


def _gpt_facts(model: GPT) -> dict[str, Any]:
    vocabulary, width = model.tokens.weight.shape
    if model.get_parameter("blocks.0.attention.project.weight").shape[1] != width:
        raise ValueError("the heads of GPT-2 share the width evenly, those of this model do not: it has no place there")
    return {
        "vocab_size": vocabulary,
        "n_positions": model.context,
        "n_embd": width,
        "n_layer": len(model.blocks),
        "n_head": model.heads,
        "activation_function": "gelu_new" if model.tanh else "gelu",
        "layer_norm_epsilon": model.norm.eps,
        **{f"{place}_pdrop": model.drop.p for place in ("attn", "embd", "resid")},
        "tie_word_embeddings": True,
        "bias": model.norm.bias is not None,  # not theirs: there all have one, here it may be left out
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt(facts: Mapping[str, Any]) -> nn.Module:
    width, dropout = facts["n_embd"], facts.get("resid_pdrop", 0.0)
    _agree(
        facts,
        activation_function=("gelu_new", "gelu"),
        layer_norm_epsilon=(1e-5, None),
        n_inner=(None, 4 * width),
        tie_word_embeddings=(True, None),
        scale_attn_weights=(True, None),
        scale_attn_by_inverse_layer_idx=(False, None),
        attn_pdrop=(dropout, None),
        embd_pdrop=(dropout, None),
    )
    return GPT(
        facts["vocab_size"],
        layers=facts["n_layer"],
        heads=facts["n_head"],
        width=width,
        context=facts["n_positions"],
        dropout=dropout,
        bias=facts.get("bias", True),
        tanh=facts["activation_function"] == "gelu_new",
    )


def _agree(facts: Mapping[str, Any], **known: tuple[Any, ...]) -> None:
    """Refuse what our models do not compute."""
    for name, values in known.items():
        if facts.get(name) not in values:
            choices = " or ".join(str(value) for value in dict.fromkeys(values))
            raise ValueError(
                f"{name} must be {choices}, got {str(facts.get(name))[:60]!r}: our model computes no other"
            )


FAMILIES: Mapping[type[nn.Module], Family] = {
    Llama: Family(
        "LlamaForCausalLM",
        "llama",
        {
            "tokens": "model.embed_tokens",
            "blocks.*.attention_norm": "model.layers.*.input_layernorm",
            "blocks.*.attention.queries": "model.layers.*.self_attn.q_proj",
            "blocks.*.attention.keys": "model.layers.*.self_attn.k_proj",
            "blocks.*.attention.values": "model.layers.*.self_attn.v_proj",
            "blocks.*.attention.project": "model.layers.*.self_attn.o_proj",
            "blocks.*.feedforward_norm": "model.layers.*.post_attention_layernorm",
            "blocks.*.feedforward.gate": "model.layers.*.mlp.gate_proj",
            "blocks.*.feedforward.widen": "model.layers.*.mlp.up_proj",
            "blocks.*.feedforward.project": "model.layers.*.mlp.down_proj",
            "norm": "model.norm",
            "head": "lm_head",
        },
        frozenset(),
        (".rotary_emb.inv_freq",),
        _llama_facts,
        _llama,
    ),
    GPT: Family(
        "GPT2LMHeadModel",
        "gpt2",
        {
            "tokens": "transformer.wte",
            "positions": "transformer.wpe",
            "blocks.*.attention_norm": "transformer.h.*.ln_1",
            "blocks.*.attention.inputs": "transformer.h.*.attn.c_attn",
            "blocks.*.attention.project": "transformer.h.*.attn.c_proj",
            "blocks.*.feedforward_norm": "transformer.h.*.ln_2",
            "blocks.*.feedforward.widen": "transformer.h.*.mlp.c_fc",
            "blocks.*.feedforward.project": "transformer.h.*.mlp.c_proj",
            "norm": "transformer.ln_f",
            "head": "lm_head",
        },
        frozenset({"inputs", "project", "widen"}),
        (".attn.bias", ".attn.masked_bias"),
        _gpt_facts,
        _gpt,
    ),
}


def family(model: nn.Module) -> Family:
    """The family of a model; one line for others."""
    if type(model) not in FAMILIES:
        raise ValueError(f"the model must be a GPT or a Llama, got {type(model).__name__}: others have no names there")
    return FAMILIES[type(model)]


def renamed(model: nn.Module) -> Iterator[tuple[str, str, bool]]:
    """Of each tensor: our name, theirs, and whether it lies transposed there. A tied tensor comes once."""
    kin = family(model)
    for name, _ in model.named_parameters():
        module, _, key = name.rpartition(".")
        block = module.split(".")[1] if module.startswith("blocks.") else ""
        theirs = kin.names[module.replace(f".{block}.", ".*.", 1) if block else module].replace("*", block)
        turned = module.rpartition(".")[2] in kin.turned and key == "weight"
        yield name, f"{theirs}.{key}", turned


def save(model: nn.Module, folder: Path) -> None:
    """Write model.safetensors and config.json into a folder that is there.

    Parameters
    ----------
    model : a GPT or a Llama. A GPT without biases gets biases of zero, since GPT-2 has no others.
    folder : where.
    """
    kin, package = family(model), _package()
    named = dict(model.named_parameters())
    tensors = {theirs: _turned(named[ours].detach(), turned) for ours, theirs, turned in renamed(model)}
    facts = {"architectures": [kin.architecture], "model_type": kin.kind, **kin.facts(model)}
    if facts.get("bias") is False:
        zeros = [(theirs, outputs) for theirs, outputs in _outputs(model) if f"{theirs}.bias" not in tensors]
        tensors |= {f"{theirs}.bias": model.get_parameter("norm.weight").new_zeros(size) for theirs, size in zeros}
    facts["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    try:
        package.save_file({name: tensor.cpu() for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{folder} cannot be written ({error.strerror or error}): choose another folder") from None


def load(folder: Path) -> nn.Module:
    """A GPT or Llama from a folder that `save` or `transformers` has written, in one file or several.

    Raises
    ------
    DataError: in one line, where a file is missing or damaged, the model is none of ours, or tensors are missing, of
        other shapes, or more than the model has.
    """
    facts = _json(folder / CONFIG)
    kin = next((kin for kin in FAMILIES.values() if kin.kind == facts.get("model_type")), None)
    if kin is None:
        kinds = " or ".join(kin.kind for kin in FAMILIES.values())
        raise DataError(f"model_type in {folder / CONFIG} must be {kinds}, got {str(facts.get('model_type'))[:40]!r}")
    try:
        with torch.device("meta"):
            model = kin.build(facts)
    except KeyError as error:
        raise DataError(f"{folder / CONFIG} must give {error.args[0]}: get the folder whole") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder / CONFIG} describes no model of ours: {' '.join(str(error).split())}") from None
    tensors = {_full(name, kin): tensor.clone() for name, tensor in _read(folder)}  # in memory that is aligned
    found, tied = {}, model.get_parameter("head.weight") is model.get_parameter("tokens.weight")
    for ours, theirs, turned in renamed(model):
        tensor = tensors.pop(theirs, None)
        found[ours] = _checked(model.get_parameter(ours), None if tensor is None else _turned(tensor, turned), theirs)
    head = tensors.pop("lm_head.weight", None)
    if tied and head is not None and not torch.equal(head, found["tokens.weight"]):
        raise DataError("lm_head.weight must be the embedding where tie_word_embeddings is true, got another tensor")
    for name, tensor in tensors.items():
        spare = name.endswith(kin.ignored) or (facts.get("bias") is False and name.endswith(".bias"))
        if not spare or (name.endswith(".bias") and facts.get("bias") is False and bool(tensor.any())):
            raise DataError(f"{name} in {folder} has no place in the model that {CONFIG} describes: correct that")
    if tied:
        found["head.weight"] = found["tokens.weight"]
    model.load_state_dict(found, assign=True)
    if tied:
        model.get_submodule("head").register_parameter("weight", model.get_parameter("tokens.weight"))
    return model.requires_grad_()


def _package() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise DataError(
            "safetensors files need the package safetensors, which is not installed: pip install 'commeff[safetensors]'"
        ) from None
    return safetensors.torch


def _turned(tensor: Tensor, turned: bool) -> Tensor:
    return tensor.T.contiguous() if turned else tensor.contiguous()


def _outputs(model: nn.Module) -> Iterator[tuple[str, int]]:
    """The modules, by their names there, that have a bias there, and how many numbers it has."""
    for ours, theirs, _ in renamed(model):
        module = model.get_submodule(ours.rpartition(".")[0])
        if not isinstance(module, nn.Embedding):
            yield theirs.rpartition(".")[0], model.get_parameter(ours).shape[0]


def _full(name: str, kin: Family) -> str:
    """GPT-2's own file leaves the first word out."""
    return f"transformer.{name}" if kin.kind == "gpt2" and name.startswith(("h.", "wte.", "wpe.", "ln_f.")) else name


def _checked(ours: Tensor, tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None or tensor.shape != ours.shape:
        got = "none" if tensor is None else str(tuple(tensor.shape))
        raise DataError(f"{name} must have shape {tuple(ours.shape)} as {CONFIG} has it, got {got}: correct that")
    return tensor


def _read(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a folder, which may have several files."""
    package, files = _package(), [WEIGHTS]
    if (folder / INDEX).is_file():
        places = _json(folder / INDEX).get("weight_map")
        named = sorted({str(file) for file in places.values()}) if isinstance(places, dict) else []
        files = [Path(file).name for file in named]
    for file in files:
        try:
            yield from package.load_file(folder / file).items()
        except Exception as error:  # the package's errors have no kind of their own
            raise DataError(f"{folder / file} cannot be read ({' '.join(str(error).split())}): get it anew") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb", opener=regular) as file:
            content = file.read(LARGEST + 1)
        facts = json.loads(content) if len(content) <= LARGEST else None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({' '.join(str(error).split())[:200]}): get it anew") from None
    if not isinstance(facts, dict):
        raise DataError(f"{path} must hold names and values, got something else: get it anew")
    return facts
