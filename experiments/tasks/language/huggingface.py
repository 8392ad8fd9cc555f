"""Llama and GPT under the names that Hugging Face's `transformers` gives their tensors, in safetensors files.

    save(model, folder)     model.safetensors and config.json, which LlamaForCausalLM or GPT2LMHeadModel reads
    load(folder)            a GPT or Llama from such a folder, in the dtype of its files
    pretrained(folder)      the same as a preset, for `task=language task.model=FOLDER`

Queries and keys are rotated in the same pairs there, so only GPT-2's linear layers, which are stored transposed, are
changed. The way back is bit-equal.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from commeff.experiments.data.folder import DataError
from commeff.experiments.tasks.language.families import FAMILIES, Family, family, renamed
from commeff.experiments.tasks.language.gpt import GPT
from commeff.experiments.tasks.language.llama import Llama
from commeff.experiments.tasks.language.presets import Preset
from commeff.experiments.tasks.language.text import read_json
from commeff.experiments.tasks.shapes import shapes_only
from commeff.files import regular

WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"
LARGEST = 1 << 26  # bytes of a JSON file
KEPT = ("max_position_embeddings", "bos_token_id", "eos_token_id")  # of a model that training went on from
BESIDE = (  # files of such a model that training leaves as they are
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model", "vocab.json"),
    *("merges.txt", "generation_config.json"),
)


def save(model: nn.Module, folder: Path, origin: Path | None = None) -> None:
    """Write model.safetensors and config.json into a folder that is there.

    Parameters
    ----------
    model : a GPT or a Llama. A GPT without biases gets biases of zero, since GPT-2 has no others.
    folder : where.
    origin : a folder that the model began from, whose tokenizer and further settings it keeps.
    """
    kin, package = family(model), _package()
    named = dict(model.named_parameters())
    tensors = {hub_name: _turned(named[name].detach(), turned) for name, hub_name, turned in renamed(model)}
    facts = {"architectures": [kin.architecture], "model_type": kin.kind, **kin.facts(model)}
    if facts.get("bias") is False:
        for name, hub_name, _ in renamed(model):
            if not isinstance(model.get_submodule(name.rpartition(".")[0]), nn.Embedding):
                tensors[f"{hub_name.rpartition('.')[0]}.bias"] = named[name].detach().new_zeros(len(named[name]))
    facts["dtype"] = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    beside: list[Path] = []
    if origin is not None:
        beside = [origin / name for name in BESIDE if (origin / name).is_file()]
        before = {name: value for name, value in _json(origin / CONFIG).items() if name != "torch_dtype"}
        facts = {**before, **facts, **{name: before[name] for name in KEPT if name in before}}
    try:
        package.save_file({name: tensor.cpu() for name, tensor in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        for file in beside:
            shutil.copyfile(file, folder / file.name)
    except OSError as error:
        raise DataError(f"{folder} cannot be written ({error.strerror or error}): choose another folder") from None


def load(folder: Path, dropout: float | None = None) -> nn.Module:
    """A GPT or Llama from a folder that `save` or `transformers` has written, in one file or several.

    Where tensors are made on the meta device, config.json alone is read. Dropout is that of config.json unless given.

    Raises
    ------
    DataError: in one line, where a file is missing or damaged, the model is none of ours, or tensors are missing, of
        other shapes, or more than the model has.
    """
    kin, facts = _described(folder)
    if dropout is not None:
        facts = {**facts, **dict.fromkeys(kin.dropouts, dropout)}
        if dropout and not kin.dropouts:
            raise ValueError(f"dropout must be 0 with the {kin.kind} in {folder}, which has none, got {dropout}")
    try:
        with shapes_only():
            model = kin.build(facts)
    except KeyError as error:
        raise DataError(f"{folder / CONFIG} must give {error.args[0]}: get the folder whole") from None
    except (TypeError, ValueError) as error:
        raise DataError(f"{folder / CONFIG} describes no model of ours: {' '.join(str(error).split())}") from None
    if torch.empty(0).is_meta:
        return model
    tensors = {_full(name, kin): tensor.clone() for name, tensor in _read(folder)}  # in memory that is aligned
    state, tied = {}, model.get_parameter("head.weight") is model.get_parameter("tokens.weight")
    for name, hub_name, turned in renamed(model):
        tensor, expected = tensors.pop(hub_name, None), model.get_parameter(name)
        tensor = None if tensor is None else _turned(tensor, turned)
        if tensor is None or tensor.shape != expected.shape:
            got = "none" if tensor is None else str(tuple(tensor.shape))
            must = f"{hub_name} must have shape {tuple(expected.shape)} as {CONFIG} has it"
            raise DataError(f"{must}, got {got}")
        state[name] = tensor
    head = tensors.pop("lm_head.weight", None)
    if tied and head is not None and not torch.equal(head, state["tokens.weight"]):
        raise DataError("lm_head.weight must be the embedding where tie_word_embeddings is true, got another tensor")
    for name, tensor in tensors.items():
        spare = name.endswith(kin.ignored) or (facts.get("bias") is False and name.endswith(".bias"))
        if not spare or (name.endswith(".bias") and facts.get("bias") is False and bool(tensor.any())):
            raise DataError(f"{name} in {folder} has no place in the model that {CONFIG} describes: correct that")
    if tied:
        state["head.weight"] = state["tokens.weight"]
    model.load_state_dict(state, assign=True)
    if tied:
        model.get_submodule("head").register_parameter("weight", model.get_parameter("tokens.weight"))
    return model.requires_grad_()


def pretrained(folder: Path, dropout: float) -> Preset:
    """The model of a folder, to be called with the vocabulary of a text, which must not be larger than its own."""

    def build(vocabulary: int, separator: int | None = None) -> nn.Module:
        model = cast("GPT | Llama", load(folder, dropout))
        if vocabulary > len(model.tokens.weight):
            raise ValueError(
                f"the text must have at most the {len(model.tokens.weight)} tokens of {folder}, got {vocabulary}: "
                "tokenise it with this model's tokenizer.json (commeff data tokenize --tokenizer), or take another"
            )
        model.separator = separator
        return model

    return build


def digest_of(folder: Path) -> str:
    """SHA-256 of config.json and of all files of weights."""
    _, facts = _described(folder)
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in _files(folder):
        try:
            state = (folder / name).stat()
            digest.update(_whole(folder / name, state.st_size, state.st_mtime_ns))
        except OSError as error:
            raise DataError(f"{folder / name} cannot be read ({error.strerror or error}): get it anew") from None
    return digest.hexdigest()


@lru_cache(maxsize=64)
def _whole(path: Path, size: int, changed: int) -> bytes:
    """The SHA-256 of a file, read once while it is the same: a second for one or two gigabytes."""
    with open(path, "rb", opener=regular) as file:
        return hashlib.file_digest(file, "sha256").digest()


def _described(folder: Path) -> tuple[Family, Mapping[str, Any]]:
    """What config.json says of a model, and the family that it is of."""
    facts = _json(folder / CONFIG)
    kin = next((kin for kin in FAMILIES.values() if kin.kind == facts.get("model_type")), None)
    if kin is None:
        kinds = " or ".join(kin.kind for kin in FAMILIES.values())
        raise DataError(f"model_type in {folder / CONFIG} must be {kinds}, got {str(facts.get('model_type'))[:40]!r}")
    return kin, facts


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


def _full(name: str, kin: Family) -> str:
    """GPT-2's own file leaves the first word out."""
    return f"transformer.{name}" if kin.kind == "gpt2" and name.startswith(("h.", "wte.", "wpe.", "ln_f.")) else name


def _read(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """All tensors of a folder."""
    package = _package()
    for file in _files(folder):
        try:
            yield from package.load_file(folder / file).items()
        except Exception as error:  # the package's errors have no kind of their own
            raise DataError(f"{folder / file} cannot be read ({' '.join(str(error).split())}): get it anew") from None


def _files(folder: Path) -> list[str]:
    """The files that hold the tensors."""
    if not (folder / INDEX).is_file():
        return [WEIGHTS]
    places = _json(folder / INDEX).get("weight_map")
    named = sorted({str(file) for file in places.values()}) if isinstance(places, dict) else []
    return [Path(file).name for file in named]


def _json(path: Path) -> dict[str, Any]:
    _, facts = read_json(path, LARGEST, "get it anew")
    if facts is None:
        raise DataError(f"{path} must hold names and values, got something else: get it anew")
    return facts
