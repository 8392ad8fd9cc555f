"""Language models and the texts that they learn: GPT, Llama, presets of published sizes, and the task of bytes.

The models are plain modules that know nothing of parallelism; `plans` says by module names how `commeff.sharding`
splits them; `huggingface` reads and writes them under the names of `transformers`.
"""

from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.huggingface import load, save
from commeff.experiments.tasks.language.llama import Llama
from commeff.experiments.tasks.language.plans import GPT_LAYERS, LLAMA_LAYERS, gpt_plan, llama_plan
from commeff.experiments.tasks.language.presets import PRESETS, count, preset
from commeff.experiments.tasks.language.task import Language

__all__ = [
    "GPT",
    "GPT_LAYERS",
    "LLAMA_LAYERS",
    "PRESETS",
    "Language",
    "Llama",
    "count",
    "gpt_plan",
    "llama_plan",
    "load",
    "preset",
    "save",
]
