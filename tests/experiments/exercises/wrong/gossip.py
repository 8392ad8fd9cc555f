"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""

import numpy as np


def transposed(x, gradient, w, lr, steps):
    """W is transposed"""
    for k in range(steps):
        h = x - lr * gradient(x, k)
        x = np.einsum("ji,jd->id", w, h)
    return x


def gradient_after_the_mix(x, gradient, w, lr, steps):
    """AWC"""
    for k in range(steps):
        g = gradient(x, k)
        x = w @ x
        x -= lr * g
    return x


def gradient_at_the_mix(x, gradient, w, lr, steps):
    """taken where the mix has led"""
    for k in range(steps):
        x = w @ x
        x = x - lr * gradient(x, k)
    return x


def mixes_gradients(x, gradient, w, lr, steps):
    """gradients are mixed, and x is not"""
    for k in range(steps):
        x = x - lr * (w @ gradient(x, k))
    return x


def forgets_itself(x, gradient, w, lr, steps):
    """forgets itself"""
    n = len(x)
    for k in range(steps):
        h = x - lr * gradient(x, k)
        x = np.array([sum(w[i, j] * h[j] for j in range(n) if j != i) for i in range(n)])
    return x


def plain_mean_of_neighbours(x, gradient, w, lr, steps):
    """neighbours count alike"""
    for k in range(steps):
        h = x - lr * gradient(x, k)
        x = np.array([h[np.nonzero(row)[0]].mean(axis=0) for row in w])
    return x


def counts_from_one(x, gradient, w, lr, steps):
    """steps are counted from 1"""
    for k in range(1, steps + 1):
        x = w @ (x - lr * gradient(x, k))
    return x
