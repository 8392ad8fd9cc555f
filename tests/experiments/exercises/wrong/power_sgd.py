"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""

import numpy as np


def _factors(m, q, orth=lambda left: np.linalg.qr(left.mean(0))[0]):
    p = orth(m @ q)
    return p, np.einsum("nab,ar->br", m, p) / len(m)


def no_warm_start(x, gradient, right, lr, steps):
    """does not start warm"""
    e = 0.0
    for k in range(steps):
        m = gradient(x, k) + e
        p, q = _factors(m, right)
        e = m - p @ q.T
        x = x - lr * p @ q.T
    return x


def no_error(x, gradient, right, lr, steps):
    """there is no error"""
    for k in range(steps):
        p, right = _factors(gradient(x, k), right)
        x = x - lr * p @ right.T
    return x


def drops_the_old_error(x, gradient, right, lr, steps):
    """drops the error of before"""
    e = 0.0
    for k in range(steps):
        g = gradient(x, k)
        p, right = _factors(g + e, right)
        e = g - p @ right.T
        x = x - lr * p @ right.T
    return x


def not_orthonormal(x, gradient, right, lr, steps):
    """P is not orthonormal"""
    e = 0.0
    for k in range(steps):
        m = gradient(x, k) + e
        p, right = _factors(m, right, lambda left: left.mean(0))
        e = m - p @ right.T
        x = x - lr * p @ right.T
    return x


def sum_in_q(x, gradient, right, lr, steps):
    """1/n is missing"""
    e = 0.0
    for k in range(steps):
        m = gradient(x, k) + e
        p, q = _factors(m, right)
        right = len(x) * q
        e = m - p @ right.T
        x = x - lr * p @ right.T
    return x
