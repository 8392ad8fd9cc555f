"""How the language models split over tensor ranks (arXiv 1909.08053) and stages: what `commeff.sharding` is told."""

from __future__ import annotations

from dataclasses import replace

from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama
from commeff.sharding import (
    ColumnParallel,
    Layers,
    ParallelInput,
    Plan,
    RowParallel,
    SequenceParallel,
    VocabularyParallel,
)

LLAMA_LAYERS = Layers(
    "blocks",
    lambda model, tokens, *targets: model.embed(tokens),
    lambda model, x, tokens, *targets: model.unembed(x, *targets),
    first=("tokens",),
    last=("norm", "head"),
    beside=lambda model, tokens, *targets: model.beside(tokens),
    informed=True,
)
GPT_LAYERS = replace(LLAMA_LAYERS, first=("tokens", "positions"))

_BOTH: Plan = {
    "tokens": VocabularyParallel(),
    "blocks.*_norm": SequenceParallel(),
    "blocks.*.attention": ParallelInput(),
    "blocks.*.feedforward": ParallelInput(),
    "blocks.*.widen": ColumnParallel(),
    "blocks.*.project": RowParallel(),
    "norm": SequenceParallel(),
    "head": VocabularyParallel(),
}


def llama_plan(model: Llama) -> Plan:
    """Whole heads and whole columns of the feed-forward to each rank; a key head may have to serve several ranks."""
    return {
        **_BOTH,
        "blocks.*.queries": ColumnParallel(units=model.heads),
        "blocks.*.keys": ColumnParallel(units=model.kv_heads, repeat=True),
        "blocks.*.values": ColumnParallel(units=model.kv_heads, repeat=True),
        "blocks.*.gate": ColumnParallel(),
    }


def gpt_plan(model: GPT) -> Plan:
    """As Llama's; queries, keys and values are thirds of one matrix."""
    return {
        **_BOTH,
        "positions": SequenceParallel(),
        "blocks.*.inputs": ColumnParallel(units=model.heads, parts=3),
    }
