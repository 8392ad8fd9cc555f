"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""

import numpy as np


def _halves(rows, exchange, second, rounds=None, keep=False):
    n, d = rows.shape
    c = rows.reshape(n, n, d // n)
    for t in range(n - 1):
        got = exchange([c[i, (i - t) % n] for i in range(n)])
        for i in range(n):
            c[i, (i - 1 - t) % n] += got[i]
    for t in range(n - 1 if rounds is None else rounds):
        got = exchange([c[i, (i + second - t) % n] for i in range(n)])
        for i in range(n):
            where = (i - 1 + second - t) % n
            c[i, where] = c[i, where] + got[i] if keep else got[i]
    return c.reshape(n, d)


def wrong_chunk_in_the_second_half(rows, exchange):
    """the second half begins with chunk i"""
    return _halves(rows, exchange, 0) / len(rows)


def wrong_chunk_received(rows, exchange):
    """the chunk index of what arrives is that of what was sent"""
    n, d = rows.shape
    c = rows.reshape(n, n, d // n)
    for t in range(2 * (n - 1)):
        place = [(i - t + (1 if t >= n - 1 else 0) + (n - 1 if t >= n - 1 else 0)) % n for i in range(n)]
        got = exchange([c[i, place[i]] for i in range(n)])
        for i in range(n):
            c[i, place[i]] = got[i] if t >= n - 1 else c[i, place[i]] + got[i]
    return c.reshape(n, d) / n


def adds_in_the_second_half(rows, exchange):
    """the second half adds"""
    return _halves(rows, exchange, 1, keep=True) / len(rows)


def no_division(rows, exchange):
    """1/n is missing"""
    return _halves(rows, exchange, 1)


def only_reduce_scatter(rows, exchange):
    """ends after n - 1 rounds"""
    return _halves(rows, exchange, 1, rounds=0) / len(rows)


def n_rounds(rows, exchange):
    """n rounds and not 2 (n - 1)"""
    return _halves(rows, exchange, 1, rounds=1) / len(rows)


def whole_vectors(rows, exchange):
    """whole vectors go round"""
    total, moving = rows.copy(), list(rows)
    for _ in range(len(rows) - 1):
        moving = exchange(moving)
        total += np.array(moving)
    return total / len(rows)


def sees_everything(rows, exchange):
    """nothing is sent"""
    return np.tile(rows.sum(axis=0) / len(rows), (len(rows), 1))
