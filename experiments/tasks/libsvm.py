"""Binary classification data in svmlight text files: where they lie, what they must hold, one-line errors otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from commeff.experiments.data.folder import ENVIRONMENT, DataError, data_folder
from commeff.experiments.data.manifest import LIBSVM
from commeff.experiments.tasks.partition import held_out
from commeff.experiments.tasks.supervised import Samples

SYNTHETIC, SHAPE = "synthetic", (1_200, 30)  # data that need no file: samples and features
VALIDATION = 0.2  # share of the training file held out where there is no test file


@dataclass(frozen=True)
class File:
    """One file. rows: how many samples a complete copy has; origin: what LIBSVM's page calls it, if not the same."""

    name: str
    features: int
    rows: int
    origin: str = ""

    @property
    def remedy(self) -> str:
        """How to get it."""
        return f"get {self.origin or self.name} from {LIBSVM} and save it as FOLDER/libsvm/{self.name}"


# The training file and, where there is one, the test file.
SOURCES: Mapping[str, tuple[File, ...]] = {
    "a9a": (File("a9a", 123, 32_561), File("a9a.t", 123, 16_281)),
    "w8a": (File("w8a", 300, 49_749),),
    "mushrooms": (File("mushrooms", 112, 8_124),),
    "ijcnn1": (File("ijcnn1.trn.bz2", 22, 49_990, "ijcnn1.bz2"), File("ijcnn1.t.bz2", 22, 91_701)),
}


def load(source: Sequence[File], data_dir: str | None, dtype: torch.dtype) -> tuple[Samples, Samples]:
    """Training and validation samples: dense inputs (N, features), targets -1 (the smaller label in the file) and +1.

    The files are looked for in data_dir/libsvm, data_dir by default being the environment variable COMMEFF_DATA.
    Without a test file a fixed stratified fifth of the training file is held out.
    """
    inputs, labels = read(source[0], data_dir)
    values = np.unique(labels)
    if len(values) != 2:
        raise DataError(f"{source[0].name} must hold two labels, got {len(values)}: {source[0].remedy}")
    if len(source) == 1:
        return held_out_fifth(inputs, labels, dtype)
    others, other_labels = read(source[1], data_dir)
    if not np.isin(other_labels, values).all():
        raise DataError(f"the test file has labels other than the training file's {values.tolist()}: get both anew")
    return _samples(inputs, labels == values[1], dtype), _samples(others, other_labels == values[1], dtype)


def held_out_fifth(inputs: NDArray, labels: NDArray, dtype: torch.dtype) -> tuple[Samples, Samples]:
    """Samples with labels -1 and +1, less a fixed stratified fifth; and that fifth."""
    rows, out = held_out(labels, round(VALIDATION * len(labels)))
    everything = _samples(inputs, labels == labels.max(), dtype)
    return everything.at(rows), everything.at(out)


def _samples(inputs: NDArray, positive: NDArray[np.bool_], dtype: torch.dtype) -> Samples:
    return Samples(torch.from_numpy(inputs).to(dtype), torch.from_numpy(np.where(positive, 1.0, -1.0)).to(dtype))


def synthetic() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gaussian inputs of falling size, and noisy signs of a linear function of them."""
    rng = np.random.default_rng(0)
    samples, features = SHAPE
    inputs = rng.standard_normal((samples, features)) / np.sqrt(1 + np.arange(features))
    margins = inputs @ rng.standard_normal(features) + 0.5 * rng.standard_normal(samples)
    return inputs, np.where(margins > 0, 1.0, -1.0)


def whole(file: File, data_dir: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All rows of a file, for tasks that validate nothing: inputs (N, features), labels -1 and +1."""
    inputs, labels = read(file, data_dir)
    return inputs, np.where(labels == labels.max(), 1.0, -1.0)


def read(file: File, data_dir: str | None) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Dense inputs (rows, features) and labels (rows,) of a complete file; anything else is a `DataError`."""
    from sklearn.datasets import load_svmlight_file  # late: a second of import that other tasks do not need

    path = data_folder(data_dir, file.name, file.remedy) / "libsvm" / file.name
    if not path.is_file():
        raise DataError(f"no file {path}: correct data_dir or {ENVIRONMENT}, or {file.remedy}")
    try:
        sparse, labels = load_svmlight_file(str(path), n_features=file.features, zero_based=False)
    except (ValueError, EOFError, OSError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is corrupt or cut short ({reason}): {file.remedy}") from error
    inputs = sparse.toarray()
    if len(labels) != file.rows:
        raise DataError(
            f"{path} has {len(labels)} rows where {file.name} has {file.rows}: cut short or wrong file; {file.remedy}"
        )
    if not (np.isfinite(inputs).all() and np.isfinite(labels).all()):
        raise DataError(f"{path} holds values that are not finite numbers: {file.remedy}")
    return inputs, labels
