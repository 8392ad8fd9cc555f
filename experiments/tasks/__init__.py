"""Model + data per worker + evaluation, one class a task; the constructor's signature is its configuration.

- `Quadratic`: heterogeneous quadratics with a known optimum, exact heterogeneity and gradient noise.
- `LeastSquares`: a block of Gaussian rows for each worker, of which the optimum is known too.
- `Logistic`: regularised logistic regression on LIBSVM files (a9a, w8a, mushrooms, ijcnn1).
- `Risk`: logistic or square risks on those files with exact gradients, known constants and a known minimum.
- `Digits`: scikit-learn's 8 x 8 digits with a linear model, an MLP or a small CNN; needs no files.
- `CIFAR10`, `FashionMNIST`, `ImageFolder`: images, with ResNets or the networks of the digits.
- `Language`: a small GPT that predicts the next byte of any text file, or the next token of a tokenised text.

A new task on labelled samples is one subclass of `Supervised` with three methods.
"""

from commeff.experiments.data.folder import DataError
from commeff.experiments.tasks.cifar10 import CIFAR10
from commeff.experiments.tasks.digits import Digits
from commeff.experiments.tasks.fashion_mnist import FashionMNIST
from commeff.experiments.tasks.image_folder import ImageFolder
from commeff.experiments.tasks.language import Language
from commeff.experiments.tasks.least_squares import LeastSquares
from commeff.experiments.tasks.logistic import Logistic
from commeff.experiments.tasks.partition import Partition, dirichlet, iid, shards
from commeff.experiments.tasks.quadratic import Quadratic
from commeff.experiments.tasks.risk import Risk
from commeff.experiments.tasks.sampler import Sampler
from commeff.experiments.tasks.supervised import Samples, Supervised

__all__ = [
    "CIFAR10",
    "DataError",
    "Digits",
    "FashionMNIST",
    "ImageFolder",
    "Language",
    "LeastSquares",
    "Logistic",
    "Partition",
    "Quadratic",
    "Risk",
    "Sampler",
    "Samples",
    "Supervised",
    "dirichlet",
    "iid",
    "shards",
]
