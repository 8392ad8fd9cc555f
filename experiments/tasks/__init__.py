"""Model + data per worker + evaluation, one class a task; the constructor's signature is its configuration.

- `Quadratic`: heterogeneous quadratics with a known optimum, exact heterogeneity and gradient noise.
- `Logistic`: regularised logistic regression on LIBSVM files (a9a, w8a, mushrooms, ijcnn1).
- `Digits`: scikit-learn's 8 x 8 digits with a linear model, an MLP or a small CNN; needs no files.

A new task on labelled samples is one subclass of `Supervised` with three methods.
"""

from experiments.tasks.digits import Digits
from experiments.tasks.libsvm import DataError
from experiments.tasks.logistic import Logistic
from experiments.tasks.partition import Partition, dirichlet, iid, shards
from experiments.tasks.quadratic import Quadratic
from experiments.tasks.sampler import Sampler
from experiments.tasks.supervised import Samples, Supervised

__all__ = [
    "DataError",
    "Digits",
    "Logistic",
    "Partition",
    "Quadratic",
    "Sampler",
    "Samples",
    "Supervised",
    "dirichlet",
    "iid",
    "shards",
]
