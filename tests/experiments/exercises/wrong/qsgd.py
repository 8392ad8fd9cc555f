"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""

import numpy as np


def _row(row, norm, levels, rounded):
    if norm == 0:
        return 0 * row
    return norm * np.sign(row) * rounded(np.abs(row) * levels / norm) / levels


def _coin(random):
    return lambda a: np.floor(a) + (random.random(a.shape) < a % 1)


def rounds_to_nearest(v, levels, random):
    """rounds to the nearest level"""
    return np.stack([_row(row, np.linalg.norm(row), levels, np.rint) for row in v])


def rounds_down(v, levels, random):
    """rounds down always"""
    return np.stack([_row(row, np.linalg.norm(row), levels, np.trunc) for row in v])


def exchanged(v, levels, random):
    """the probabilities are exchanged"""

    def rounded(a):
        low, high = np.floor(a), np.ceil(a)
        return np.where(random.random(a.shape) < a - low, low, high)

    return np.stack([_row(row, np.linalg.norm(row), levels, rounded) for row in v])


def largest_as_norm(v, levels, random):
    """the norm is the largest"""
    return np.stack([_row(row, np.abs(row).max(), levels, _coin(random)) for row in v])


def sum_as_norm(v, levels, random):
    """the norm is the sum"""
    return np.stack([_row(row, np.abs(row).sum(), levels, _coin(random)) for row in v])


def norm_of_all(v, levels, random):
    """of all rows together"""
    return _row(v, np.sqrt((v**2).sum()), levels, _coin(random))


def one_number(v, levels, random):
    """one random number"""
    u = random.random()
    return np.stack([_row(row, np.linalg.norm(row), levels, lambda a: np.floor(a + u)) for row in v])


def one_number_a_row(v, levels, random):
    """one random number serves a row"""
    u = random.random((len(v), 1))
    return np.stack(
        [_row(row, np.linalg.norm(row), levels, lambda a, u=u[i]: np.floor(a + u)) for i, row in enumerate(v)]
    )


def no_sign(v, levels, random):
    """the sign is lost"""
    return np.stack([np.abs(_row(row, np.linalg.norm(row), levels, _coin(random))) for row in v])


def nan_at_zero(v, levels, random):
    """a zero vector is divided"""
    norm = np.linalg.norm(v, axis=1)[:, None]
    return norm * np.sign(v) * _coin(random)(levels * np.abs(v) / norm) / levels


def variance_as_the_bound(v, levels):
    """this is the bound"""
    d = v.shape[1]
    return min(d / levels**2, d**0.5 / levels) * (v**2).sum(axis=1)


def variance_without_the_norm(v, levels):
    """|v|^2 is missing"""
    a = levels * np.abs(v) / np.linalg.norm(v, axis=1, keepdims=True)
    return ((a % 1) * (1 - a % 1)).sum(axis=1) / levels**2


def variance_as_a_mean(v, levels):
    """the mean over coordinates"""
    norm = np.linalg.norm(v, axis=1, keepdims=True)
    p = levels * np.abs(v) / norm % 1
    return ((norm / levels) ** 2 * p * (1 - p)).mean(axis=1)
