"""Wrong solutions: the name of each is the mistake, its docstring the words that the grader has to find."""

import numpy as np


class _Adam:
    def __init__(self, lr):
        self.lr, self.t, self.m, self.v = lr, 0, 0.0, 0.0

    def step(self, x, g, corrected=True):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g * g
        m = self.m / (1 - 0.9**self.t) if corrected else self.m
        v = self.v / (1 - 0.999**self.t) if corrected else self.v
        return x - self.lr * m / (np.sqrt(v) + 1e-8)


def heavy_ball(x, gradient, lr, period, outer_lr, momentum, steps):
    """heavy ball"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            u = momentum * u + (a - x.mean(0))
            x = a = a - outer_lr * u
    return x


def running_average(x, gradient, lr, period, outer_lr, momentum, steps):
    """a running average"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            u = momentum * u + (1 - momentum) * (a - x.mean(0))
            x = a = a - outer_lr * u
    return x


def biased_adam(x, gradient, lr, period, outer_lr, momentum, steps):
    """Adam is biased"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k), corrected=False)
        if (k + 1) % period == 0:
            move = a - x.mean(0)
            u = momentum * u + move
            x = a = a - outer_lr * (move + momentum * u)
    return x


def adam_anew(x, gradient, lr, period, outer_lr, momentum, steps):
    """Adam begins anew"""
    a, u = x, 0.0
    for k in range(steps):
        if k % period == 0:
            adam = _Adam(lr)
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            move = a - x.mean(0)
            u = momentum * u + move
            x = a = a - outer_lr * (move + momentum * u)
    return x


def outer_step_at_step_0(x, gradient, lr, period, outer_lr, momentum, steps):
    """it averages at step 0"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if not k % period:
            move = a - x.mean(0)
            u = momentum * u + move
            x = a = a - outer_lr * (move + momentum * u)
    return x


def wrong_sign(x, gradient, lr, period, outer_lr, momentum, steps):
    """wrong sign"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            move = x.mean(0) - a
            u = momentum * u + move
            x = a = a - outer_lr * (move + momentum * u)
    return x


def sum_of_moves(x, gradient, lr, period, outer_lr, momentum, steps):
    """1/n is missing"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            move = (a - x).sum(0)
            u = momentum * u + move
            x = a = a - outer_lr * (move + momentum * u)
    return x


def anchor_stays(x, gradient, lr, period, outer_lr, momentum, steps):
    """the anchor never moves"""
    adam, a, u = _Adam(lr), x, 0.0
    for k in range(steps):
        x = adam.step(x, gradient(x, k))
        if (k + 1) % period == 0:
            move = a - x.mean(0)
            u = momentum * u + move
            x = a - outer_lr * (move + momentum * u)
    return x
