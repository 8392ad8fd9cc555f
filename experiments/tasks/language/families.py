"""What Hugging Face's `transformers` calls the tensors and settings of our models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama

DROPOUTS = ("attn_pdrop", "embd_pdrop", "resid_pdrop")  # of GPT-2


@dataclass(frozen=True)
class Family:
    """The names of one kind of model in `transformers`.

    architecture, kind : of config.json.
    names : our name of a module -> theirs; * is the number of a block.
    turned : our modules whose matrices lie transposed there.
    ignored : ends of names of theirs that are no parameters.
    facts : a model -> its config.json.
    build : a config.json -> a fresh model.
    dropouts : the names of its settings of dropout, which must be equal.
    """

    architecture: str
    kind: str
    names: Mapping[str, str]
    turned: frozenset[str]
    ignored: tuple[str, ...]
    facts: Callable[[Any], dict[str, Any]]
    build: Callable[[Mapping[str, Any]], nn.Module]
    dropouts: tuple[str, ...] = ()


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
        **dict.fromkeys(DROPOUTS, model.drop.p),
        "tie_word_embeddings": True,
        "bias": model.norm.bias is not None,  # not theirs: there all have one, here it may be left out
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _gpt(facts: Mapping[str, Any]) -> nn.Module:
    width, dropout = facts["n_embd"], facts.get("resid_pdrop", 0.1)
    if {facts.get(name, 0.1) for name in DROPOUTS} != {dropout}:
        raise ValueError(f"{', '.join(DROPOUTS)} must be equal, got {[facts.get(name, 0.1) for name in DROPOUTS]}")
    _agree(
        facts,
        activation_function=("gelu_new", "gelu"),
        layer_norm_epsilon=(1e-5, None),
        n_inner=(None, 4 * width),
        tie_word_embeddings=(True, None),
        scale_attn_weights=(True, None),
        scale_attn_by_inverse_layer_idx=(False, None),
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
    """Refuse settings that our models do not compute."""
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
        DROPOUTS,
    ),
}


def family(model: nn.Module) -> Family:
    """The family of a model; one line for others."""
    if type(model) not in FAMILIES:
        raise ValueError(f"the model must be a GPT or a Llama, got {type(model).__name__}: others have no names there")
    return FAMILIES[type(model)]


def renamed(model: nn.Module) -> Iterator[tuple[str, str, bool]]:
    """Each tensor's name here and in `transformers`, and whether it is transposed there. A tied tensor comes once."""
    kin = family(model)
    for name, _ in model.named_parameters():
        module, _, key = name.rpartition(".")
        block = module.split(".")[1] if module.startswith("blocks.") else ""
        hub_module = kin.names[module.replace(f".{block}.", ".*.", 1) if block else module].replace("*", block)
        turned = module.rpartition(".")[2] in kin.turned and key == "weight"
        yield name, f"{hub_module}.{key}", turned
