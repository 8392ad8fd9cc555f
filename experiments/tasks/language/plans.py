"""How the language models split over tensor parallel ranks (arXiv 1909.08053): what `commeff.parallelism` is told."""

from __future__ import annotations

from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama
from commeff.parallelism import Column, Input, Plan, Row, Sequence, Vocabulary


def llama_plan(model: Llama) -> Plan:
    """Whole heads and whole columns of the feed-forward to each rank; a key head may have to serve several ranks."""
    return {
        "tokens": Vocabulary(),
        "blocks.*_norm": Sequence(),
        "blocks.*.attention": Input(),
        "blocks.*.queries": Column(units=model.heads),
        "blocks.*.keys": Column(units=model.kv_heads, repeat=True),
        "blocks.*.values": Column(units=model.kv_heads, repeat=True),
        "blocks.*.feedforward": Input(),
        "blocks.*.gate": Column(),
        "blocks.*.widen": Column(),
        "blocks.*.project": Row(),
        "norm": Sequence(),
        "head": Vocabulary(),
    }


def gpt_plan(model: GPT) -> Plan:
    """As Llama's; queries, keys and values are thirds of one matrix."""
    return {
        "tokens": Vocabulary(),
        "positions": Sequence(),
        "blocks.*_norm": Sequence(),
        "blocks.*.attention": Input(),
        "blocks.*.inputs": Column(units=model.heads, parts=3),
        "blocks.*.feedforward": Input(),
        "blocks.*.widen": Column(),
        "blocks.*.project": Row(),
        "norm": Sequence(),
        "head": Vocabulary(),
    }
