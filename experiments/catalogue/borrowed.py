"""The optimizers of the configuration that are torch's own: what they do, in the letters of the others, and papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Borrowed:
    """The description of a part of `torch.optim`.

    Attributes
    ----------
    says : str
        What it is.
    update : tuple of str
        Its equations at the parameters x and the gradient g, with the learning rate gamma; memories are 0 at first.
    paper : str
        Where it is from.
    """

    says: str
    update: tuple[str, ...]
    paper: str


BORROWED: Mapping[str, Borrowed] = {
    "sgd": Borrowed(
        "Stochastic gradient descent.",
        ("x = x - gamma g",),
        "Robbins, Monro, A stochastic approximation method, 1951.",
    ),
    "momentum": Borrowed(
        "SGD with momentum, a decaying sum of gradients.",
        ("m = b m + g;  x = x - gamma m",),
        "Polyak, Some methods of speeding up the convergence of iteration methods, 1964.",
    ),
    "nesterov": Borrowed(
        "SGD with Nesterov's momentum, which looks a step ahead.",
        ("m = b m + g;  x = x - gamma (g + b m)",),
        "Sutskever, Martens, Dahl, Hinton, On the importance of initialization and momentum in deep learning, 2013.",
    ),
    "adagrad": Borrowed(
        "Adagrad: coordinates learn the slower the more they have moved.",
        ("s = s + g^2;  x = x - gamma g / (sqrt(s) + eps)",),
        "Duchi, Hazan, Singer, Adaptive subgradient methods, JMLR 12, 2011.",
    ),
    "adam": Borrowed(
        "Adam: an average of gradients over the root of an average of their squares.",
        (
            "m = b_1 m + (1 - b_1) g;  v = b_2 v + (1 - b_2) g^2",
            "x = x - gamma (m / (1 - b_1^t)) / (sqrt(v / (1 - b_2^t)) + eps)",
        ),
        "Kingma, Ba, Adam, arXiv 1412.6980.",
    ),
    "adamw": Borrowed(
        "AdamW: Adam with a weight decay that is no part of the gradient.",
        ("x = (1 - gamma lambda) x;  then as in Adam",),
        "Loshchilov, Hutter, Decoupled weight decay regularization, arXiv 1711.05101.",
    ),
    "radam": Borrowed(
        "RAdam: momentum until the average of squares means something, then Adam's step times r(t), which grows to 1.",
        ("x = x - gamma r(t) (m / (1 - b_1^t)) / (sqrt(v / (1 - b_2^t)) + eps)",),
        "Liu et al., On the variance of the adaptive learning rate and beyond, arXiv 1908.03265.",
    ),
    "nadam": Borrowed(
        "NAdam: Adam with Nesterov's look ahead, at a momentum u(t) that grows to b1; p(t) is the product of the "
        "first t of them.",
        ("x = x - gamma (u(t + 1) m / (1 - p(t + 1)) + (1 - u(t)) g / (1 - p(t))) / (sqrt(v / (1 - b_2^t)) + eps)",),
        "Dozat, Incorporating Nesterov momentum into Adam, 2016.",
    ),
    "adafactor": Borrowed(
        "Adafactor: of the squares of a matrix only the means of rows, r, and of columns, c, are remembered; steps "
        "are as long as the tensor, clipped to a root mean square of d.",
        ("v = r c^T / mean(r);  u = g / sqrt(v);  x = x - gamma rms(x) u / max(1, rms(u) / d)",),
        "Shazeer, Stern, Adafactor, arXiv 1804.04235.",
    ),
}
