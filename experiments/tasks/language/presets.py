"""Language models of known sizes, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama
from commeff.experiments.tasks.shapes import shapes_only
from commeff.require import did_you_mean

Preset = Callable[..., nn.Module]


def _gpt(layers: int, width: int, heads: int, context: int = 2048, head_width: int | None = None) -> Preset:
    """GPT-2 (context 1024), or a row of table 2.1 of arXiv 2005.14165, whose heads need not share the width."""
    shape = partial(GPT, vocabulary=50257, layers=layers, width=width, heads=heads)
    return partial(shape, context=context, bias=True, head_width=head_width, tanh=True)


def _llama(
    layers: int,
    width: int,
    heads: int,
    kv_heads: int | None = None,
    inner: int | None = None,
    vocabulary: int = 32000,
    tied: bool = False,
    base: float = 10000.0,
) -> Preset:
    """LLaMA (arXiv 2302.13971) or Llama 2 and 3 (arXiv 2307.09288, 2407.21783)."""
    shape = partial(Llama, layers=layers, width=width, heads=heads, kv_heads=kv_heads, inner=inner)
    return partial(shape, vocabulary=vocabulary, tied=tied, base=base)


PRESETS: Mapping[str, Preset] = {
    "llama_40k": _llama(2, 40, 4, kv_heads=2, inner=96, vocabulary=256, tied=True),
    "llama_130k": _llama(3, 64, 4, kv_heads=2, inner=128, vocabulary=256, tied=True),
    "llama_300k": _llama(3, 96, 4, kv_heads=2, inner=256, vocabulary=256, tied=True),
    "llama_1m": _llama(4, 128, 4, kv_heads=2, inner=512, vocabulary=256, tied=True),
    "llama_15m": _llama(6, 288, 6, inner=768, tied=True),
    "llama_1b": _llama(22, 2048, 32, kv_heads=4, inner=5632),
    "llama_7b": _llama(32, 4096, 32),
    "llama_13b": _llama(40, 5120, 40),
    "llama_33b": _llama(60, 6656, 52),
    "llama_65b": _llama(80, 8192, 64),
    "llama2_70b": _llama(80, 8192, 64, kv_heads=8, inner=28672),
    "llama3_8b": _llama(32, 4096, 32, kv_heads=8, inner=14336, vocabulary=128256, base=500000.0),
    "gpt2": _gpt(12, 768, 12, context=1024),
    "gpt2_medium": _gpt(24, 1024, 16, context=1024),
    "gpt2_large": _gpt(36, 1280, 20, context=1024),
    "gpt2_xl": _gpt(48, 1600, 25, context=1024),
    "gpt3_small": _gpt(12, 768, 12),
    "gpt3_medium": _gpt(24, 1024, 16),
    "gpt3_large": _gpt(24, 1536, 16),
    "gpt3_xl": _gpt(24, 2048, 24, head_width=128),
    "gpt3_2.7b": _gpt(32, 2560, 32),
    "gpt3_6.7b": _gpt(32, 4096, 32),
    "gpt3_13b": _gpt(40, 5140, 40, head_width=128),
    "gpt3_175b": _gpt(96, 12288, 96),
}


def preset(name: str) -> Preset:
    """The model of this name, to be called; keywords change its shape, as in `preset("llama_7b")(vocabulary=256)`.

    Parameters
    ----------
    name : str
        One of `PRESETS`.

    Examples
    --------
    >>> sum(p.numel() for p in preset("llama_1m")().parameters())
    1016960
    >>> preset("llama_2b")
    Traceback (most recent call last):
    ValueError: model must be a preset, or a folder with a config.json, got 'llama_2b'; did you mean llama2_70b?
    """
    if name not in PRESETS:
        near = did_you_mean(name, PRESETS) or f"; there are {', '.join(PRESETS)}"
        raise ValueError(f"model must be a preset, or a folder with a config.json, got {name!r}{near}")
    return PRESETS[name]


def count(name: str) -> int:
    """Parameters of a preset, counted on the meta device, which takes no memory. A tied matrix counts once.

    >>> count("llama2_70b")
    68976648192
    """
    with shapes_only():
        return sum(parameter.numel() for parameter in preset(name)().parameters())
