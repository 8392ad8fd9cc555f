"""Binary classification data in svmlight text files: where they lie, what they must hold, one-line errors otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from commeff.experiments.data.folder import ENVIRONMENT, DataError, data_folder
from commeff.experiments.tasks.partition import held_out
from commeff.experiments.tasks.supervised import Samples

ORIGIN = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
SYNTHETIC, SHAPE = "synthetic", (1_200, 30)  # data that need no file: samples and features
VALIDATION = 0.2  # share of the training file held out where there is no test file


@dataclass(frozen=True)
class File:
    """One file. rows: how many samples a complete copy has; origin: what LIBSVM's page calls it."""

    name: str
    rows: int
    origin: str


@dataclass(frozen=True)
class Source:
    """One data set: its number of features, its training file and, where there is one, its test file."""

    features: int
    train: File
    test: File | None = None


SOURCES: Mapping[str, Source] = {
    "a9a": Source(123, File("a9a", 32_561, "a9a"), File("a9a.t", 16_281, "a9a.t")),
    "w8a": Source(300, File("w8a", 49_749, "w8a")),
    "mushrooms": Source(112, File("mushrooms", 8_124, "mushrooms")),
    "ijcnn1": Source(22, File("ijcnn1.trn.bz2", 49_990, "ijcnn1.bz2"), File("ijcnn1.t.bz2", 91_701, "ijcnn1.t.bz2")),
}


def load(source: Source, data_dir: str | None, dtype: torch.dtype) -> tuple[Samples, Samples]:
    """Training and validation samples: dense inputs (N, features), targets -1 (the smaller label in the file) and +1.

    The files are looked for in data_dir/libsvm, data_dir by default being the environment variable COMMEFF_DATA.
    Without a test file a fixed stratified fifth of the training file is held out.
    """
    inputs, labels = read(_locate(source.train, data_dir), source.train, source.features)
    values = np.unique(labels)
    if len(values) != 2:
        raise DataError(f"{source.train.name} must hold two labels, got {len(values)}: {_remedy(source.train)}")
    everything = _samples(inputs, labels, values, dtype)
    if source.test is not None:
        return everything, _samples(*read(_locate(source.test, data_dir), source.test, source.features), values, dtype)
    return _parted(everything, labels)


def held_out_fifth(inputs: NDArray, labels: NDArray, dtype: torch.dtype) -> tuple[Samples, Samples]:
    """Samples with labels -1 and +1, less a fixed stratified fifth; and that fifth."""
    return _parted(_samples(inputs, labels, np.unique(labels), dtype), labels)


def _parted(everything: Samples, labels: NDArray) -> tuple[Samples, Samples]:
    rows, out = held_out(labels, round(VALIDATION * len(labels)))
    return (
        Samples(everything.inputs[rows], everything.targets[rows]),
        Samples(everything.inputs[out], everything.targets[out]),
    )


def synthetic() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gaussian inputs of falling size, and noisy signs of a linear function of them."""
    rng = np.random.default_rng(0)
    samples, features = SHAPE
    inputs = rng.standard_normal((samples, features)) / np.sqrt(1 + np.arange(features))
    margins = inputs @ rng.standard_normal(features) + 0.5 * rng.standard_normal(samples)
    return inputs, np.where(margins > 0, 1.0, -1.0)


def whole(source: Source, data_dir: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All rows of the training file, for tasks that validate nothing: inputs (N, features), labels -1 and +1."""
    inputs, labels = read(_locate(source.train, data_dir), source.train, source.features)
    return inputs, np.where(labels == labels.max(), 1.0, -1.0)


def read(path: Path, file: File, features: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Dense inputs (rows, features) and labels (rows,) of a complete file; anything else is a `DataError`."""
    from sklearn.datasets import load_svmlight_file  # late: a second of import that other tasks do not need

    try:
        sparse, labels = load_svmlight_file(str(path), n_features=features, zero_based=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is corrupt or cut short ({reason}): {_remedy(file)}") from error
    inputs = sparse.toarray()
    if len(labels) != file.rows:
        raise DataError(
            f"{path} has {len(labels)} rows where {file.name} has {file.rows}: cut short or wrong file; {_remedy(file)}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(labels).all()):
        raise DataError(f"{path} holds values that are not finite numbers: {_remedy(file)}")
    return inputs, labels


def _samples(inputs: NDArray, labels: NDArray, values: NDArray, dtype: torch.dtype) -> Samples:
    if not np.isin(labels, values).all():
        raise DataError(f"the test file has labels other than the training file's {values.tolist()}: get both anew")
    signs = np.where(labels == values[1], 1.0, -1.0)
    return Samples(torch.from_numpy(inputs).to(dtype), torch.from_numpy(signs).to(dtype))


def _locate(file: File, data_dir: str | None) -> Path:
    path = data_folder(data_dir, file.name, _remedy(file)) / "libsvm" / file.name
    if not path.is_file():
        raise DataError(f"no file {path}: correct data_dir or {ENVIRONMENT}, or {_remedy(file)}")
    return path


def _remedy(file: File) -> str:
    return f"get {file.origin} from {ORIGIN} and save it as FOLDER/libsvm/{file.name}"
